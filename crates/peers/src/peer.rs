//! A listener on a free port of this machine: each connection is served by a function of the test.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::connection::Connection;

/// The direction in which bytes pass through a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

#[derive(Default)]
struct Shared {
    is_closed: AtomicBool,
    accepted_count: AtomicUsize,
    /// A copy of each stream that is being served, by the number of its connection.
    streams: Mutex<HashMap<usize, TcpStream>>,
}

/// Removes the entry of an open connection when it is dropped: after a panic in the script as well.
struct OpenStream {
    shared: Arc<Shared>,
    number: usize,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.shared.lock_streams().remove(&self.number);
    }
}

/// A listener, which accepts connections until [`Peer::close`]; dropping this does not stop it.
pub struct Peer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener_thread: Mutex<Option<JoinHandle<()>>>,
}

impl Peer {
    /// Serves each connection in a thread of its own; the connection is closed when `serve` returns.
    pub fn start(serve: impl Fn(Connection) -> io::Result<()> + Send + Sync + 'static) -> Peer {
        Peer::start_numbered(move |_, connection| serve(connection))
    }

    /// As [`Peer::start`], with the number of each connection, from 0.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start_numbered(
        serve: impl Fn(usize, Connection) -> io::Result<()> + Send + Sync + 'static,
    ) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let shared_by_listener = shared.clone();
        let serve = Arc::new(serve);
        let listener_thread = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared_by_listener.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, serve) = (shared_by_listener.clone(), serve.clone());
                let number = shared.accepted_count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_nodelay(true);
                shared.lock_streams().extend(stream.try_clone().ok().map(|copy| (number, copy)));
                thread::spawn(move || {
                    let _open_stream = OpenStream { shared, number };
                    let _ = serve(number, Connection::new(stream)); // an error: the client has closed
                });
            }
        });
        Peer { address, shared, listener_thread: Mutex::new(Some(listener_thread)) }
    }

    /// A peer that accepts connections, reads, and never replies.
    pub fn silent() -> Peer {
        Peer::start(|mut connection| connection.wait_for_end())
    }

    /// A peer that sends this reply to each line.
    pub fn replying<R: AsRef<[u8]>>(reply_to: impl Fn(&str) -> R + Send + Sync + 'static) -> Peer {
        Peer::start(move |mut connection| connection.reply_to_lines(&reply_to))
    }

    /// A relay to `server`: it forwards each chunk as `edit` returns it, and closes both connections when that is `None`.
    pub fn relay(
        server: SocketAddr,
        edit: impl Fn(Direction, Vec<u8>) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Peer {
        let edit = Arc::new(edit);
        Peer::start(move |connection| {
            let client = connection.into_stream();
            let server = TcpStream::connect(server)?;
            let (client_copy, server_copy) = (client.try_clone()?, server.try_clone()?);
            let edit_replies = edit.clone();
            thread::spawn(move || {
                forward(server_copy, client_copy, Direction::Reply, &*edit_replies);
            });
            forward(client, server, Direction::Request, &*edit);
            Ok(())
        })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it has accepted.
    pub fn accepted_connections(&self) -> usize {
        self.shared.accepted_count.load(Ordering::SeqCst)
    }

    /// How many connections it is serving.
    pub fn open_connections(&self) -> usize {
        self.shared.lock_streams().len()
    }

    /// Closes every open connection, as a restart does; the listener goes on.
    pub fn drop_connections(&self) {
        for stream in self.shared.lock_streams().values() {
            let _ = stream.shutdown(Shutdown::Both); // some are closed already
        }
    }

    /// Closes the listener, and then every open connection: none can be added meanwhile.
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        let listener_thread = self.listener_thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(listener_thread) = listener_thread {
            drop(TcpStream::connect(self.address)); // wakes the listener, which then ends
            let _ = listener_thread.join();
        }
        self.drop_connections();
    }
}

impl Shared {
    fn lock_streams(&self) -> std::sync::MutexGuard<'_, HashMap<usize, TcpStream>> {
        self.streams.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Forwards chunks until either side ends, then shuts down both streams.
fn forward(
    mut source: TcpStream,
    mut target: TcpStream,
    direction: Direction,
    edit: &dyn Fn(Direction, Vec<u8>) -> Option<Vec<u8>>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read_bytes @ 1..) = source.read(&mut buffer) {
        let Some(chunk) = edit(direction, buffer[..read_bytes].to_vec()) else { break };
        if target.write_all(&chunk).is_err() {
            break;
        }
    }
    // Each may have been closed by its other end; that does not keep the other one open.
    let _ = source.shutdown(Shutdown::Both);
    let _ = target.shutdown(Shutdown::Both);
}
