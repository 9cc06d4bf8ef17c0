//! Meta lines: what is parsed holds the limits, and each reply to it is one line that the request
//! explains.

#![no_main]

use glasscache_protocol::command::Command;
use glasscache_protocol::limits::{KEY_BYTES_MAX, OPAQUE_BYTES_MAX};
use glasscache_protocol::meta::{self, MetaItem, MetaLine};
use glasscache_protocol::text::{Parsed, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut request = [b"mg ".as_slice(), b"ms ", b"md ", b"ma ", b"me "]
        [usize::from(input.first().copied().unwrap_or(0) % 5)]
    .to_vec();
    request.extend(input.iter().skip(1).filter(|byte| **byte != b'\n'));
    request.extend_from_slice(b"\r\n");
    if let Parsed::Command(
        Command::MetaGet(line)
        | Command::MetaSet(line, _)
        | Command::MetaDelete(line)
        | Command::MetaArith(line),
        _,
    ) = parse(&request)
    {
        check(&line);
    }
});

fn check(line: &MetaLine<'_>) {
    let mut scratch = Vec::new();
    let key = line.item_key(&mut scratch).expect("a parsed line's key decodes").to_vec();
    assert!((1..=KEY_BYTES_MAX).contains(&line.key.len()) && key.len() <= KEY_BYTES_MAX);
    let opaque =
        line.flags.text.split(|byte| *byte == b' ').find(|token| token.first() == Some(&b'O'));
    assert!(opaque.is_none_or(|opaque| opaque.len() <= OPAQUE_BYTES_MAX));
    let mut out = Vec::new();
    meta::write_hit(&mut out, line, &key, &MetaItem::default(), line.flags.has(b'v'));
    meta::write_status(&mut out, line, &key, *b"EN");
    meta::write_stored(&mut out, line, &key, *b"HD", (u64::MAX, u32::MAX));
    let lines = out.split(|byte| *byte == b'\n').count() - 1;
    let in_key = key.iter().filter(|byte| **byte == b'\n').count();
    // A base64 key goes back in base64, so no reply is ever broken by a key.
    assert!(lines == 3 || (in_key > 0 && !line.flags.has(b'b')), "{out:?}");
    if let Some(opaque) = opaque {
        let times = out.windows(opaque.len()).filter(|window| window == &opaque).count();
        assert!(times >= 3);
    }
}
