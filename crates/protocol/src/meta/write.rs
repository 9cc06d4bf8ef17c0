//! Meta replies: a status of two letters, then the fields that the request's flags select, in their order.

use crate::ascii::{self, write_number};
use crate::base64;
use crate::command::MetaLine;

/// The fields of an item in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaItem {
    /// Length of the value.
    pub value_bytes: u32,
    /// The client's flags.
    pub client_flags: u32,
    /// The CAS unique.
    pub unique: u64,
    /// Remaining TTL in seconds; `None` if the item never expires.
    pub ttl_s: Option<u32>,
    /// Seconds since it was last read or written.
    pub idle_s: u32,
    /// It had been read before.
    pub was_fetched: bool,
    /// This client won the refill (W).
    pub won: bool,
    /// It is marked stale (X).
    pub is_stale: bool,
    /// Another client won the refill (Z).
    pub already_won: bool,
}

/// Appends the line of an `mg` hit: `VA <bytes>` when the value follows, else `HD`.
#[inline]
pub fn write_hit(
    out: &mut Vec<u8>,
    line: &MetaLine<'_>,
    key: &[u8],
    item: &MetaItem,
    with_value: bool,
) {
    if with_value {
        out.extend_from_slice(b"VA ");
        write_number(out, u64::from(item.value_bytes));
    } else {
        out.extend_from_slice(b"HD");
    }
    for token in ascii::tokens(line.flags.text) {
        match token.first() {
            Some(b's') => write_flag(out, b's', u64::from(item.value_bytes)),
            Some(b't') => write_ttl(out, item.ttl_s),
            Some(b'c') => write_flag(out, b'c', item.unique),
            Some(b'f') => write_flag(out, b'f', u64::from(item.client_flags)),
            Some(b'l') => write_flag(out, b'l', u64::from(item.idle_s)),
            Some(b'h') => write_flag(out, b'h', u64::from(item.was_fetched)),
            Some(b'O') => write_opaque(out, token),
            Some(b'k') => echo_key(out, line, key),
            _ => {}
        }
    }
    for (applies, flag_text) in
        [(item.already_won, b" Z"), (item.is_stale, b" X"), (item.won, b" W")]
    {
        if applies {
            out.extend_from_slice(flag_text);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the line above the value of an `mg` hit that requested only the value.
#[inline]
pub fn write_value_line(out: &mut Vec<u8>, value_bytes: u32) {
    out.extend_from_slice(b"VA ");
    write_number(out, u64::from(value_bytes));
    out.extend_from_slice(b"\r\n");
}

/// Appends a bare status with the opaque and the key if the request has their flags.
#[inline]
pub fn write_status(out: &mut Vec<u8>, line: &MetaLine<'_>, key: &[u8], status: [u8; 2]) {
    out.extend_from_slice(&status);
    for token in ascii::tokens(line.flags.text) {
        match token.first() {
            Some(b'O') => write_opaque(out, token),
            Some(b'k') => echo_key(out, line, key),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the reply of an `ms`.
#[inline]
pub fn write_stored(
    out: &mut Vec<u8>,
    line: &MetaLine<'_>,
    key: &[u8],
    status: [u8; 2],
    (unique, value_bytes): (u64, u32),
) {
    out.extend_from_slice(&status);
    for token in ascii::tokens(line.flags.text) {
        match token.first() {
            Some(b'O') => write_opaque(out, token),
            Some(b'k') => echo_key(out, line, key),
            Some(b'c') => write_flag(out, b'c', unique),
            Some(b's') => write_flag(out, b's', u64::from(value_bytes)),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the reply of an `ma` that has a number: with `v` the number follows on a line of its own.
pub fn write_arith(
    out: &mut Vec<u8>,
    line: &MetaLine<'_>,
    key: &[u8],
    (number, unique, ttl_s): (u64, u64, Option<u32>),
) {
    let mut digit_buffer = itoa::Buffer::new();
    let digits = digit_buffer.format(number);
    if line.flags.has(b'v') {
        out.extend_from_slice(b"VA ");
        write_number(out, digits.len() as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    for token in ascii::tokens(line.flags.text) {
        match token.first() {
            Some(b'c') => write_flag(out, b'c', unique),
            Some(b't') => write_ttl(out, ttl_s),
            Some(b'O') => write_opaque(out, token),
            Some(b'k') => echo_key(out, line, key),
            _ => {}
        }
    }
    out.extend_from_slice(b"\r\n");
    if line.flags.has(b'v') {
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

fn write_flag(out: &mut Vec<u8>, letter: u8, number: u64) {
    out.extend_from_slice(&[b' ', letter]);
    write_number(out, number);
}

fn write_ttl(out: &mut Vec<u8>, ttl_s: Option<u32>) {
    match ttl_s {
        Some(seconds) => write_flag(out, b't', u64::from(seconds)),
        None => out.extend_from_slice(b" t-1"),
    }
}

fn write_opaque(out: &mut Vec<u8>, token: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(token);
}

/// The key is returned as it was sent: base64 with `b`, or plain.
fn echo_key(out: &mut Vec<u8>, line: &MetaLine<'_>, key: &[u8]) {
    out.extend_from_slice(b" k");
    if line.flags.has(b'b') {
        base64::encode(key, out);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::MetaFlags;

    fn line<'b>(key: &'b [u8], text: &'b [u8]) -> MetaLine<'b> {
        MetaLine { key, flags: MetaFlags::parse(text).unwrap() }
    }

    #[test]
    fn a_hit_returns_its_flags_in_the_order_of_the_request() {
        let item = MetaItem { value_bytes: 5, unique: 9, won: true, ..MetaItem::default() };
        let mut out = Vec::new();
        write_hit(&mut out, &line(b"foo", b"c k t Oab v s"), b"foo", &item, true);
        assert_eq!(out, b"VA 5 c9 kfoo t-1 Oab s5 W\r\n");
    }

    #[test]
    fn a_binary_key_is_returned_in_base64() {
        let mut out = Vec::new();
        write_status(&mut out, &line(b"aGVsbG8=", b"k b"), b"hello", *b"EN");
        assert_eq!(out, b"EN kaGVsbG8= b\r\n");
    }

    #[test]
    fn a_number_follows_its_line() {
        let mut out = Vec::new();
        write_arith(&mut out, &line(b"n", b"v t c"), b"n", (50, 3, Some(30)));
        assert_eq!(out, b"VA 2 t30 c3\r\n50\r\n");
    }
}
