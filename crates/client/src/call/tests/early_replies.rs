//! Replies that come before all was sent, and the deadline of each.

use super::*;

/// A server that knows meta commands, reads nothing after the first, and sends refusals without end; how many bytes it
/// could write.
fn peer_that_sends_refusals_without_end() -> (SocketAddr, Arc<AtomicUsize>) {
    let written_bytes = Arc::new(AtomicUsize::new(0));
    let written_bytes_of_peer = written_bytes.clone();
    let peer = Peer::start(move |mut connection| {
        accept_meta(&mut connection)?;
        let refusals = "NS\r\n".repeat(1000);
        loop {
            connection.write(&refusals)?;
            written_bytes_of_peer.fetch_add(refusals.len(), Ordering::SeqCst);
        }
    });
    (peer.address(), written_bytes)
}

#[test]
fn replies_without_end_to_requests_that_are_not_read_are_refused_before_the_deadline() {
    const SOCKET_BUFFERS_BYTES_MAX: usize = 32 << 20;
    let (address, written_bytes) = peer_that_sends_refusals_without_end();
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

/// A server that knows meta commands, sends `reply` to the line after the first when the test allows it, reads nothing
/// else, and ends the connection when the test allows that.
fn peer_with_an_early_reply(reply: fn(&str) -> String) -> (SocketAddr, Sender<()>) {
    let (step_permit, step_permits) = channel();
    let step_permits = Mutex::new(step_permits);
    let peer = Peer::start(move |mut connection| {
        accept_meta(&mut connection)?;
        let line = connection.read_line()?;
        let step_permits = step_permits.lock().unwrap();
        step_permits.recv().unwrap();
        connection.write(reply(&line))?;
        let _ = step_permits.recv();
        Ok(())
    });
    (peer.address(), step_permit)
}

/// The reply to a store that succeeds.
fn stored(line: &str) -> String {
    let opaque = line.split(' ').find(|word| word.starts_with('O')).unwrap();
    format!("HD {opaque}\r\n")
}

/// Waits until the connection of a call is closed by its peer.
fn wait_until_closed(call: &Call<'_>) {
    let (fd, _) = call.poll_interest().unwrap();
    wait(&mut [PollFd::from_borrowed_fd(fd, PollFlags::empty())], call.clock.deadline()).unwrap();
}

#[test]
fn a_refusal_that_comes_before_the_value_is_sent_is_returned_though_the_server_closes_then() {
    for reply_is_read_while_sending in [true, false] {
        let refusal = |_: &str| "SERVER_ERROR object too large for cache\r\n".to_owned();
        let (address, step_permit) = peer_with_an_early_reply(refusal);
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

#[test]
fn replies_that_came_before_all_was_sent_are_returned_though_the_call_then_fails() {
    let body = vec![b'x'; 64 << 20]; // more than the buffers of two sockets hold
    let stores = [store_request("a", b"1"), store_request("b", &body)];
    for server_closes in [true, false] {
        let (address, step_permit) = peer_with_an_early_reply(stored);
        step_permit.send(()).unwrap();
        let server = server_at(address);
        let now = Instant::now();
        let time_allowed = if server_closes { MINUTE } else { Duration::from_secs(2) };
        let mut call = Call::new(server, &stores, now, now + time_allowed);
        while call.early_reply.is_none() {
            assert_eq!(call.advance(WaitLimit::NoWait), Ok(CallEvent::Waiting));
        }
        if server_closes {
            drop(step_permit);
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
    let address = peer_that_waits_for(reply_permits);
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
fn peer_that_accepts_two_stores() -> (SocketAddr, Receiver<()>) {
    let (all_received_sender, all_received) = channel();
    let peer = Peer::start(move |mut connection| {
        accept_meta(&mut connection)?;
        for is_last in [false, true] {
            let line = connection.read_line()?;
            let value_bytes = line.split(' ').nth(2).unwrap().trim_start_matches('S');
            connection.read_exactly(value_bytes.parse::<usize>().unwrap() + 2)?;
            if is_last {
                all_received_sender.send(()).unwrap();
            }
            connection.write(stored(&line))?;
        }
        connection.wait_for_end()
    });
    (peer.address(), all_received)
}

/// A server that knows meta commands and replies to the next request when the test allows it.
fn peer_that_waits_for(reply_permits: Receiver<()>) -> SocketAddr {
    let reply_permits = Mutex::new(reply_permits);
    let peer = Peer::start(move |mut connection| {
        accept_meta(&mut connection)?;
        connection.reply_to_lines(|line| {
            reply_permits.lock().unwrap().recv().unwrap();
            reply_to(line)
        })
    });
    peer.address()
}

#[test]
fn a_call_with_an_early_reply_continues_to_send_while_others_wait() {
    let body = vec![b'x'; 64 << 20]; // more than the buffers of two sockets hold
    let (stores_address, all_received) = peer_that_accepts_two_stores();
    let waiting_address = peer_that_waits_for(all_received);
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
