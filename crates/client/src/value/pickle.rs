//! Pickles of single scalars, read and written without an unpickler.
//!
//! Python clients pickle whatever their flags cannot mark, among it None, booleans and floats. Those are a few
//! bytes without any code in them, so they are read and written here even where pickles are not allowed. Everything
//! else stays a pickle, for the application to allow. The opcodes are those of Python's `pickletools`.

use super::Decoded;

/// The scalar that `pickle` holds, or `None` when it holds anything else.
pub(super) fn read_scalar(pickle: &[u8]) -> Option<Decoded<'static>> {
    let body = strip_memo(strip_header(pickle)?.strip_suffix(b".")?);
    let (opcode, remaining) = body.split_first()?;
    Some(match (opcode, remaining) {
        (b'N', []) => Decoded::None,
        (b'\x88', []) | (b'I', b"01\n") => Decoded::Bool(true),
        (b'\x89', []) | (b'I', b"00\n") => Decoded::Bool(false),
        (b'G', _) => Decoded::Float(f64::from_be_bytes(remaining.try_into().ok()?)),
        (b'F', _) => Decoded::Float(parse_line(remaining)?.parse().ok()?),
        (b'K', [byte]) => Decoded::Int(i64::from(*byte)),
        (b'M', _) => Decoded::Int(i64::from(u16::from_le_bytes(remaining.try_into().ok()?))),
        (b'J', _) => Decoded::Int(i64::from(i32::from_le_bytes(remaining.try_into().ok()?))),
        (b'I', _) => Decoded::Int(parse_line(remaining)?.parse().ok()?),
        (b'L', _) => Decoded::Int(parse_line(remaining)?.trim_end_matches('L').parse().ok()?),
        _ => return None,
    })
}

/// Leaves out protocol and frame: `\x80 n`, and `\x95` with eight bytes of length.
fn strip_header(pickle: &[u8]) -> Option<&[u8]> {
    let Some((b'\x80', remaining)) = pickle.split_first() else {
        return Some(pickle);
    };
    let (_protocol, remaining) = remaining.split_first()?;
    match remaining.split_first() {
        Some((b'\x95', framed)) => framed.split_at_checked(8).map(|(_, body)| body),
        _ => Some(remaining),
    }
}

/// Leaves out a memo of the scalar (`\x94`), which some picklers add.
fn strip_memo(body: &[u8]) -> &[u8] {
    body.strip_suffix(b"\x94").filter(|remaining| remaining.len() == 1).unwrap_or(body)
}

fn parse_line(remaining: &[u8]) -> Option<&str> {
    std::str::from_utf8(remaining.strip_suffix(b"\n")?).ok()
}

/// Appends `None` as a pickle that Python 2.3 and newer read.
pub(super) fn write_none(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x80\x02N.");
}

/// Appends a boolean as a pickle.
pub(super) fn write_bool(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"\x80\x02\x88." } else { b"\x80\x02\x89." });
}

/// Appends a float as a pickle.
pub(super) fn write_float(value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x80\x02G");
    out.extend_from_slice(&value.to_be_bytes());
    out.push(b'.');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_of_every_protocol_are_read() {
        // pickle.dumps(value, protocol) of CPython 3.11.
        let cases: [(&[u8], Decoded<'_>); 9] = [
            (b"N.", Decoded::None),
            (b"\x80\x05N.", Decoded::None),
            (b"I01\n.", Decoded::Bool(true)),
            (b"\x80\x04\x89.", Decoded::Bool(false)),
            (b"F1.5\n.", Decoded::Float(1.5)),
            (b"\x80\x05\x95\x0a\0\0\0\0\0\0\0G\x3f\xf8\0\0\0\0\0\0.", Decoded::Float(1.5)),
            (b"\x80\x05K*.", Decoded::Int(42)),
            (b"L42L\n.", Decoded::Int(42)),
            (b"\x80\x02J\xf9\xff\xff\xff.", Decoded::Int(-7)),
        ];
        for (pickle, value) in cases {
            assert_eq!(read_scalar(pickle), Some(value), "{pickle:?}");
        }
    }

    #[test]
    fn other_pickles_are_left_to_python() {
        for pickle in [
            &b"cos\nsystem\n(S'true'\ntR."[..],
            b"(lp0\n.",
            b"",
            b".",
            b"\x80",
            b"\x80\x05\x95\0N.",
        ] {
            assert_eq!(read_scalar(pickle), None, "{pickle:?}");
        }
    }

    #[test]
    fn written_values_are_read_back() {
        let mut out = Vec::new();
        write_float(-0.1, &mut out);
        assert_eq!(read_scalar(&out), Some(Decoded::Float(-0.1)));
        out.clear();
        write_none(&mut out);
        assert_eq!(read_scalar(&out), Some(Decoded::None));
        out.clear();
        write_bool(false, &mut out);
        assert_eq!(read_scalar(&out), Some(Decoded::Bool(false)));
    }
}
