//! The generator against a scripted peer that sends its replies in pieces of every size.
//!
//! The tests of the command line use a real server; here replies are split in places where a server would not.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use glasscache_client::Login;
use glasscache_peers::Peer;
use glasscache_protocol::binary::{OpcodeAndOpaque, Status, StoredItem, opcode, write_error};
use glasscache_protocol::binary::{write_success, write_value_head};

use super::{Error, Fill, LoadPlan, Pace, ReadBack, Report, Size, ValueCheck, Values, Window};
use super::{format_key, run};
use crate::access::{Access, Credentials, Protocol};
use crate::proc::Meter;

/// Sends `reply` to the first request, `piece_bytes` bytes at a time; closes when the client closes.
fn start_scripted_peer(reply: Vec<u8>, piece_bytes: usize) -> SocketAddr {
    let peer = Peer::start(move |mut connection| {
        connection.read_chunk()?;
        for piece in reply.chunks(piece_bytes) {
            connection.write(piece)?;
            // Lets the reader receive this piece alone; correctness does not depend on it.
            std::thread::yield_now();
        }
        connection.wait_for_end()
    });
    peer.address()
}

fn format_text_reply(values: &Values, ids: &[u64]) -> Vec<u8> {
    let mut reply = Vec::new();
    for &id in ids {
        let value = values.of(id);
        reply.extend_from_slice(b"VALUE ");
        reply.extend_from_slice(&format_key(id));
        reply.extend_from_slice(format!(" 0 {}\r\n", value.len()).as_bytes());
        reply.extend_from_slice(value);
        reply.extend_from_slice(b"\r\n");
    }
    reply.extend_from_slice(b"END\r\n");
    reply
}

fn read_back(
    address: SocketAddr,
    values: &Values,
    protocol: Protocol,
    keys: u64,
) -> Result<(Report, ReadBack), Error> {
    let plan = LoadPlan {
        check: ValueCheck::Full,
        ..LoadPlan::new(Access { protocol, ..Access::from(address) })
    };
    let workloads = ReadBack::over(&(0..keys), values, 1, keys as usize);
    run(&plan, workloads, &Meter::None).map(|(report, mut workloads)| (report, workloads.remove(0)))
}

#[test]
fn parses_replies_split_anywhere() {
    let values = Values::new(Size::Fixed(150), 1);
    for piece_bytes in [1, 2, 3, 7, 64, 150, 191, 192, 193, 4096] {
        let address = start_scripted_peer(format_text_reply(&values, &[0, 2, 3]), piece_bytes);
        let (report, workload) = read_back(address, &values, Protocol::Text, 5).unwrap();
        assert_eq!(
            (workload.resident, workload.wrong, report.tally.misses),
            (3, 0, 2),
            "pieces of {piece_bytes}"
        );
        assert_eq!(report.tally.requests, 1);
    }
}

#[test]
fn parses_meta_replies_split_anywhere() {
    let values = Values::new(Size::Fixed(40), 1);
    let mut reply = b"VA 40\r\n".to_vec();
    reply.extend_from_slice(values.of(0));
    reply.extend_from_slice(b"\r\n");
    for piece_bytes in [1, 5, 8, 47, 48, 100] {
        let address = start_scripted_peer(reply.clone(), piece_bytes);
        let (report, workload) = read_back(address, &values, Protocol::Meta, 1).unwrap();
        assert_eq!(
            (workload.resident, workload.wrong, report.tally.hits),
            (1, 0, 1),
            "pieces of {piece_bytes}"
        );
    }
}

/// What a run finds of a value of which one bit has changed on the way: wrong values, bytes compared, bytes received.
fn find_changed_bit(
    check: ValueCheck,
    (value_bytes, changed_byte): (usize, usize),
    piece_bytes: usize,
) -> (u64, u64, u64) {
    let values = Values::new(Size::Fixed(value_bytes as u32), 1);
    let mut reply = format!("VA {value_bytes}\r\n").into_bytes();
    let value_start = reply.len();
    reply.extend_from_slice(values.of(0));
    reply[value_start + changed_byte] ^= 4;
    reply.extend_from_slice(b"\r\n");
    let address = start_scripted_peer(reply, piece_bytes);
    let access = Access { protocol: Protocol::Meta, ..Access::from(address) };
    let plan = LoadPlan { check, ..LoadPlan::new(access) };
    let workloads = ReadBack::over(&(0..1), &values, 1, 1);
    let (report, _) = run(&plan, workloads, &Meter::None).unwrap();
    (report.tally.wrong, report.tally.compared_bytes, report.tally.value_bytes)
}

