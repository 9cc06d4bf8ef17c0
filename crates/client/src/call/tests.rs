//! One call, however it is driven: what its tests share.

mod addresses;
mod early_replies;
mod quiet_writes;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use glasscache_peers::{Connection, Peer};
use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::StoreMode;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};

use super::{Call, CallEvent, CallStage, receive_first_replies};
use crate::address::Endpoint;
use crate::error::Error;
use crate::options::Options;
use crate::pipeline::Reply;
use crate::pool::Server;
use crate::request::{Item, Request};
use crate::transport::blocking::{WaitLimit, wait};
use crate::transport::resolver::Resolver;
use crate::write_buffer::BufferResult;

const MINUTE: Duration = Duration::from_mins(1);

/// Makes one call to a server.
type DriveFn = fn(&Arc<Server>, Duration) -> Result<(), Error>;

/// Every way in which a call is driven.
const DRIVERS: &[(&str, DriveFn)] = &[
    ("alone", drive_alone),
    ("together", drive_together),
    #[cfg(feature = "tokio")]
    ("runtime", drive_in_runtime),
];

fn drive_alone(server: &Arc<Server>, timeout: Duration) -> Result<(), Error> {
    let (requests, now) = ([Request::Version], Instant::now());
    let mut call = Call::new(server.clone(), &requests, now, now + timeout);
    loop {
        match call.run()? {
            CallEvent::Reply(_) => call.release_reply(),
            CallEvent::Finished => return Ok(()),
            _ => {}
        }
    }
}

fn drive_together(server: &Arc<Server>, timeout: Duration) -> Result<(), Error> {
    let (requests, now) = ([Request::Version], Instant::now());
    let call = Call::new(server.clone(), &requests, now, now + timeout);
    let mut calls = [(call, None)];
    while !receive_first_replies(&mut calls) {}
    let [(call, error)] = &mut calls;
    if let Some(error) = error.take() {
        return Err(error);
    }
    assert!(call.take_unread_reply().is_some());
    call.release_reply();
    Ok(())
}

#[cfg(feature = "tokio")]
fn drive_in_runtime(server: &Arc<Server>, timeout: Duration) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(drive_from_task(server.clone(), timeout))
}

#[cfg(feature = "tokio")]
async fn drive_from_task(server: Arc<Server>, timeout: Duration) -> Result<(), Error> {
    let (requests, now) = ([Request::Version], Instant::now());
    let mut call = Call::new(server, &requests, now, now + timeout);
    call.set_nonblocking();
    crate::asynchronous::driving::drive(&mut call, |_, _, _| Ok(())).await
}

/// A server with a name that is looked up by `lookup`.
fn server_resolved_by(
    lookup: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
) -> Arc<Server> {
    let endpoint = Endpoint::Tcp("a.name".into(), 7);
    let mut server = Server::new(endpoint, Arc::new(Options::default()), None);
    server.resolver = Resolver::new(lookup);
    Arc::new(server)
}

/// A peer that knows meta commands and `version`.
fn responding_peer() -> Peer {
    Peer::replying(reply_to)
}

fn reply_to(line: &str) -> &'static str {
    match line {
        "mn" => "MN\r\n",
        "version" => "VERSION 1\r\n",
        _ => "",
    }
}

/// Replies to the `mn` by which a client finds out what its server knows.
fn accept_meta(connection: &mut Connection) -> io::Result<()> {
    assert_eq!(connection.read_line()?, "mn");
    connection.write("MN\r\n")
}

fn server_at(address: SocketAddr) -> Arc<Server> {
    server_resolved_by(move |_, _| Ok(vec![address]))
}

fn item_of<'a>(key: &'a str, body: &'a [u8]) -> Item<'a> {
    Item { key: WireKey { bytes: key.as_bytes(), is_base64: false }, flags: 0, body }
}

fn store_request<'a>(key: &'a str, body: &'a [u8]) -> Request<'a> {
    Request::Store { mode: StoreMode::Set, item: item_of(key, body), exptime: 0, noreply: false }
}
