//! Replies with a value in the text protocol: the line before the value, and small values as a whole.

use crate::ascii::write_number;

/// Appends `VALUE <key> <flags> <bytes> [<unique>]` with its ending.
#[inline]
pub fn write_value_line(
    out: &mut Vec<u8>,
    key: &[u8],
    flags: u32,
    value_bytes: u32,
    unique: Option<u64>,
) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    if flags == 0 {
        out.extend_from_slice(b" 0 ");
    } else {
        out.push(b' ');
        write_number(out, u64::from(flags));
        out.push(b' ');
    }
    write_number(out, u64::from(value_bytes));
    if let Some(unique) = unique {
        out.push(b' ');
        write_number(out, unique);
    }
    out.extend_from_slice(b"\r\n");
}

/// Keys up to this many bytes are short; those of most caches are.
const SHORT_KEY_BYTES: usize = 32;

/// Values up to this many bytes are small.
const SMALL_VALUE_BYTES: usize = 64;

/// ` 0 <bytes>\r\n` of each small value, padded to eight bytes.
static SIZE_FIELDS: [[u8; 8]; SMALL_VALUE_BYTES + 1] = size_fields();

#[expect(
    clippy::indexing_slicing,
    reason = "evaluated by the compiler, with every index below the length"
)]
const fn size_fields() -> [[u8; 8]; SMALL_VALUE_BYTES + 1] {
    let mut table = [[0; 8]; SMALL_VALUE_BYTES + 1];
    let mut value_bytes = 0;
    while value_bytes <= SMALL_VALUE_BYTES {
        let (tens, ones) = (b'0' + (value_bytes / 10) as u8, b'0' + (value_bytes % 10) as u8);
        table[value_bytes] = match tens {
            b'0' => [b' ', b'0', b' ', ones, b'\r', b'\n', 0, 0],
            _ => [b' ', b'0', b' ', tens, ones, b'\r', b'\n', 0],
        };
        value_bytes += 1;
    }
    table
}

/// Appends line, value and ending of a small value without flags under a short key, in copies of fixed length: this
/// avoids three copies of variable length per key of a multi-get, a tenth of its cost. If it returns false, nothing
/// was appended and the caller uses [`write_value_line`].
#[inline]
pub fn write_small_value(out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> bool {
    const BUFFER_BYTES: usize = 128;
    const VALUE_PREFIX: [u8; BUFFER_BYTES] = {
        let mut padded_prefix = [0; BUFFER_BYTES];
        padded_prefix.split_at_mut(6).0.copy_from_slice(b"VALUE ");
        padded_prefix
    };
    let Some(size_field) = SIZE_FIELDS.get(value.len()).filter(|_| key.len() <= SHORT_KEY_BYTES)
    else {
        return false;
    };
    let old_len = out.len();
    // Written in place, over zeros: a copy from a local buffer would stall on bytes that were just stored.
    out.extend_from_slice(&VALUE_PREFIX);
    let written_bytes = out.last_chunk_mut::<BUFFER_BYTES>().map_or(0, |buffer| {
        let mut offset = 6;
        offset += copy_short(buffer, offset, key);
        offset += copy_short(buffer, offset, size_field) - 2 + usize::from(value.len() >= 10);
        offset += copy_short(buffer, offset, value);
        offset + copy_short(buffer, offset, b"\r\n")
    });
    out.truncate(old_len + written_bytes);
    true
}

/// Copies up to 64 bytes to `offset` in two overlapping moves; returns the number of bytes.
#[inline]
fn copy_short<const BUFFER_BYTES: usize>(
    buffer: &mut [u8; BUFFER_BYTES],
    offset: usize,
    source: &[u8],
) -> usize {
    if let Some(target) = buffer.get_mut(offset..offset + source.len())
        && !(copy_ends::<32>(target, source)
            || copy_ends::<16>(target, source)
            || copy_ends::<8>(target, source))
    {
        target.copy_from_slice(source);
    }
    source.len()
}

/// Copies the first and the last `END` bytes, if those are all of them.
#[inline]
fn copy_ends<const END: usize>(target: &mut [u8], source: &[u8]) -> bool {
    if source.len() > 2 * END {
        return false;
    }
    let (Some(first), Some(last)) = (source.first_chunk::<END>(), source.last_chunk::<END>())
    else {
        return false;
    };
    if let Some(target_start) = target.first_chunk_mut() {
        *target_start = *first;
    }
    if let Some(target_end) = target.last_chunk_mut() {
        *target_end = *last;
    }
    true
}

/// Maximum length of [`write_value_line`] in bytes, for a caller that reserves space once.
pub const fn value_line_bytes_max(key: &[u8]) -> usize {
    "VALUE  4294967295 4294967295 18446744073709551615\r\n".len() + key.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_memcacheds_form_and_fits_its_bound() {
        let mut out = Vec::new();
        write_value_line(&mut out, b"a", 0, 5, None);
        write_value_line(&mut out, b"b", 7, 0, Some(3));
        assert_eq!(out, b"VALUE a 0 5\r\nVALUE b 7 0 3\r\n");
        out.clear();
        for bytes in [9, 10, 99, 100, 999, 1000] {
            out.clear();
            write_value_line(&mut out, b"k", 0, bytes, None);
            assert_eq!(out, format!("VALUE k 0 {bytes}\r\n").into_bytes());
        }
        for length in 1..=250 {
            let key: String = ('!'..='~').cycle().take(length).collect();
            for bytes in [5, 50, 500, 5000, 50_000] {
                out.clear();
                write_value_line(&mut out, key.as_bytes(), 0, bytes, None);
                assert_eq!(out, format!("VALUE {key} 0 {bytes}\r\n").into_bytes());
            }
        }
        out.clear();
        write_value_line(&mut out, b"key", u32::MAX, u32::MAX, Some(u64::MAX));
        assert_eq!(out.len(), value_line_bytes_max(b"key"));
    }

    #[test]
    fn a_small_value_is_appended_whole_or_not_at_all() {
        let text: String = ('!'..='~').cycle().take(100).collect();
        for key in (1..=40).filter_map(|length| text.get(..length)) {
            for value in (0..=70).filter_map(|length| text.get(..length)) {
                let mut out = b"before".to_vec();
                let was_written = write_small_value(&mut out, key.as_bytes(), value.as_bytes());
                assert_eq!(was_written, key.len() <= 32 && value.len() <= 64);
                let value_bytes = value.len();
                let expected = if was_written {
                    format!("beforeVALUE {key} 0 {value_bytes}\r\n{value}\r\n")
                } else {
                    "before".to_owned()
                };
                assert_eq!(out, expected.into_bytes());
            }
        }
    }
}
