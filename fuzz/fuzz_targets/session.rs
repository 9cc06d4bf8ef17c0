//! A whole session, its bytes cut at random and the clock moving: the replies do not depend on the
//! cuts, nothing waits beyond its bound, nothing panics.

#![no_main]

use std::cell::RefCell;

use glasscache_server::{Config, InMemorySession, pieces};
use libfuzzer_sys::fuzz_target;

/// The longest unfinished command: a value below the upload size and its line.
const PENDING_MAX: usize = (64 << 10) + 4096;

fn server() -> InMemorySession {
    let config =
        Config { hash_seed: Some(1), memory_bytes: 8 << 20, debug: false, ..Config::default() };
    InMemorySession::new(config).expect("memory for a small store")
}

thread_local! {
    static REUSED_SERVERS: RefCell<Option<(InMemorySession, InMemorySession)>> = const { RefCell::new(None) };
}

fuzz_target!(|input: &[u8]| {
    let Some((lengths, stream)) = input.split_first_chunk::<4>() else { return };
    // Making a store takes long: two of equal history serve until they are closed.
    let (mut whole, mut cut) = REUSED_SERVERS.take().unwrap_or_else(|| (server(), server()));
    let expected = whole.feed(stream, 10);
    let mut replies = Vec::new();
    for piece in pieces(stream, lengths) {
        replies.extend(cut.feed(piece, 10));
        assert!(cut.pending_bytes() <= PENDING_MAX);
    }
    assert_eq!(whole.is_closed(), cut.is_closed());
    if !stream.windows(5).any(|word| word == b"stats" || word == b"dump ") {
        assert_eq!(replies, expected);
    }
    if !whole.is_closed() && whole.pending_bytes() == 0 {
        REUSED_SERVERS.set(Some((whole, cut)));
    }
});
