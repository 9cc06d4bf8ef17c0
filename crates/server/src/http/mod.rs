//! HTTP on a thread of its own: metrics, health, a JSON interface and one page (docs/decisions/operation.md, 0160).
//!
//! A connection has one request and is closed after the response. What peers can make the thread hold is bounded by a
//! number of connections, a length of the head and a time for each step; when all slots are taken the oldest
//! connection makes room. The thread has a lower priority than those that serve the cache, takes no lock that they
//! wait for, and a panic in it ends only its connections.

mod api;
mod connection;
mod connections;
mod findings;
mod health;
mod history;
mod metrics;
mod page;
mod request;
mod response;
mod routes;
mod starting;
mod thread;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use self::request::HostNames;
pub(crate) use self::starting::respond_while;
use self::thread::HttpThread;
use crate::net::listener;
use crate::shared::Shared;
use crate::shared::config::{HttpListen, HttpSettings, Listen};
use crate::shared::error::Error;
use crate::shared::wake::Waker;

/// Connections that the kernel may keep until they are accepted.
const BACKLOG: u32 = 128;

/// What a port serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Everything.
    Main,
    /// Metrics alone, without a token.
    Metrics,
}

/// A bound port.
pub(crate) struct HttpSocket {
    port: Port,
    socket: OwnedFd,
    address: SocketAddr,
    host_names: HostNames,
}

impl HttpSocket {
    /// Binds the ports of the settings.
    ///
    /// # Errors
    /// An address cannot be used.
    pub(crate) fn bind_all(settings: &HttpSettings) -> Result<Vec<HttpSocket>, Error> {
        HttpSocket::bind_all_with(settings, |_| None)
    }

    /// The ports of the settings: `find_bound` returns the socket of a server before, others are bound.
    ///
    /// # Errors
    /// An address cannot be used.
    pub(crate) fn bind_all_with(
        settings: &HttpSettings,
        mut find_bound: impl FnMut(SocketAddr) -> Option<OwnedFd>,
    ) -> Result<Vec<HttpSocket>, Error> {
        let main = settings.main.iter().map(|listen| (Port::Main, listen));
        let metrics = settings.metrics.iter().map(|listen| (Port::Metrics, listen));
        let bind = |(port, listen): (Port, &HttpListen)| {
            let host_names = HostNames::new(listen.host.as_deref());
            let listener = Listen::Tcp(listen.address);
            let socket = match find_bound(listen.address) {
                Some(socket) => socket,
                None => listener::bind_listener(&listener, BACKLOG)?.into_socket(),
            };
            let name = rustix::net::getsockname(&socket).ok();
            let bound = name.and_then(|name| SocketAddr::try_from(name).ok());
            let address = bound.unwrap_or(listen.address);
            Ok(HttpSocket { port, socket, address, host_names })
        };
        main.chain(metrics).map(bind).collect()
    }

    /// Its address, with the port chosen by the kernel.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The socket, to be handed over.
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

/// The running thread.
pub(crate) struct HttpHandle {
    waker: Waker,
    thread: JoinHandle<()>,
}

impl HttpHandle {
    /// Starts the thread, which serves if `wait_for_start` returns true.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        sockets: Vec<HttpSocket>,
        wait_for_start: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<HttpHandle, Error> {
        let waker = Waker::new().map_err(|error| Error::System(error.into()))?;
        let http_thread = HttpThread::new(Arc::clone(shared), sockets, waker.clone());
        let thread = std::thread::Builder::new()
            .name("gc-http".to_owned())
            .spawn(move || {
                if wait_for_start() {
                    http_thread.run();
                }
            })
            .map_err(Error::System)?;
        Ok(HttpHandle { waker, thread })
    }

    /// Ends the thread: the serving ones have ended.
    pub(crate) fn join(self) {
        self.waker.wake();
        let _ = self.thread.join();
    }
}
