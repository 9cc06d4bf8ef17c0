//! Calls to a server whose name resolves to several addresses, or to none.

use super::*;

/// A listener whose queue of connections is full: it neither takes nor refuses another one.
struct FullListener {
    listener: TcpListener,
    queued_streams: Vec<TcpStream>,
}

impl FullListener {
    fn new() -> Self {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&fd, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listen(&fd, 0).unwrap();
        let listener = TcpListener::from(fd);
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
        let queued_streams: Vec<_> = std::iter::from_fn(connect).take(8).collect();
        assert!(queued_streams.len() < 8, "the queue is never full");
        Self { listener, queued_streams }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Takes connections from now on.
    fn take_connections(&self) {
        for _ in &self.queued_streams {
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
        for &(driver_name, drive) in DRIVERS {
            scope.spawn(move || {
                let full_listener = FullListener::new();
                let responding_peer = responding_peer();
                let addresses = vec![full_listener.address(), responding_peer.address()];
                let server = server_resolved_by(move |_, _| Ok(addresses.clone()));
                assert_eq!(drive(&server, Duration::from_secs(4)), Ok(()), "{driver_name}");
                assert!(!server.health.is_down(), "{driver_name}");
                assert_eq!(responding_peer.accepted_connections(), 1, "{driver_name}");

                full_listener.take_connections();
                server.pool.close_idle();
                assert_eq!(drive(&server, MINUTE), Ok(()), "{driver_name}");
                assert_eq!(responding_peer.accepted_connections(), 2, "{driver_name}");
                assert!(!full_listener.has_new_connection(), "{driver_name}");
            });
        }
    });
}

#[test]
fn a_call_tries_the_next_address_after_a_delayed_refusal() {
    for &(driver_name, drive) in DRIVERS {
        let addresses = vec![refusing_address(), refusing_address(), responding_peer().address()];
        let server = server_resolved_by(move |_, _| Ok(addresses.clone()));
        assert_eq!(drive(&server, MINUTE), Ok(()), "{driver_name}");
        assert!(!server.health.is_down(), "{driver_name}");
    }
}

#[test]
fn a_server_all_of_whose_addresses_refuse_is_down() {
    for &(driver_name, drive) in DRIVERS {
        let server = server_resolved_by(|_, _| Ok(vec![refusing_address(), refusing_address()]));
        let result = drive(&server, MINUTE);
        assert!(matches!(result, Err(Error::Unavailable(..))), "{driver_name}");
        assert!(server.health.is_down(), "{driver_name}");
    }
}

#[test]
fn the_probe_finds_a_server_at_its_second_address() {
    let addresses = Arc::new(Mutex::new(vec![refusing_address()]));
    let current_addresses = addresses.clone();
    let server = server_resolved_by(move |_, _| Ok(current_addresses.lock().unwrap().clone()));
    assert!(drive_alone(&server, MINUTE).is_err() && server.health.is_down());
    addresses.lock().unwrap().push(responding_peer().address()); // seen when the last lookup is out of date
    let deadline = Instant::now() + MINUTE;
    while server.health.is_down() {
        assert!(Instant::now() < deadline, "never used again");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A server whose name's lookups end when the guard of the gate is dropped, and how many were started.
fn server_with_hanging_lookup(gate: &Arc<Mutex<()>>) -> (Arc<Server>, Arc<AtomicUsize>) {
    let started_count = Arc::new(AtomicUsize::new(0));
    let (gate, lookup_started_count) = (gate.clone(), started_count.clone());
    let server = server_resolved_by(move |_, _| {
        lookup_started_count.fetch_add(1, Ordering::SeqCst);
        drop(gate.lock());
        Ok(Vec::new())
    });
    (server, started_count)
}

#[test]
fn one_call_that_waits_for_a_hanging_lookup_opens_the_breaker_unless_it_was_allowed_too_little() {
    for &(driver_name, drive) in DRIVERS {
        let gate = Arc::default();
        let (server, _) = server_with_hanging_lookup(&gate);
        let gate_guard = gate.lock();
        assert!(drive(&server, Duration::from_millis(10)).is_err(), "{driver_name}");
        assert!(!server.health.is_down(), "{driver_name}");
        let result = drive(&server, Duration::from_millis(60));
        assert!(matches!(result, Err(Error::Deadline(_))), "{driver_name}");
        assert!(server.health.is_down(), "{driver_name}");
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
    assert!(drive_alone(&server, MINUTE).is_err(), "it must fail at once");
    assert!(started_count.load(Ordering::SeqCst) <= 1);
    drop(gate_guard);
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_that_wait_for_a_hanging_lookup_start_one_and_open_the_breaker() {
    let gate = Arc::default();
    let (server, started_count) = server_with_hanging_lookup(&gate);
    let gate_guard = gate.lock();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let spawn_call =
            |_| tokio::spawn(drive_from_task(server.clone(), Duration::from_millis(60)));
        let calls: Vec<_> = (0..20).map(spawn_call).collect();
        for call in calls {
            assert!(call.await.unwrap().is_err());
        }
    });
    assert!(server.health.is_down());
    assert!(drive_in_runtime(&server, MINUTE).is_err());
    assert!(started_count.load(Ordering::SeqCst) <= 1);
    drop(gate_guard);
}
