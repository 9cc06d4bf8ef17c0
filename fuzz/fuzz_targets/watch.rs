//! Lines of `watch` from a hostile server, in pieces: they mean the same whatever the cut, and name no key twice as long.

#![no_main]

use std::time::Instant;

use glasscache_client::near::watch::{WatchConversation, WatchEvent};
use libfuzzer_sys::fuzz_target;

/// What was received, and whether the stream was refused.
fn events_of(bytes: &[u8], piece_bytes: usize, now: Instant) -> (Vec<WatchEvent>, bool) {
    let mut conversation = WatchConversation::new(b"a:", None);
    let mut events = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        if conversation.receive(piece, now, &mut |event| events.push(event)).is_err() {
            return (events, true);
        }
        conversation.take_output();
    }
    (events, false)
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (is_admitted, piece_bytes, bytes) = input;
    let bytes = if is_admitted { [b"OK\r\n", bytes].concat() } else { bytes.to_vec() };
    let now = Instant::now();
    let (pieces, is_refused) = events_of(&bytes, usize::from(piece_bytes).max(1), now);
    for event in &pieces {
        if let WatchEvent::Changed(key) = event {
            assert!(key.len() <= bytes.len());
        }
    }
    // A line is refused as soon as it is too long, which depends on the cut.
    if !is_refused {
        let (whole, is_refused) = events_of(&bytes, bytes.len().max(1), now);
        assert!(is_refused || whole == pieces);
    }
});
