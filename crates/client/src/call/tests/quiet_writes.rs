//! Quiet writes: their connection, and replies to them that break the protocol.

use super::*;

/// A listener that replies to `mn` and `version`, and reports each line with the number of its connection.
fn reporting_listener() -> (SocketAddr, Receiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (reporter, lines) = channel();
    thread::spawn(move || {
        for (connection_number, stream) in listener.incoming().enumerate() {
            let (stream, reporter) = (stream.unwrap(), reporter.clone());
            thread::spawn(move || {
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    let reply = match line.as_str() {
                        "mn" => "MN\r\n",
                        "version" => "VERSION 1\r\n",
                        _ => "",
                    };
                    let _ = reporter.send((connection_number, line));
                    let _ = (&stream).write_all(reply.as_bytes());
                }
            });
        }
    });
    (address, lines)
}

#[test]
fn a_flush_of_an_empty_write_buffer_opens_no_connection() {
    let (address, accepted_count) = responding_listener();
    let (server, now) = (server_at(address), Instant::now());
    assert_eq!(server.flush_buffered_writes(now, now + MINUTE, &|| true), Ok(()));
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
    assert_eq!(line_with_key.map(|(connection_number, _)| connection_number), Some(0));
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
    let key = WireKey { bytes: b"k", is_base64: false };
    // As many as one request for acknowledgement is sent for; the fourth call waits for a reply to the first.
    let requests = vec![Request::Delete { key, noreply: true }; 1000];
    for _ in 0..4 {
        let now = Instant::now();
        let mut call = Call::new(server.clone(), &requests, now, now + MINUTE);
        assert_eq!(call.run(), Ok(CallEvent::Finished));
    }
    assert_eq!(server.faults.load(Ordering::Relaxed), 1);
}