#[test]
fn a_changed_bit_is_found_wherever_it_is() {
    for (value_bytes, piece_bytes) in [(1, 1), (65, 7), (100, 33), (5000, 4096), (65_536, 9999)] {
        let middle = value_bytes / 2;
        for changed_byte in [0, 15.min(value_bytes - 1), middle, value_bytes - 1] {
            for check in [ValueCheck::UpTo64KiB, ValueCheck::Full] {
                let (wrong, compared_bytes, received_bytes) =
                    find_changed_bit(check, (value_bytes, changed_byte), piece_bytes);
                assert_eq!(wrong, 1, "byte {changed_byte} of {value_bytes}");
                let expected_bytes = (value_bytes as u64, value_bytes as u64);
                assert_eq!((compared_bytes, received_bytes), expected_bytes);
            }
        }
    }
}

#[test]
fn of_the_ends_alone_the_bytes_compared_are_reported() {
    let ends = ValueCheck::Ends;
    assert_eq!(find_changed_bit(ends, (100, 50), 33), (0, 32, 100));
    assert_eq!(find_changed_bit(ends, (100, 15), 33), (1, 32, 100));
    assert_eq!(find_changed_bit(ends, (100, 84), 33), (1, 32, 100));
    let long = 65_537;
    assert_eq!(find_changed_bit(ValueCheck::UpTo64KiB, (long, 50), 4096), (0, 32, long as u64));
    assert_eq!(find_changed_bit(ValueCheck::Full, (long, 50), 4096), (1, long as u64, long as u64));
}

/// A response in binary to the request with this opaque: a value, or a success without one.
fn format_binary_response(opcode: u8, opaque: u32, value: Option<&[u8]>) -> Vec<u8> {
    let (mut reply, request_id) = (Vec::new(), OpcodeAndOpaque { opcode, opaque });
    match value {
        None => write_success(&mut reply, request_id, 0),
        Some(value) => {
            let item = StoredItem { key: b"", flags: 0, value_bytes: value.len() as u32, cas: 7 };
            write_value_head(&mut reply, request_id, &item);
            reply.extend_from_slice(value);
        }
    }
    reply
}

/// Replies to quiet gets of five keys, of which the second and the last are missed.
fn format_quiet_gets_reply(values: &Values) -> Vec<u8> {
    let mut reply = Vec::new();
    for id in [0, 2, 3] {
        reply.extend(format_binary_response(opcode::GET, id as u32, Some(values.of(id))));
    }
    reply.extend(format_binary_response(opcode::NOOP, 5, None));
    reply
}

#[test]
fn parses_replies_to_quiet_gets_split_anywhere() {
    for value_bytes in [0, 1, 150] {
        let values = Values::new(Size::Fixed(value_bytes), 1);
        for piece_bytes in [1, 2, 23, 24, 25, 28, 29, 178, 4096] {
            let address = start_scripted_peer(format_quiet_gets_reply(&values), piece_bytes);
            let (report, workload) = read_back(address, &values, Protocol::Binary, 5).unwrap();
            assert_eq!(
                (workload.resident, workload.wrong, report.tally.misses),
                (3, 0, 2),
                "{value_bytes} bytes in pieces of {piece_bytes}"
            );
            assert_eq!(report.tally.requests, 1);
        }
    }
}

#[test]
fn a_get_in_binary_has_one_reply() {
    let values = Values::new(Size::Fixed(40), 1);
    let hit = format_binary_response(opcode::GET, 0, Some(values.of(0)));
    let request_id = OpcodeAndOpaque { opcode: opcode::GET, opaque: 0 };
    let mut miss = Vec::new();
    write_error(&mut miss, request_id, Status::NotFound);
    for (reply, hits) in [(hit, 1), (miss, 0)] {
        for piece_bytes in [1, 27, 28, 4096] {
            let address = start_scripted_peer(reply.clone(), piece_bytes);
            let (report, workload) = read_back(address, &values, Protocol::Binary, 1).unwrap();
            let tally = &report.tally;
            assert_eq!((tally.hits, tally.misses), (hits, 1 - hits));
            assert_eq!((workload.resident, tally.requests), (hits, 1));
        }
    }
}

