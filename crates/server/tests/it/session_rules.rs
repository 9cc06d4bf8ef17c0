//! The session's rules, one per test: the bytes that a client sends and the bytes that it receives.

use glasscache_server::{Config, InMemorySession};

fn new_server() -> InMemorySession {
    InMemorySession::new(Config { hash_seed: Some(1), ..Config::default() }).unwrap()
}

/// The reply of a fresh server to `request`, sent at once.
fn reply_to(request: &[u8]) -> String {
    String::from_utf8_lossy(&new_server().feed(request, 10)).into_owned()
}

#[test]
fn a_refused_set_never_runs_its_value_as_commands() {
    let value = "set evil 0 0 1\r\nx\r\nflush_all\r\n";
    for head in ["set k -1 0", "set k 4294967296 0", "set k 0 x", "ms k"] {
        let line = if head == "ms k" {
            format!("ms k {} T\r\n", value.len())
        } else {
            format!("{head} {}\r\n", value.len())
        };
        let request = format!("{line}{value}\r\nget evil\r\n");
        let replies = reply_to(request.as_bytes());
        assert!(
            replies.starts_with("CLIENT_ERROR") && replies.ends_with("\r\nEND\r\n"),
            "{replies}"
        );
        assert_eq!(replies.matches("\r\n").count(), 2, "{replies}");
    }
}

#[test]
fn nothing_is_executed_after_an_invalid_value_length() {
    let error_reply = "CLIENT_ERROR bad command line format\r\n";
    let mut server = new_server();
    let request = b"set a 0 0 4294967295\r\nset evil 0 0 1\r\nx\r\nversion\r\n";
    let replies = server.feed(request, 10);
    assert_eq!(String::from_utf8_lossy(&replies), error_reply.repeat(2));
    assert_eq!(reply_to(b"set a 0 0 99999999999\r\nhalf a line"), error_reply);
}

#[test]
fn a_value_over_the_limit_is_refused_swallowed_and_removes_the_old_one() {
    let mut server = new_server();
    server.feed(b"set a 0 0 1\r\n1\r\n", 10);
    let mut request = b"set a 0 0 2000000\r\n".to_vec();
    request.resize(request.len() + 2_000_000, b'x');
    request.extend_from_slice(b"\r\nget a\r\n");
    let replies = server.feed(&request, 10);
    assert_eq!(replies, b"SERVER_ERROR object too large for cache\r\nEND\r\n");
}

#[test]
fn an_error_replaces_the_whole_reply_of_a_get() {
    let long_key = "k".repeat(251);
    let request = format!("set a 0 0 1\r\n1\r\nget a\r\nget a {long_key} a\r\nget a\r\n");
    let hit_reply = "VALUE a 0 1\r\n1\r\nEND\r\n";
    let error_reply = "CLIENT_ERROR bad command line format\r\n";
    assert_eq!(
        reply_to(request.as_bytes()),
        format!("STORED\r\n{hit_reply}{error_reply}{hit_reply}")
    );
}

#[test]
fn a_get_without_end_is_bounded_and_closes() {
    let mut endless = new_server();
    endless.feed(b"get ", 10);
    for _ in 0..100 {
        endless.feed(&[b'a'; 1000], 10);
    }
    assert!(endless.is_closed() && endless.pending_bytes() <= 4096);

    let mut many = new_server();
    many.feed(b"get ", 10);
    for _ in 0..2000 {
        many.feed(&b"0123456789 ".repeat(100), 10);
    }
    assert!(many.is_closed());
}

#[test]
fn eighty_thousand_keys_get_one_reply() {
    let mut server = new_server();
    server.feed(b"set key00000 0 0 1\r\n1\r\n", 10);
    let mut request = b"get".to_vec();
    for number in 0..80_000 {
        request.extend_from_slice(format!(" key{number:05}").as_bytes());
    }
    request.extend_from_slice(b"\r\nmn\r\n");
    assert_eq!(server.feed(&request, 10), b"VALUE key00000 0 1\r\n1\r\nEND\r\nMN\r\n");
}

#[test]
fn a_bad_chunk_gets_an_error_and_with_noreply_closes() {
    let replies = reply_to(b"set a 0 0 3\r\nabcXYget a\r\n");
    assert_eq!(replies, "CLIENT_ERROR bad data chunk\r\nEND\r\n");
    let mut quiet = new_server();
    assert_eq!(quiet.feed(b"set a 0 0 3 noreply\r\nabcdefgh\r\nget a\r\n", 10), b"");
    assert!(quiet.is_closed());
}

#[test]
fn an_item_expires_at_the_second_that_the_caller_passes() {
    let mut server = new_server();
    server.feed(b"set a 0 5 1\r\n1\r\nset b 0 -1 1\r\n1\r\n", 10);
    assert_eq!(server.feed(b"get a b\r\n", 14), b"VALUE a 0 1\r\n1\r\nEND\r\n");
    assert_eq!(server.feed(b"get a b\r\n", 15), b"END\r\n");
}

#[test]
fn no_exptime_wraps_into_the_past_or_to_never() {
    let mut server = new_server();
    for exptime in ["2147483647", "2147483648", "4294967296", "9223372036854775807"] {
        let request = format!("set a 0 {exptime} 1\r\n1\r\n");
        assert_eq!(server.feed(request.as_bytes(), 10), b"STORED\r\n");
        assert_eq!(server.feed(b"get a\r\n", 10), b"VALUE a 0 1\r\n1\r\nEND\r\n");
        let replies = server.feed(b"mg a t\r\n", 10);
        assert!(replies.starts_with(b"HD t") && !replies.starts_with(b"HD t-1"), "{exptime}");
    }
}

#[test]
fn quiet_meta_commands_reply_only_to_unusual_outcomes() {
    let replies = reply_to(b"ms a 1 q\r\n1\r\nmg b v q\r\nmd a q\r\nmd a q\r\nmn\r\n");
    assert_eq!(replies, "NF\r\nMN\r\n");
}

#[test]
fn http_closes_before_its_body_is_read() {
    let mut server = new_server();
    let replies = server.feed(b"POST /x HTTP/1.1\r\nHost: a\r\n\r\nflush_all\r\n", 10);
    assert!(server.is_closed() && replies.is_empty());
}

#[test]
fn a_large_value_gets_the_same_reply_as_a_small_one() {
    for flags in ["", "E9 c k O7 s b", "T60 F5 k b O1", "MA N0 s k O2 b", "ME b q", "MS I C5 c b"] {
        let mut replies = Vec::new();
        for value_bytes in [10_usize, 200_000] {
            let line = format!("ms aGVsbG8= {value_bytes} {flags}\r\n");
            let request = [line.as_bytes(), &b"x".repeat(value_bytes), b"\r\nmn\r\n"].concat();
            for piece_bytes in [request.len(), 7000] {
                let mut server = new_server();
                let pieces = request.chunks(piece_bytes);
                let reply: Vec<u8> = pieces.flat_map(|piece| server.feed(piece, 10)).collect();
                let size = format!("s{value_bytes}");
                replies.push(String::from_utf8(reply).unwrap().replace(&size, "s"));
            }
        }
        assert!(replies[0].ends_with("MN\r\n"), "{flags}: {replies:?}");
        assert!(replies.iter().all(|reply| *reply == replies[0]), "{flags}: {replies:?}");
    }
}
