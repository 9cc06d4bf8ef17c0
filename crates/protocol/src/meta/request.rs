//! Meta requests, written by a client into its output buffer.
//!
//! Each has an opaque, which the server returns: a reply is matched to its request by the opaque and
//! not by its position in the stream. Quiet requests (`q`) get a reply only on failure and
//! end with an `mn`, so a hundred writes cost one reply line.

use crate::request::{StoreMode, TextStoreParameters, write_decimal};

/// A key as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireKey<'a> {
    /// The bytes: the key itself, or its base64 form.
    pub bytes: &'a [u8],
    /// Whether they are base64, which adds the flag `b`.
    pub is_base64: bool,
}

/// Flags that every meta request can have.
#[derive(Debug, Clone, Copy)]
pub struct CommonFields {
    /// The opaque, returned with the reply.
    pub opaque: u32,
    /// Reply only to an unusual outcome.
    pub quiet: bool,
}

fn start_line(out: &mut Vec<u8>, command: &[u8], key: WireKey<'_>) {
    out.extend_from_slice(command);
    out.extend_from_slice(key.bytes);
}

fn end_line(out: &mut Vec<u8>, key: WireKey<'_>, common: CommonFields) {
    if key.is_base64 {
        out.extend_from_slice(b" b");
    }
    out.extend_from_slice(b" O");
    write_decimal(out, common.opaque);
    out.extend_from_slice(if common.quiet { b" q\r\n" } else { b"\r\n" });
}

fn write_flag(out: &mut Vec<u8>, letter: u8, number: impl itoa::Integer) {
    out.extend_from_slice(&[b' ', letter]);
    write_decimal(out, number);
}

/// Appends the head of `ms`; value and line end follow on the wire.
///
/// An `exptime` of 0 and client flags of 0 are omitted.
pub fn set(
    out: &mut Vec<u8>,
    mode: StoreMode,
    key: WireKey<'_>,
    parameters: &TextStoreParameters,
    common: CommonFields,
) {
    start_set(out, mode, key, parameters);
    end_line(out, key, common);
}

/// Appends the head of `ms` as [`set`] does; the reply of a success has the item's new CAS unique.
pub fn set_and_get_unique(
    out: &mut Vec<u8>,
    mode: StoreMode,
    key: WireKey<'_>,
    parameters: &TextStoreParameters,
    common: CommonFields,
) {
    start_set(out, mode, key, parameters);
    out.extend_from_slice(b" c");
    end_line(out, key, common);
}

fn start_set(
    out: &mut Vec<u8>,
    mode: StoreMode,
    key: WireKey<'_>,
    parameters: &TextStoreParameters,
) {
    start_line(out, b"ms ", key);
    out.push(b' ');
    write_decimal(out, parameters.value_bytes);
    let mode_flag: &[u8] = match mode {
        StoreMode::Set => b"",
        StoreMode::Add => b" ME",
        StoreMode::Replace => b" MR",
        StoreMode::Append => b" MA",
        StoreMode::Prepend => b" MP",
        StoreMode::Cas(unique) => {
            write_flag(out, b'C', unique);
            b""
        }
    };
    out.extend_from_slice(mode_flag);
    if parameters.flags != 0 {
        write_flag(out, b'F', parameters.flags);
    }
    if parameters.exptime != 0 {
        write_flag(out, b'T', parameters.exptime);
    }
}

/// Appends an `ms` that appends to a value or prepends to it, if the value still has this CAS unique.
pub fn extend(
    out: &mut Vec<u8>,
    mode: StoreMode,
    key: WireKey<'_>,
    (value_bytes, unique): (usize, u64),
    common: CommonFields,
) {
    start_line(out, b"ms ", key);
    out.push(b' ');
    write_decimal(out, value_bytes);
    out.extend_from_slice(if mode == StoreMode::Prepend { b" MP" } else { b" MA" });
    if unique != 0 {
        write_flag(out, b'C', unique);
    }
    end_line(out, key, common);
}

/// The fields that a meta get requests, and what else it does.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetFields {
    /// Value and client flags.
    pub value: bool,
    /// Client flags, without the value.
    pub flags: bool,
    /// CAS unique.
    pub cas: bool,
    /// Remaining TTL.
    pub ttl: bool,
    /// Remaining TTL, seconds since last access, hit before.
    pub metadata: bool,
    /// Give the item this expiry.
    pub touch: Option<i64>,
    /// Leave the item's last access and its position in the eviction order as they are.
    pub no_bump: bool,
}

/// Appends `mg`.
pub fn get(out: &mut Vec<u8>, key: WireKey<'_>, fields: GetFields, common: CommonFields) {
    start_line(out, b"mg ", key);
    // `k` makes the server echo the key: a second check that the value belongs to this key.
    out.extend_from_slice(b" k");
    if fields.value {
        out.extend_from_slice(b" f v");
    } else if fields.flags {
        out.extend_from_slice(b" f");
    }
    if fields.cas {
        out.extend_from_slice(b" c");
    }
    if fields.metadata {
        out.extend_from_slice(b" t l h");
    } else if fields.ttl {
        out.extend_from_slice(b" t");
    }
    if let Some(exptime) = fields.touch {
        write_flag(out, b'T', exptime);
    }
    if fields.no_bump {
        out.extend_from_slice(b" u");
    }
    end_line(out, key, common);
}

