//! Quiet writes: their connection, and replies to them that break the protocol.

use super::*;

/// A peer that replies to `mn` and `version`, and reports each line with the number of its connection.
fn reporting_peer() -> (SocketAddr, Receiver<(usize, String)>) {
    let (reporter, lines) = channel();
    let peer = Peer::start_numbered(move |connection_number, mut connection| {
        connection.reply_to_lines(|line| {
            let _ = reporter.send((connection_number, line.to_owned()));
            reply_to(line)
        })
    });
    (peer.address(), lines)
}

#[test]
fn a_flush_of_an_empty_write_buffer_opens_no_connection() {
    let peer = responding_peer();
    let (server, now) = (server_at(peer.address()), Instant::now());
    assert_eq!(server.flush_buffered_writes(now, now + MINUTE, &|| true), Ok(()));
    assert_eq!(server.connection_counts(), (0, 0));
    assert_eq!(peer.accepted_connections(), 0);
}

#[test]
fn the_sending_thread_uses_the_connection_of_the_thread_that_wrote() {
    let (address, lines) = reporting_peer();
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
fn peer_that_breaks_the_protocol() -> SocketAddr {
    let peer = Peer::start(|mut connection| {
        let mut acknowledgement_requests = 0;
        connection.reply_to_lines(|line| {
            acknowledgement_requests += u32::from(line == "mn");
            match (line, acknowledgement_requests) {
                ("mn", 1) => "MN\r\n",
                ("mn", 4) => "WHAT\r\n",
                _ => "",
            }
        })
    });
    peer.address()
}

#[test]
fn a_fault_that_the_engine_has_counted_is_not_counted_again_at_the_end_of_the_call() {
    let address = peer_that_breaks_the_protocol();
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
