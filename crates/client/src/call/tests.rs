//! Calls to a server whose name resolves to several addresses, or to none.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
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

/// A listener that replies to every request, and how many connections it accepted.
fn responding_listener() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted_count = Arc::new(AtomicUsize::new(0));
    let count = accepted_count.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            thread::spawn(move || respond(&stream.unwrap()));
        }
    });
    (address, accepted_count)
}

fn respond(mut stream: &TcpStream) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let reply: &[u8] = if line == "mn" {
            b"MN\r\n"
        } else {
            b"VERSION 1\r\n"
        };
        if stream.write_all(reply).is_err() {
            return;
        }
    }
}

/// A listener that replies to `mn` and `version`, and reports each line with the number of its connection.
fn reporting_listener() -> (SocketAddr, Receiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (reporter, lines) = channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (stream, reporter) = (stream.unwrap(), reporter.clone());
            thread::spawn(move || {
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    let reply = match line.as_str() {
                        "mn" => "MN\r\n",
                        "version" => "VERSION 1\r\n",
                        _ => "",
                    };
                    let _ = reporter.send((number, line));
                    let _ = (&stream).write_all(reply.as_bytes());
                }
            });
        }
    });
    (address, lines)
}

fn server_at(address: SocketAddr) -> Arc<Server> {
    server_resolved_by(move |_, _| Ok(vec![address]))
}

#[test]
fn a_flush_of_an_empty_write_buffer_opens_no_connection() {
    let (address, accepted_count) = responding_listener();
    let (server, now) = (server_at(address), Instant::now());
    assert_eq!(
        server.flush_quiet_writes(now, now + MINUTE, &|| true),
        Ok(())
    );
    assert_eq!(server.connection_counts(), (0, 0));
    assert_eq!(accepted_count.load(Ordering::SeqCst), 0);
}

#[test]
fn the_sending_thread_uses_the_connection_of_the_thread_that_wrote() {
    let (address, lines) = reporting_listener();
    let server = server_at(address);
    let (requests, now) = ([Request::Version], Instant::now());
    let new_call = || Call::new(server.clone(), &requests, now, now + MINUTE);
    let mut own_call = new_call();
    assert!(matches!(own_call.run(), Ok(CallEvent::Reply(_))));
    // Both connections are idle then, and the other thread's was returned last.
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other_call = new_call();
            assert!(matches!(other_call.run(), Ok(CallEvent::Reply(_))));
            own_call.release_reply();
            other_call.release_reply();
        });
    });
    assert_eq!(server.connection_counts(), (2, 2));
    for expected in [BufferResult::SendNow, BufferResult::Enqueued] {
        let quiet_store = Request::Store {
            mode: StoreMode::Set,
            item: item_of("key", b"value"),
            exptime: 0,
            noreply: true,
        };
        assert_eq!(server.buffer_write(&quiet_store, now), expected);
    }
    let line_with_key = lines.iter().find(|(_, line)| line.contains("key"));
    assert_eq!(line_with_key.map(|(connection, _)| connection), Some(0));
}

/// A server that knows meta commands and replies to the fourth `mn`, so to the third request for acknowledgements,
/// with a line of no protocol; it does not reply to those in between.
fn listener_that_breaks_the_protocol() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut stream = &listener.accept().unwrap().0;
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for (index, _) in lines.filter(|line| line == "mn").enumerate() {
            let reply: &[u8] = match index {
                0 => b"MN\r\n",
                3 => b"WHAT\r\n",
                _ => b"",
            };
            stream.write_all(reply).unwrap();
        }
    });
    address
}

#[test]
fn a_fault_that_the_engine_has_counted_is_not_counted_again_at_the_end_of_the_call() {
    let address = listener_that_breaks_the_protocol();
    let server = server_at(address);
    let key = WireKey {
        bytes: b"k",
        is_base64: false,
    };
    // As many as one request for acknowledgement is sent for; the fourth call waits for a reply to the first.
    let requests = vec![Request::Delete { key, noreply: true }; 1000];
    for _ in 0..4 {
        let now = Instant::now();
        let mut call = Call::new(server.clone(), &requests, now, now + MINUTE);
        assert_eq!(call.run(), Ok(CallEvent::Finished));
    }
    assert_eq!(server.faults.load(Ordering::Relaxed), 1);
}

