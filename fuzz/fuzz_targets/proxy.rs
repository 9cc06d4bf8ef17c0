//! Hostile bytes in random pieces through the scanners of the recording proxy: the same is found whatever the cut.

#![no_main]

use glasscache_lab::record::proxy::{CommandEvent, CommandScanner, ReplyEvent, ReplyScanner};
use libfuzzer_sys::fuzz_target;

fn command_events(pieces: &[&[u8]]) -> (Vec<CommandEvent>, bool) {
    let (mut scanner, mut events) = (CommandScanner::default(), Vec::new());
    for piece in pieces {
        scanner.scan(piece, &mut |event| events.push(event));
    }
    (events, scanner.is_out_of_sync())
}

fn reply_events(pieces: &[&[u8]]) -> Vec<ReplyEvent> {
    let (mut scanner, mut events) = (ReplyScanner::default(), Vec::new());
    for piece in pieces {
        scanner.scan(piece, &mut |event| events.push(event));
    }
    events
}

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(cut) + 1).collect();
    assert_eq!(command_events(&[bytes]), command_events(&pieces));
    assert_eq!(reply_events(&[bytes]), reply_events(&pieces));
});
