//! HTTP while the items of a memory file are restored: the process lives and is not ready.

use std::thread;
use std::time::{Duration, Instant};

use super::connections::Connections;
use super::request::{HostNames, Refusal, Request};
use super::response::{Response, TEXT};
use super::{HttpSocket, Port};
use crate::shared::error::Error;
use crate::shared::wake::Waker;

/// Time after which the thread looks again if nothing happens.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Carries out `restore` while a thread responds on `sockets` that the server is not ready.
///
/// # Errors
/// Those of `restore`, or the system refuses the thread.
pub(crate) fn respond_while<T>(
    sockets: &[HttpSocket],
    restore: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    if sockets.is_empty() {
        return restore();
    }
    let waker = Waker::new().map_err(|error| Error::System(error.into()))?;
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("gc-http".to_owned());
        thread.spawn_scoped(scope, || serve(sockets, &waker)).map_err(Error::System)?;
        let outcome = restore();
        waker.wake();
        outcome
    })
}

fn serve(sockets: &[HttpSocket], waker: &Waker) {
    let mut connections = Connections::default();
    while let Some(ready) = connections.wait(waker, sockets, Instant::now() + WAIT_MAX) {
        connections.advance(&ready, sockets, |port, host_names, request, _| {
            respond(port, host_names, request).unwrap_or_else(|refusal| Response::refusal(&refusal))
        });
        connections.accept(sockets);
    }
}

fn respond(
    port: Port,
    host_names: Option<&HostNames>,
    request: Result<&Request, &Refusal>,
) -> Result<Response, Refusal> {
    let request = request.map_err(Refusal::clone)?;
    if let Some(host_names) = host_names {
        host_names.check(request)?;
    }
    match (port, request.path.as_str()) {
        (Port::Main, "/healthz" | "/livez") => Ok(Response::new(TEXT, "ok\n")),
        _ => Err(Refusal::new(503, "the server starts: the items of its memory file are restored")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::shared::config::{HttpListen, HttpSettings};

    #[test]
    fn while_items_are_restored_the_server_lives_and_is_not_ready() {
        let listen = |port| HttpListen { address: ([127, 0, 0, 1], port).into(), host: None };
        let settings =
            HttpSettings { main: Some(listen(0)), metrics: Some(listen(0)), token_file: None };
        let sockets = HttpSocket::bind_all(&settings).unwrap();
        let get = |index: usize, path: &str| {
            let mut stream = TcpStream::connect(sockets[index].address()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            response
        };
        let restored = respond_while(&sockets, || {
            for path in ["/healthz", "/livez"] {
                assert!(get(0, path).starts_with("HTTP/1.1 200 "), "{path}");
            }
            for (index, path) in [(0, "/readyz"), (0, "/"), (0, "/metrics"), (1, "/metrics")] {
                let response = get(index, path);
                assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
                assert!(response.contains("items of its memory file are restored"), "{response}");
            }
            Ok(7)
        });
        assert_eq!(restored.unwrap(), 7);
    }
}
