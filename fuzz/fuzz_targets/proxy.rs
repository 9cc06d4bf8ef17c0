//! Hostile bytes in random pieces through the scanners of the recording proxy: the same is found whatever the cut.

#![no_main]

use glasscache_record::proxy::{CommandScanner, ReplyEvent, ReplyScanner, CommandEvent};
use libfuzzer_sys::fuzz_target;

fn sent(pieces: &[&[u8]]) -> (Vec<CommandEvent>, bool) {
    let (mut scanner, mut found) = (CommandScanner::default(), Vec::new());
    for piece in pieces {
        scanner.scan(piece, &mut |event| found.push(event));
    }
    (found, scanner.is_out_of_sync())
}

fn received(pieces: &[&[u8]]) -> Vec<ReplyEvent> {
    let (mut scanner, mut found) = (ReplyScanner::default(), Vec::new());
    for piece in pieces {
        scanner.scan(piece, &mut |event| found.push(event));
    }
    found
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(cut) + 1).collect();
    assert_eq!(sent(&[bytes]), sent(&pieces));
    assert_eq!(received(&[bytes]), received(&pieces));
});
