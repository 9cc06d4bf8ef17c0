//! The session's rules, one a test: what a client says, byte by byte, and what it hears.

use glasscache_server::{Config, Replay};

fn server() -> Replay {
    Replay::new(Config {
        hash_seed: Some(1),
        ..Config::default()
    })
    .unwrap()
}

/// What a fresh server answers to `said`, at once.
fn answer(said: &[u8]) -> String {
    String::from_utf8_lossy(&server().feed(said, 10)).into_owned()
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
        let said = format!("{line}{value}\r\nget evil\r\n");
        let heard = answer(said.as_bytes());
        assert!(
            heard.starts_with("CLIENT_ERROR") && heard.ends_with("\r\nEND\r\n"),
            "{heard}"
        );
        assert_eq!(heard.matches("\r\n").count(), 2, "{heard}");
    }
}

#[test]
fn behind_a_length_that_cannot_be_nothing_is_executed() {
    let error = "CLIENT_ERROR bad command line format\r\n";
    let mut server = server();
    let said = b"set a 0 0 4294967295\r\nset evil 0 0 1\r\nx\r\nversion\r\n";
    let heard = server.feed(said, 10);
    assert_eq!(String::from_utf8_lossy(&heard), error.repeat(2));
    assert_eq!(answer(b"set a 0 0 99999999999\r\nhalf a line"), error);
}

#[test]
fn a_value_over_the_limit_is_refused_swallowed_and_removes_the_old_one() {
    let mut server = server();
    server.feed(b"set a 0 0 1\r\n1\r\n", 10);
    let mut said = b"set a 0 0 2000000\r\n".to_vec();
    said.resize(said.len() + 2_000_000, b'x');
    said.extend_from_slice(b"\r\nget a\r\n");
    let heard = server.feed(&said, 10);
    assert_eq!(heard, b"SERVER_ERROR object too large for cache\r\nEND\r\n");
}

#[test]
fn an_error_takes_the_place_of_a_whole_get() {
    let long = "k".repeat(251);
    let said = format!("set a 0 0 1\r\n1\r\nget a\r\nget a {long} a\r\nget a\r\n");
    let one = "VALUE a 0 1\r\n1\r\nEND\r\n";
    let error = "CLIENT_ERROR bad command line format\r\n";
    assert_eq!(
        answer(said.as_bytes()),
        format!("STORED\r\n{one}{error}{one}")
    );
}

#[test]
fn a_get_without_end_is_bounded_and_closes() {
    let mut endless = server();
    endless.feed(b"get ", 10);
    for _ in 0..100 {
        endless.feed(&[b'a'; 1000], 10);
    }
    assert!(endless.is_closed() && endless.pending_bytes() <= 4096);

    let mut many = server();
    many.feed(b"get ", 10);
    for _ in 0..2000 {
        many.feed(&b"0123456789 ".repeat(100), 10);
    }
    assert!(many.is_closed());
}

#[test]
fn eighty_thousand_keys_are_answered() {
    let mut server = server();
    server.feed(b"set key00000 0 0 1\r\n1\r\n", 10);
    let mut said = b"get".to_vec();
    for n in 0..80_000 {
        said.extend_from_slice(format!(" key{n:05}").as_bytes());
    }
    said.extend_from_slice(b"\r\nmn\r\n");
    assert_eq!(
        server.feed(&said, 10),
        b"VALUE key00000 0 1\r\n1\r\nEND\r\nMN\r\n"
    );
}

#[test]
fn a_bad_chunk_is_told_and_a_quiet_one_closes() {
    let heard = answer(b"set a 0 0 3\r\nabcXYget a\r\n");
    assert_eq!(heard, "CLIENT_ERROR bad data chunk\r\nEND\r\n");
    let mut quiet = server();
    assert_eq!(
        quiet.feed(b"set a 0 0 3 noreply\r\nabcdefgh\r\nget a\r\n", 10),
        b""
    );
    assert!(quiet.is_closed());
}

#[test]
fn time_is_what_the_caller_says() {
    let mut server = server();
    server.feed(b"set a 0 5 1\r\n1\r\nset b 0 -1 1\r\n1\r\n", 10);
    assert_eq!(
        server.feed(b"get a b\r\n", 14),
        b"VALUE a 0 1\r\n1\r\nEND\r\n"
    );
    assert_eq!(server.feed(b"get a b\r\n", 15), b"END\r\n");
}

#[test]
fn no_exptime_wraps_into_the_past_or_into_never() {
    let mut server = server();
    for exptime in [
        "2147483647",
        "2147483648",
        "4294967296",
        "9223372036854775807",
    ] {
        let said = format!("set a 0 {exptime} 1\r\n1\r\n");
        assert_eq!(server.feed(said.as_bytes(), 10), b"STORED\r\n");
        assert_eq!(
            server.feed(b"get a\r\n", 10),
            b"VALUE a 0 1\r\n1\r\nEND\r\n"
        );
        let heard = server.feed(b"mg a t\r\n", 10);
        assert!(
            heard.starts_with(b"HD t") && !heard.starts_with(b"HD t-1"),
            "{exptime}"
        );
    }
}

#[test]
fn quiet_meta_commands_say_only_what_matters() {
    let heard = answer(b"ms a 1 q\r\n1\r\nmg b v q\r\nmd a q\r\nmd a q\r\nmn\r\n");
    assert_eq!(heard, "NF\r\nMN\r\n");
}

#[test]
fn http_closes_before_its_body_is_read() {
    let mut server = server();
    let heard = server.feed(b"POST /x HTTP/1.1\r\nHost: a\r\n\r\nflush_all\r\n", 10);
    assert!(server.is_closed() && heard.is_empty());
}

#[test]
fn a_large_value_is_acknowledged_as_a_small_one_however_it_comes() {
    for flags in [
        "",
        "E9 c k O7 s b",
        "T60 F5 k b O1",
        "MA N0 s k O2 b",
        "ME b q",
        "MS I C5 c b",
    ] {
        let mut replies = Vec::new();
        for value_bytes in [10_usize, 200_000] {
            let line = format!("ms aGVsbG8= {value_bytes} {flags}\r\n");
            let sent = [line.as_bytes(), &b"x".repeat(value_bytes), b"\r\nmn\r\n"].concat();
            for piece_bytes in [sent.len(), 7000] {
                let mut server = server();
                let pieces = sent.chunks(piece_bytes);
                let reply: Vec<u8> = pieces.flat_map(|piece| server.feed(piece, 10)).collect();
                let size = format!("s{value_bytes}");
                replies.push(String::from_utf8(reply).unwrap().replace(&size, "s"));
            }
        }
        assert!(replies[0].ends_with("MN\r\n"), "{flags}: {replies:?}");
        assert!(
            replies.iter().all(|reply| *reply == replies[0]),
            "{flags}: {replies:?}"
        );
    }
}