#[test]
fn the_requests_in_binary_are_those_of_clients() {
    let values = Values::new(Size::Fixed(3), 1);
    let reply = format_quiet_gets_reply(&values);
    let (sender, received) = channel();
    let peer = Peer::start(move |mut connection| {
        // Five keys of 20 bytes and a noop.
        sender.send(connection.read_exactly(5 * 44 + 24)?).unwrap();
        connection.write(&reply)
    });
    read_back(peer.address(), &values, Protocol::Binary, 5).unwrap();
    let requests = received.recv().unwrap();
    let (gets, noop) = requests.split_at(5 * 44);
    for (opaque, get) in gets.chunks(44).enumerate() {
        assert_eq!(get[..12], *b"\x80\x09\0\x14\0\0\0\0\0\0\0\x14");
        assert_eq!(get[12..16], (opaque as u32).to_be_bytes());
        assert_eq!(get[24..], format_key(opaque as u64));
    }
    assert_eq!(noop, b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\0");
}

#[test]
fn a_reply_in_binary_that_does_not_match_its_request_ends_the_run() {
    let values = Values::new(Size::Fixed(50), 1);
    let value = Some(values.of(1));
    let mut refusal = Vec::new();
    let request_id = OpcodeAndOpaque { opcode: opcode::GET, opaque: 0 };
    write_error(&mut refusal, request_id, Status::AuthFailure);
    for (keys, reply, reason) in [
        // Of another request.
        (1, format_binary_response(opcode::GET, 1, value), "opaque 1"),
        (3, format_binary_response(opcode::GET, 3, value), "opaque 3"),
        // Of another kind.
        (1, format_binary_response(opcode::NOOP, 0, None), "opcode 0x0a"),
        (1, format_binary_response(opcode::SET, 0, None), "opcode 0x01"),
        // An end that is not that of these gets.
        (3, format_binary_response(opcode::NOOP, 2, None), "opaque 2"),
        (1, refusal, "Auth failure."),
        (1, b"END\r\n".to_vec(), "0x81"),
    ] {
        let result = read_back(start_scripted_peer(reply, 4096), &values, Protocol::Binary, keys);
        let message = result.map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn sets_in_binary_that_are_refused_are_counted_and_quoted() {
    let values = Values::new(Size::Fixed(10), 1);
    let request_id = OpcodeAndOpaque { opcode: opcode::SET, opaque: 0 };
    let mut reply = Vec::new();
    write_error(&mut reply, request_id, Status::OutOfMemory);
    reply.extend(format_binary_response(opcode::SET, 1, None));
    let plan = LoadPlan {
        depth: 2,
        ..LoadPlan::new(Access {
            protocol: Protocol::Binary,
            ..Access::from(start_scripted_peer(reply, 30))
        })
    };
    let (report, workloads) = run(&plan, Fill::over(&(0..2), &values, 1), &Meter::None).unwrap();
    assert_eq!((workloads[0].stored, workloads[0].refused), (1, 1));
    assert_eq!(report.tally.first_refusal.as_deref(), Some("Out of memory"));
}

#[test]
fn one_changed_byte_is_a_wrong_value() {
    let values = Values::new(Size::Fixed(1000), 1);
    let mut reply = format_text_reply(&values, &[0]);
    reply[500] ^= 1;
    let (report, workload) =
        read_back(start_scripted_peer(reply, 4096), &values, Protocol::Text, 1).unwrap();
    assert_eq!((workload.resident, workload.wrong), (0, 1));
    assert!(report.tally.first_difference.is_some());
}

#[test]
fn a_value_of_another_length_is_wrong() {
    let (values, longer) = (Values::new(Size::Fixed(50), 1), Values::new(Size::Fixed(51), 1));
    let address = start_scripted_peer(format_text_reply(&longer, &[0]), 4096);
    let (_, workload) = read_back(address, &values, Protocol::Text, 1).unwrap();
    assert_eq!((workload.resident, workload.wrong), (0, 1));
}

#[test]
fn a_reply_without_a_request_ends_the_run() {
    let values = Values::new(Size::Fixed(50), 1);
    let address = start_scripted_peer(b"STORED\r\n".to_vec(), 4096);
    let result = read_back(address, &values, Protocol::Text, 1);
    assert!(matches!(result, Err(Error::Unexpected(_))));
}

#[test]
fn a_server_that_stops_replying_ends_the_run() {
    let values = Values::new(Size::Fixed(50), 1);
    for pace in [Pace::Closed, Pace::Open(1000.0)] {
        let plan = LoadPlan {
            pace,
            silence_max: Duration::from_millis(50),
            ..LoadPlan::new(start_scripted_peer(b"END".to_vec(), 4096))
        };
        let workloads = ReadBack::over(&(0..1), &values, 1, 1);
        let result = run(&plan, workloads, &Meter::None);
        assert!(matches!(result, Err(Error::Silent(_))), "{pace:?}");
    }
}

#[test]
fn a_partial_report_has_what_was_counted_before_a_failure() {
    let values = Values::new(Size::Fixed(50), 1);
    let mut replies = format_text_reply(&values, &[0]);
    replies.extend_from_slice(b"STORED\r\n");
    let plan = LoadPlan {
        depth: 2,
        returns_partial_report: true,
        ..LoadPlan::new(start_scripted_peer(replies, 4096))
    };
    let workloads = ReadBack::over(&(0..2), &values, 1, 1);
    let (report, workloads) = run(&plan, workloads, &Meter::None).unwrap();
    assert_eq!((report.tally.requests, workloads[0].resident), (1, 1));
    assert!(matches!(report.complete(), Err(Error::Unexpected(_))));
}

#[test]
fn refused_sets_are_counted_and_quoted() {
    let values = Values::new(Size::Fixed(10), 1);
    let address = start_scripted_peer(
        b"SERVER_ERROR out of memory storing object\r\nSTORED\r\n".to_vec(),
        4096,
    );
    let plan = LoadPlan { depth: 2, ..LoadPlan::new(address) };
    let (report, workloads) = run(&plan, Fill::over(&(0..2), &values, 1), &Meter::None).unwrap();
    assert_eq!((workloads[0].stored, workloads[0].refused), (1, 1));
    assert_eq!(
        report.tally.first_refusal.as_deref(),
        Some("SERVER_ERROR out of memory storing object")
    );
}

#[test]
fn no_request_is_sent_before_every_connection_has_logged_in() {
    let both_begin = Barrier::new(2);
    let have_all_logged_in = AtomicBool::new(false);
    let early_bytes = Arc::new(AtomicUsize::new(0));
    let early_bytes_of_peer = early_bytes.clone();
    let peer = Peer::start_numbered(move |number, mut connection| {
        connection.read_chunk()?;
        both_begin.wait();
        if number == 1 {
            // A generator that starts by the clock sends a request on the first connection meanwhile.
            std::thread::sleep(Duration::from_millis(300));
            have_all_logged_in.store(true, Ordering::SeqCst);
        }
        loop {
            connection.write("STORED\r\n")?;
            let request = connection.read_chunk()?;
            if !have_all_logged_in.load(Ordering::SeqCst) {
                early_bytes_of_peer.fetch_add(request.len(), Ordering::SeqCst);
            }
        }
    });
    let plan = LoadPlan {
        connections: 2,
        window: Window::Timed { warm_up: Duration::ZERO, measured_time: Duration::from_millis(1) },
        target: with_login(&peer),
        ..LoadPlan::new(peer.address())
    };
    let values = Values::new(Size::Fixed(10), 1);
    let (report, _) = run(&plan, Fill::over(&(0..1000), &values, 2), &Meter::None).unwrap();
    assert_eq!(early_bytes.load(Ordering::SeqCst), 0);
    assert!(report.tally.requests <= 1000);
}

#[test]
fn a_thread_that_cannot_connect_ends_the_run_with_its_error() {
    let peer = Peer::start_numbered(|number, mut connection| {
        if number == 1 {
            return Ok(());
        }
        loop {
            connection.read_chunk()?;
            connection.write("STORED\r\n")?;
        }
    });
    let plan =
        LoadPlan { connections: 2, target: with_login(&peer), ..LoadPlan::new(peer.address()) };
    let values = Values::new(Size::Fixed(10), 1);
    let result = run(&plan, Fill::over(&(0..10), &values, 2), &Meter::None);
    assert!(matches!(result, Err(Error::Io(_))));
}

/// A server on which each connection logs in.
fn with_login(peer: &Peer) -> Access {
    Access {
        credentials: Credentials { login: Some(Login::new("user", "x")), tls: None },
        ..Access::from(peer.address())
    }
}