fn item_of<'a>(key: &'a str, body: &'a [u8]) -> Item<'a> {
    Item {
        key: WireKey {
            bytes: key.as_bytes(),
            is_base64: false,
        },
        flags: 0,
        body,
    }
}

fn store<'a>(key: &'a str, body: &'a [u8]) -> Request<'a> {
    Request::Store {
        mode: StoreMode::Set,
        item: item_of(key, body),
        exptime: 0,
        noreply: false,
    }
}

/// A server that knows meta commands, reads nothing after the first, and sends refusals without end; how many bytes it
/// could write.
fn listener_that_sends_refusals_without_end() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let written_bytes = Arc::new(AtomicUsize::new(0));
    let count = written_bytes.clone();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"MN\r\n").unwrap();
        let refusals = b"NS\r\n".repeat(1000);
        while let Ok(bytes) = stream.write(&refusals) {
            count.fetch_add(bytes, Ordering::SeqCst);
        }
    });
    (address, written_bytes)
}

#[test]
fn replies_without_end_to_requests_that_are_not_read_are_refused_before_the_deadline() {
    const SOCKET_BUFFERS_BYTES_MAX: usize = 32 << 20;
    let (address, written_bytes) = listener_that_sends_refusals_without_end();
    let server = server_at(address);
    let body = vec![b'x'; 1 << 20];
    let keys = ["a", "b", "c", "d"].repeat(16);
    let items: Vec<_> = keys.iter().map(|key| item_of(key, &body)).collect();
    let requests = [Request::StoreMany {
        mode: StoreMode::Set,
        items: &items,
        exptime: 0,
        quiet: false,
    }];
    let now = Instant::now();
    let mut call = Call::new(server, &requests, now, now + Duration::from_secs(10));
    assert!(matches!(call.run(), Err(Error::Protocol { .. })));
    assert!(written_bytes.load(Ordering::SeqCst) < SOCKET_BUFFERS_BYTES_MAX);
}

/// A server that knows meta commands and reads nothing after the first. It refuses a store and ends the connection,
/// each when the test allows it.
fn listener_that_refuses_a_store() -> (SocketAddr, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (allow_next_step, next_step_allowed) = channel();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"MN\r\n").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        next_step_allowed.recv().unwrap();
        let refusal = b"SERVER_ERROR object too large for cache\r\n";
        stream.write_all(refusal).unwrap();
        let _ = next_step_allowed.recv();
    });
    (address, allow_next_step)
}

/// Waits until the connection of a call is closed by its peer.
fn wait_until_closed(call: &Call<'_>) {
    let (fd, _) = call.poll_interest().unwrap();
    wait(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::empty())],
        call.deadline,
    )
    .unwrap();
}

#[test]
fn a_refusal_that_comes_before_the_value_is_sent_is_returned_though_the_server_closes_then() {
    for reply_is_read_while_sending in [true, false] {
        let (address, allow_next_step) = listener_that_refuses_a_store();
        let server = server_at(address);
        let body = vec![b'x'; 64 << 20]; // more than the buffers of two sockets hold
        let requests = [store("k", &body)];
        let now = Instant::now();
        let mut call = Call::new(server.clone(), &requests, now, now + MINUTE);
        while call.stage != CallStage::Sending {
            assert_eq!(call.advance(WaitLimit::NoWait), Ok(CallEvent::Waiting));
        }
        allow_next_step.send(()).unwrap();
        while reply_is_read_while_sending && call.early_reply.is_none() {
            assert_eq!(call.advance(WaitLimit::NoWait), Ok(CallEvent::Waiting));
        }
        drop(allow_next_step);
        wait_until_closed(&call);
        let state = call.run();
        assert!(
            matches!(&state, Ok(CallEvent::Reply(Reply::Refused(_)))),
            "{reply_is_read_while_sending}: {state:?}"
        );
        call.release_reply();
        assert_eq!(call.run(), Ok(CallEvent::Finished));
        assert_eq!(server.faults.load(Ordering::Relaxed), 0);
        assert_eq!(server.connection_counts().0, 0, "it is not used again");
    }
}