/// Appends `mg key v`: the value alone, for replies that are matched by their order.
pub fn get_value_only(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" v\r\n");
}

/// Appends the head of `ms` without an opaque, for replies that are matched by their order.
pub fn set_without_opaque(out: &mut Vec<u8>, key: &[u8], parameters: &TextStoreParameters) {
    start_line(out, b"ms ", WireKey { bytes: key, is_base64: false });
    out.push(b' ');
    write_decimal(out, parameters.value_bytes);
    if parameters.flags != 0 {
        write_flag(out, b'F', parameters.flags);
    }
    if parameters.exptime != 0 {
        write_flag(out, b'T', parameters.exptime);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `md` without an opaque, for replies that are matched by their order.
pub fn delete_without_opaque(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"md ");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Appends `md`.
pub fn delete(out: &mut Vec<u8>, key: WireKey<'_>, common: CommonFields) {
    start_line(out, b"md ", key);
    end_line(out, key, common);
}

/// Appends `md` for an item that still has this CAS unique; another one stays (`EX`).
pub fn delete_if_unchanged(out: &mut Vec<u8>, key: WireKey<'_>, unique: u64, common: CommonFields) {
    start_line(out, b"md ", key);
    write_flag(out, b'C', unique);
    end_line(out, key, common);
}

/// Appends `md` with `I`, which marks the item as stale if it still has this CAS unique: the next `mg` wins the right
/// to refresh it.
pub fn invalidate(out: &mut Vec<u8>, key: WireKey<'_>, unique: u64, common: CommonFields) {
    start_line(out, b"md ", key);
    write_flag(out, b'C', unique);
    out.extend_from_slice(b" I");
    end_line(out, key, common);
}

/// Appends `mf`, which memcached does not have: removes all items whose keys start with `prefix`.
pub fn flush_prefix(out: &mut Vec<u8>, prefix: WireKey<'_>, common: CommonFields) {
    start_line(out, b"mf ", prefix);
    end_line(out, prefix, common);
}

/// An addition or subtraction.
#[derive(Debug, Clone, Copy)]
pub struct Arithmetic {
    /// By how much.
    pub delta: u64,
    /// Subtract, not below 0.
    pub is_decrement: bool,
    /// Create a missing item with this number and this expiry.
    pub initial: Option<(u64, i64)>,
}

/// Appends `ma`; the reply carries the new number as a value.
pub fn arithmetic(out: &mut Vec<u8>, key: WireKey<'_>, change: &Arithmetic, common: CommonFields) {
    start_line(out, b"ma ", key);
    out.extend_from_slice(b" v");
    if change.is_decrement {
        out.extend_from_slice(b" MD");
    }
    write_flag(out, b'D', change.delta);
    if let Some((number, exptime)) = change.initial {
        write_flag(out, b'J', number);
        write_flag(out, b'N', exptime);
    }
    end_line(out, key, common);
}

/// Appends `mn`; its reply `MN` comes after the replies to everything before it.
pub fn noop(out: &mut Vec<u8>) {
    out.extend_from_slice(b"mn\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: WireKey<'static> = WireKey { bytes: b"k", is_base64: false };

    #[test]
    fn a_quiet_set_sends_only_what_differs_from_the_default() {
        let parameters =
            TextStoreParameters { flags: 0, exptime: 0, value_bytes: 3, noreply: false };
        let mut out = Vec::new();
        set(&mut out, StoreMode::Set, KEY, &parameters, CommonFields { opaque: 7, quiet: true });
        assert_eq!(out, b"ms k 3 O7 q\r\n");
    }

    #[test]
    fn an_invalidation_names_the_unique_it_is_for() {
        let mut out = Vec::new();
        let common = CommonFields { opaque: 3, quiet: true };
        invalidate(&mut out, KEY, 9, common);
        assert_eq!(out, b"md k C9 I O3 q\r\n");
    }

    #[test]
    fn a_get_without_a_bump_sends_the_flag_u() {
        let mut out = Vec::new();
        let fields = GetFields { value: true, ttl: true, no_bump: true, ..GetFields::default() };
        let common = CommonFields { opaque: 1, quiet: false };
        get(&mut out, KEY, fields, common);
        assert_eq!(out, b"mg k k f v t u O1\r\n");
    }

    #[test]
    fn a_base64_key_is_marked() {
        let mut out = Vec::new();
        let key = WireKey { bytes: b"YSBi", is_base64: true };
        delete(&mut out, key, CommonFields { opaque: 1, quiet: false });
        assert_eq!(out, b"md YSBi b O1\r\n");
    }

    #[test]
    fn arithmetic_with_an_initial_number_sends_its_expiry() {
        let mut out = Vec::new();
        let subtraction = Arithmetic { delta: 2, is_decrement: true, initial: Some((5, 60)) };
        arithmetic(&mut out, KEY, &subtraction, CommonFields { opaque: 1, quiet: false });
        assert_eq!(out, b"ma k v MD D2 J5 N60 O1\r\n");
    }
}
