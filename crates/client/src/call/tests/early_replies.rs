//! Replies that come before all was sent, and the deadline of each.

use super::*;

/// A server that knows meta commands, reads nothing after the first, and sends refusals without end; how many bytes it
/// could write.
fn listener_that_sends_refusals_without_end() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let written_bytes = Arc::new(AtomicUsize::new(0));
    let listener_written_bytes = written_bytes.clone();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"MN\r\n").unwrap();
        let refusals = b"NS\r\n".repeat(1000);
        while let Ok(chunk_bytes) = stream.write(&refusals) {
            listener_written_bytes.fetch_add(chunk_bytes, Ordering::SeqCst);
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
    let requests =
        [Request::StoreMany { mode: StoreMode::Set, items: &items, exptime: 0, quiet: false }];
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
    let (step_permit, step_permits) = channel();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_exact(&mut [0; 4]).unwrap();
        stream.write_all(b"MN\r\n").unwrap();
        stream.read_exact(&mut [0; 1]).unwrap();
        step_permits.recv().unwrap();
        let refusal = b"SERVER_ERROR object too large for cache\r\n";
        stream.write_all(refusal).unwrap();
        let _ = step_permits.recv();
    });
    (address, step_permit)
}

/// Waits until the connection of a call is closed by its peer.
fn wait_until_closed(call: &Call<'_>) {
    let (fd, _) = call.poll_interest().unwrap();
    wait(&mut [PollFd::from_borrowed_fd(fd, PollFlags::empty())], call.clock.deadline()).unwrap();
}

#[test]
fn a_refusal_that_comes_before_the_value_is_sent_is_returned_though_the_server_closes_then() {
    for reply_is_read_while_sending in [true, false] {
        let (address, step_permit) = listener_that_refuses_a_store();
        let server = server_at(address);
        let body = vec![b'x'; 64 << 20]; // more than the buffers of two sockets hold
        let requests = [store_request("k", &body)];
        let now = Instant::now();
        let mut call = Call::new(server.clone(), &requests, now, now + MINUTE);
        while call.stage != CallStage::Sending {
            assert_eq!(call.advance(WaitLimit::NoWait), Ok(CallEvent::Waiting));
        }
        step_permit.send(()).unwrap();
        while reply_is_read_while_sending && call.early_reply.is_none() {
            assert_eq!(call.advance(WaitLimit::NoWait), Ok(CallEvent::Waiting));
        }
        drop(step_permit);
        wait_until_closed(&call);
        let run_result = call.run();
        assert!(
            matches!(&run_result, Ok(CallEvent::Reply(Reply::Refused(_)))),
            "{reply_is_read_while_sending}: {run_result:?}"
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
        let mut input = BufReader::new(&stream);
        assert_eq!(read_line(&mut input), "mn");
        (&stream).write_all(b"MN\r\n").unwrap();
        let line = read_line(&mut input);
        let opaque = line.split(' ').find(|word| word.starts_with('O')).unwrap();
        write!(&stream, "HD {opaque}\r\n").unwrap();
        let _ = close_guard_dropped.recv();
    });
    (address, close_guard)
}

#[test]
fn replies_that_came_before_all_was_sent_are_returned_though_the_call_then_fails() {
    let body = vec![b'x'; 64 << 20]; // more than the buffers of two sockets hold
    let stores = [store_request("a", b"1"), store_request("b", &body)];
    for server_closes in [true, false] {
        let (address, close_guard) = listener_that_accepts_one_store();
        let server = server_at(address);
        let now = Instant::now();
        let time_allowed = if server_closes { MINUTE } else { Duration::from_secs(2) };
        let mut call = Call::new(server, &stores, now, now + time_allowed);
        while call.early_reply.is_none() {
            assert_eq!(call.advance(WaitLimit::NoWait), Ok(CallEvent::Waiting));
        }
        if server_closes {
            drop(close_guard);
            wait_until_closed(&call);
        }
        let run_result = call.run();
        assert!(matches!(run_result, Ok(CallEvent::Reply(_))), "{run_result:?}");
        call.release_reply();
        match call.run() {
            Err(Error::Unavailable(..)) => assert!(server_closes),
            Err(Error::Deadline(..)) => assert!(!server_closes),
            run_result => panic!("{run_result:?}"),
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
        let run_result = call.run();
        assert!(matches!(run_result, Err(Error::Deadline(_))), "{run_result:?}");
    }
}

/// A server that knows meta commands and takes two stores. It replies to the first at once and reports when it has
/// received all of the second.
fn listener_that_accepts_two_stores() -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (all_received_sender, all_received) = channel();
    thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let mut input = BufReader::new(&stream);
        assert_eq!(read_line(&mut input), "mn");
        (&stream).write_all(b"MN\r\n").unwrap();
        for is_last in [false, true] {
            let line = read_line(&mut input);
            let words: Vec<_> = line.split(' ').collect();
            let value_bytes = words[2].trim_start_matches('S').parse::<u64>().unwrap();
            let mut value_reader = (&mut input).take(value_bytes + 2);
            io::copy(&mut value_reader, &mut io::sink()).unwrap();
            if is_last {
                all_received_sender.send(()).unwrap();
            }
            let opaque = words.iter().find(|word| word.starts_with('O')).unwrap();
            write!(&stream, "HD {opaque}\r\n").unwrap();
        }
        let _ = input.read(&mut [0; 1]);
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
        for (index, line) in BufReader::new(&stream).lines().map_while(Result::ok).enumerate() {
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
    let stores = [store_request("a", b"1"), store_request("b", &body)];
    let version = [Request::Version];
    let now = Instant::now();
    let call_to = |address, requests| {
        let server = server_at(address);
        (Call::new(server, requests, now, now + MINUTE), None)
    };
    let mut calls = [call_to(stores_address, &stores[..]), call_to(waiting_address, &version)];
    while !receive_first_replies(&mut calls) {}
    for (call, error) in &mut calls {
        assert_eq!(*error, None);
        assert!(call.take_unread_reply().is_some());
        call.release_reply();
    }
    let [(call, _), _] = &mut calls;
    assert!(matches!(call.run(), Ok(CallEvent::Reply(_))));
}