/// A server that knows meta commands and takes one store, but reads nothing of what follows. It ends the connection
/// when the test allows it.
fn listener_that_accepts_one_store() -> (SocketAddr, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (close_guard, close_guard_dropped) = channel();
    thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let mut requests = BufReader::new(&stream);
        assert_eq!(read_line(&mut requests), "mn");
        (&stream).write_all(b"MN\r\n").unwrap();
        let line = read_line(&mut requests);
        let opaque = line.split(' ').find(|word| word.starts_with('O')).unwrap();
        write!(&stream, "HD {opaque}\r\n").unwrap();
        let _ = close_guard_dropped.recv();
    });
    (address, close_guard)
}

#[test]
fn replies_that_came_before_all_was_sent_are_returned_though_the_call_then_fails() {
    let body = vec![b'x'; 64 << 20]; // more than the buffers of two sockets hold
    let stores = [store("a", b"1"), store("b", &body)];
    for server_closes in [true, false] {
        let (address, close_guard) = listener_that_accepts_one_store();
        let server = server_at(address);
        let now = Instant::now();
        let time_allowed = if server_closes {
            MINUTE
        } else {
            Duration::from_secs(2)
        };
        let mut call = Call::new(server, &stores, now, now + time_allowed);
        while call.early_reply.is_none() {
            assert_eq!(call.advance(WaitLimit::NoWait), Ok(CallEvent::Waiting));
        }
        if server_closes {
            drop(close_guard);
            wait_until_closed(&call);
        }
        let state = call.run();
        assert!(matches!(state, Ok(CallEvent::Reply(_))), "{state:?}");
        call.release_reply();
        match call.run() {
            Err(Error::Unavailable(..)) => assert!(server_closes),
            Err(Error::Deadline(..)) => assert!(!server_closes),
            state => panic!("{state:?}"),
        }
    }
}

#[test]
fn the_deadline_of_a_call_bounds_the_wait_for_each_of_its_replies() {
    let (reply_permit, reply_permits) = channel();
    let address = listener_that_waits_for(reply_permits);
    let server = server_at(address);
    let (now, time_allowed) = (Instant::now(), Duration::from_millis(600));
    let requests = [Request::Version, Request::Version];
    let mut call = Call::new(server, &requests, now, now + time_allowed);
    thread::spawn(move || {
        for _ in 0..2 {
            thread::sleep(time_allowed * 2 / 3);
            let _ = reply_permit.send(());
        }
    });
    if call.run().is_ok() {
        call.release_reply();
        let state = call.run();
        assert!(matches!(state, Err(Error::Deadline(_))), "{state:?}");
    }
}

/// A server that knows meta commands and takes two stores. It replies to the first at once and reports when it has
/// received all of the second.
fn listener_that_accepts_two_stores() -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (report_all_received, all_received) = channel();
    thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let mut requests = BufReader::new(&stream);
        assert_eq!(read_line(&mut requests), "mn");
        (&stream).write_all(b"MN\r\n").unwrap();
        for is_last in [false, true] {
            let line = read_line(&mut requests);
            let words: Vec<_> = line.split(' ').collect();
            let value_bytes = words[2].trim_start_matches('S').parse::<u64>().unwrap();
            let mut value = (&mut requests).take(value_bytes + 2);
            io::copy(&mut value, &mut io::sink()).unwrap();
            if is_last {
                report_all_received.send(()).unwrap();
            }
            let opaque = words.iter().find(|word| word.starts_with('O')).unwrap();
            write!(&stream, "HD {opaque}\r\n").unwrap();
        }
        let _ = requests.read(&mut [0; 1]);
    });
    (address, all_received)
}

