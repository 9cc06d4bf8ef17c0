//! However the bytes of a stream are split, the replies are the same.

use glasscache_server::{Config, InMemorySession, pieces};
use proptest::collection::vec;
use proptest::prelude::*;

fn new_session() -> InMemorySession {
    InMemorySession::new(Config { hash_seed: Some(7), memory_bytes: 64 << 20, ..Config::default() })
        .unwrap()
}

/// One command, usually well formed.
fn any_command() -> impl Strategy<Value = Vec<u8>> {
    let key = "[a-d]{1,2}";
    prop_oneof![
        8 => vec(key, 1..20).prop_map(|keys| format!("get {}\r\n", keys.join(" ")).into_bytes()),
        3 => vec(key, 1..5).prop_map(|keys| format!("gats 100 {}\n", keys.join("  ")).into_bytes()),
        8 => (key, 0usize..200, any::<bool>()).prop_map(|(key, value_bytes, is_quiet)| {
            let noreply = if is_quiet { " noreply" } else { "" };
            let value = "v".repeat(value_bytes);
            format!("set {key} {value_bytes} 0 {value_bytes}{noreply}\r\n{value}\r\n").into_bytes()
        }),
        1 => (key, 60_000usize..140_000).prop_map(|(key, value_bytes)| {
            format!("ms {key} {value_bytes} c\r\n{}\r\n", "w".repeat(value_bytes)).into_bytes()
        }),
        4 => (key, "[vtcfskqlhu]( [TN]1[0-9])?").prop_map(|(key, flags)| {
            format!("mg {key} {flags} Oq1\r\n").into_bytes()
        }),
        2 => key.prop_map(|key| format!("append {key} 0 0 2\r\n11\r\n").into_bytes()),
        2 => key.prop_map(|key| format!("incr {key} 5\r\n").into_bytes()),
        2 => key.prop_map(|key| format!("delete {key}\r\n").into_bytes()),
        1 => "[a-z ]{0,12}".prop_map(|junk| format!("{junk}\r\n").into_bytes()),
        1 => (key, 1usize..50).prop_map(|(key, value_bytes)| {
            format!("set {key} -1 0 {value_bytes}\r\n{}\r\n", "x".repeat(value_bytes)).into_bytes()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_replies(
        commands in vec(any_command(), 1..40),
        lengths in vec(1usize..3000, 1..60),
    ) {
        let stream = commands.concat();
        let mut unsplit_session = new_session();
        let expected = unsplit_session.feed(&stream, 10);
        let mut split_session = new_session();
        let replies: Vec<u8> = pieces(&stream, &lengths).flat_map(|piece| split_session.feed(piece, 10)).collect();
        prop_assert_eq!(String::from_utf8_lossy(&replies), String::from_utf8_lossy(&expected));
        prop_assert_eq!(unsplit_session.is_closed(), split_session.is_closed());
    }
}
