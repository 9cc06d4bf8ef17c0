//! Classic text requests, written by a client into its output buffer.
//!
//! Keys are valid (1 to 250 bytes, no space, no control byte): the client checks each key
//! once, where it enters, so a writer returns no error. Values are not written here: the head
//! of a store has their length, and the transport sends head, value and line end together.

pub use crate::request::{StoreMode, TextStoreParameters, write_decimal};

fn end_line(out: &mut Vec<u8>, noreply: bool) {
    out.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}

/// Appends `get key*` or, with `with_cas`, `gets key*`.
pub fn get<'a>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = &'a [u8]>, with_cas: bool) {
    out.extend_from_slice(if with_cas { b"gets" } else { b"get" });
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `gat exptime key`: a get that also sets the expiry.
pub fn get_and_touch(out: &mut Vec<u8>, key: &[u8], exptime: i64) {
    out.extend_from_slice(b"gat ");
    write_decimal(out, exptime);
    out.push(b' ');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of a store; the value and a line end follow it on the wire.
pub fn store(out: &mut Vec<u8>, mode: StoreMode, key: &[u8], parameters: &TextStoreParameters) {
    out.extend_from_slice(mode.verb());
    out.extend_from_slice(key);
    out.push(b' ');
    write_decimal(out, parameters.flags);
    out.push(b' ');
    write_decimal(out, parameters.exptime);
    out.push(b' ');
    write_decimal(out, parameters.value_bytes);
    if let StoreMode::Cas(unique) = mode {
        out.push(b' ');
        write_decimal(out, unique);
    }
    end_line(out, parameters.noreply);
}

/// Appends `delete key`.
pub fn delete(out: &mut Vec<u8>, key: &[u8], noreply: bool) {
    out.extend_from_slice(b"delete ");
    out.extend_from_slice(key);
    end_line(out, noreply);
}

/// Appends `touch key exptime`.
pub fn touch(out: &mut Vec<u8>, key: &[u8], exptime: i64, noreply: bool) {
    out.extend_from_slice(b"touch ");
    out.extend_from_slice(key);
    out.push(b' ');
    write_decimal(out, exptime);
    end_line(out, noreply);
}

/// Appends `incr key delta`, or `decr` with `is_decrement`.
pub fn arithmetic(out: &mut Vec<u8>, key: &[u8], delta: u64, is_decrement: bool, noreply: bool) {
    out.extend_from_slice(if is_decrement { b"decr " } else { b"incr " });
    out.extend_from_slice(key);
    out.push(b' ');
    write_decimal(out, delta);
    end_line(out, noreply);
}

/// Appends `flush_all`, after `delay_s` seconds if not 0.
pub fn flush_all(out: &mut Vec<u8>, delay_s: u32) {
    out.extend_from_slice(b"flush_all");
    if delay_s > 0 {
        out.push(b' ');
        write_decimal(out, delay_s);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `stats`, with its argument if not empty.
pub fn stats(out: &mut Vec<u8>, argument: &[u8]) {
    out.extend_from_slice(b"stats");
    if !argument.is_empty() {
        out.push(b' ');
        out.extend_from_slice(argument);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `version`.
pub fn version(out: &mut Vec<u8>) {
    out.extend_from_slice(b"version\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cas_sends_its_unique_and_a_noreply_its_token() {
        let mut out = Vec::new();
        let parameters =
            TextStoreParameters { flags: 16, exptime: -1, value_bytes: 3, noreply: true };
        store(&mut out, StoreMode::Cas(7), b"k", &parameters);
        assert_eq!(out, b"cas k 16 -1 3 7 noreply\r\n");
    }

    #[test]
    fn a_get_sends_its_keys_in_order() {
        let mut out = Vec::new();
        get(&mut out, [&b"a"[..], b"b"], true);
        assert_eq!(out, b"gets a b\r\n");
    }
}