fn read_line(input: &mut impl BufRead) -> String {
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A server that knows meta commands and replies to the next request when the test allows it.
fn listener_that_waits_for(reply_permits: Receiver<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        for (index, line) in BufReader::new(&stream)
            .lines()
            .map_while(Result::ok)
            .enumerate()
        {
            if index == 0 {
                assert_eq!(line, "mn");
                (&stream).write_all(b"MN\r\n").unwrap();
            } else {
                reply_permits.recv().unwrap();
                (&stream).write_all(b"VERSION 1\r\n").unwrap();
            }
        }
    });
    address
}

#[test]
fn a_call_with_an_early_reply_continues_to_send_while_others_wait() {
    let body = vec![b'x'; 64 << 20]; // more than the buffers of two sockets hold
    let (stores_address, all_received) = listener_that_accepts_two_stores();
    let waiting_address = listener_that_waits_for(all_received);
    let stores = [store("a", b"1"), store("b", &body)];
    let version = [Request::Version];
    let now = Instant::now();
    let call_to = |address, requests| {
        let server = server_at(address);
        (Call::new(server, requests, now, now + MINUTE), None)
    };
    let mut calls = [
        call_to(stores_address, &stores[..]),
        call_to(waiting_address, &version),
    ];
    while !receive_first_replies(&mut calls) {}
    for (call, error) in &mut calls {
        assert_eq!(*error, None);
        assert!(call.take_unread_reply().is_some());
        call.release_reply();
    }
    let [(call, _), _] = &mut calls;
    assert!(matches!(call.run(), Ok(CallEvent::Reply(_))));
}

/// A listener whose queue of connections is full: it neither takes nor refuses another one.
struct FullListener {
    listener: TcpListener,
    queued: Vec<TcpStream>,
}

impl FullListener {
    fn new() -> Self {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&fd, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&fd, 0).unwrap();
        let listener = TcpListener::from(fd);
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
        let queued: Vec<_> = std::iter::from_fn(connect).take(8).collect();
        assert!(queued.len() < 8, "the queue is never full");
        Self { listener, queued }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Takes connections from now on.
    fn take_connections(&self) {
        for _ in &self.queued {
            self.listener.accept().unwrap();
        }
        self.listener.set_nonblocking(true).unwrap();
    }

    fn has_new_connection(&self) -> bool {
        self.listener.accept().is_ok()
    }
}

/// An address without a listener, which no other process can take while the tests run.
fn refusing_address() -> SocketAddr {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let bound = TcpListener::from(fd);
    let address = bound.local_addr().unwrap();
    std::mem::forget(bound);
    address
}

#[test]
fn a_call_tries_the_next_address_after_a_silent_one_and_the_next_call_begins_with_the_one_that_replied()
 {
    thread::scope(|scope| {
        for &(driver, drive) in DRIVERS {
            scope.spawn(move || {
                let full_listener = FullListener::new();
                let (responding_address, accepted_count) = responding_listener();
                let addresses = vec![full_listener.address(), responding_address];
                let server = server_resolved_by(move |_, _| Ok(addresses.clone()));
                assert_eq!(drive(&server, Duration::from_secs(4)), Ok(()), "{driver}");
                assert!(!server.health.is_down(), "{driver}");
                assert_eq!(accepted_count.load(Ordering::SeqCst), 1, "{driver}");

                full_listener.take_connections();
                server.pool.close_idle();
                assert_eq!(drive(&server, MINUTE), Ok(()), "{driver}");
                assert_eq!(accepted_count.load(Ordering::SeqCst), 2, "{driver}");
                assert!(!full_listener.has_new_connection(), "{driver}");
            });
        }
    });
}

