//! Hostile bytes in random pieces through the scanners of the recording proxy: the same is found whatever the cut.

#![no_main]

use glasscache_lab::record::proxy::scan_in_pieces;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&cut, bytes)) = input.split_first() else { return };
    assert_eq!(scan_in_pieces(bytes, bytes.len()), scan_in_pieces(bytes, usize::from(cut) + 1));
});
