//! The one reply of the classic dialect that is not a fixed word: the line above a value.

use crate::ascii::write_number;

/// Appends `VALUE <key> <flags> <bytes> [<unique>]` with its ending.
#[inline]
pub fn value_line(out: &mut Vec<u8>, key: &[u8], flags: u32, bytes: u32, unique: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    // Most values are small and plain: their line ends in one append.
    if flags == 0 && bytes < 1000 && unique.is_none() {
        let digit = |number: u32| b'0' + (number % 10) as u8;
        let (hundreds, tens, ones) = (digit(bytes / 100), digit(bytes / 10), digit(bytes));
        match bytes {
            0..10 => out.extend_from_slice(&[b' ', b'0', b' ', ones, b'\r', b'\n']),
            10..100 => out.extend_from_slice(&[b' ', b'0', b' ', tens, ones, b'\r', b'\n']),
            _ => out.extend_from_slice(&[b' ', b'0', b' ', hundreds, tens, ones, b'\r', b'\n']),
        }
        return;
    }
    if flags == 0 {
        out.extend_from_slice(b" 0 ");
    } else {
        out.push(b' ');
        write_number(out, u64::from(flags));
        out.push(b' ');
    }
    write_number(out, u64::from(bytes));
    if let Some(unique) = unique {
        out.push(b' ');
        write_number(out, unique);
    }
    out.extend_from_slice(b"\r\n");
}

/// The longest [`value_line`] in bytes, for a caller that reserves room once.
pub const fn value_line_bytes(key: &[u8]) -> usize {
    "VALUE  4294967295 4294967295 18446744073709551615\r\n".len() + key.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_memcacheds_form_and_fits_its_bound() {
        let mut out = Vec::new();
        value_line(&mut out, b"a", 0, 5, None);
        value_line(&mut out, b"b", 7, 0, Some(3));
        assert_eq!(out, b"VALUE a 0 5\r\nVALUE b 7 0 3\r\n");
        out.clear();
        for bytes in [9, 10, 99, 100, 999, 1000] {
            out.clear();
            value_line(&mut out, b"k", 0, bytes, None);
            assert_eq!(out, format!("VALUE k 0 {bytes}\r\n").into_bytes());
        }
        out.clear();
        value_line(&mut out, b"key", u32::MAX, u32::MAX, Some(u64::MAX));
        assert_eq!(out.len(), value_line_bytes(b"key"));
    }
}