#[test]
fn a_call_tries_the_next_address_after_a_delayed_refusal() {
    for &(driver, drive) in DRIVERS {
        let (responding_address, _) = responding_listener();
        let addresses = vec![refusing_address(), refusing_address(), responding_address];
        let server = server_resolved_by(move |_, _| Ok(addresses.clone()));
        assert_eq!(drive(&server, MINUTE), Ok(()), "{driver}");
        assert!(!server.health.is_down(), "{driver}");
    }
}

#[test]
fn a_server_all_of_whose_addresses_refuse_is_down() {
    for &(driver, drive) in DRIVERS {
        let server = server_resolved_by(|_, _| Ok(vec![refusing_address(), refusing_address()]));
        let result = drive(&server, MINUTE);
        assert!(matches!(result, Err(Error::Unavailable(..))), "{driver}");
        assert!(server.health.is_down(), "{driver}");
    }
}

#[test]
fn the_probe_finds_a_server_at_its_second_address() {
    let (responding_address, _) = responding_listener();
    let addresses = Arc::new(Mutex::new(vec![refusing_address()]));
    let current_addresses = addresses.clone();
    let server = server_resolved_by(move |_, _| Ok(current_addresses.lock().unwrap().clone()));
    assert!(drive_alone(&server, MINUTE).is_err() && server.health.is_down());
    addresses.lock().unwrap().push(responding_address); // seen when the last lookup is out of date
    let end = Instant::now() + MINUTE;
    while server.health.is_down() {
        assert!(Instant::now() < end, "never used again");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A server whose name's lookups end when the guard of the gate is dropped, and how many were started.
fn server_with_hanging_lookup(gate: &Arc<Mutex<()>>) -> (Arc<Server>, Arc<AtomicUsize>) {
    let started_count = Arc::new(AtomicUsize::new(0));
    let (gate, count) = (gate.clone(), started_count.clone());
    let server = server_resolved_by(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        drop(gate.lock());
        Ok(Vec::new())
    });
    (server, started_count)
}

#[test]
fn one_call_that_waits_for_a_hanging_lookup_opens_the_breaker_unless_it_was_allowed_too_little() {
    for &(driver, drive) in DRIVERS {
        let gate = Arc::default();
        let (server, _) = server_with_hanging_lookup(&gate);
        let gate_guard = gate.lock();
        assert!(
            drive(&server, Duration::from_millis(10)).is_err(),
            "{driver}"
        );
        assert!(!server.health.is_down(), "{driver}");
        let result = drive(&server, Duration::from_millis(60));
        assert!(matches!(result, Err(Error::Deadline(_))), "{driver}");
        assert!(server.health.is_down(), "{driver}");
        drop(gate_guard);
    }
}

#[test]
fn threads_that_wait_for_a_hanging_lookup_start_one_and_open_the_breaker() {
    let gate = Arc::default();
    let (server, started_count) = server_with_hanging_lookup(&gate);
    let gate_guard = gate.lock();
    let start_barrier = Barrier::new(20);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                start_barrier.wait();
                assert!(drive_alone(&server, Duration::from_millis(60)).is_err());
            });
        }
    });
    assert!(server.health.is_down());
    assert!(
        drive_alone(&server, MINUTE).is_err(),
        "it must fail at once"
    );
    assert!(started_count.load(Ordering::SeqCst) <= 1);
    drop(gate_guard);
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_that_wait_for_a_hanging_lookup_start_one_and_open_the_breaker() {
    let gate = Arc::default();
    let (server, started_count) = server_with_hanging_lookup(&gate);
    let gate_guard = gate.lock();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let drive = |_| tokio::spawn(drive_from_task(server.clone(), Duration::from_millis(60)));
        let calls: Vec<_> = (0..20).map(drive).collect();
        for call in calls {
            assert!(call.await.unwrap().is_err());
        }
    });
    assert!(server.health.is_down());
    assert!(drive_in_runtime(&server, MINUTE).is_err());
    assert!(started_count.load(Ordering::SeqCst) <= 1);
    drop(gate_guard);
}
