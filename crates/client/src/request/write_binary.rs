//! Requests in binary, for servers that understand nothing else: each with an opaque; many reads or writes are quiet
//! and closed by one noop.

use glasscache_protocol::KEY_BYTES_MAX;
use glasscache_protocol::base64;
use glasscache_protocol::binary::request::{
    self as binary, ArithParameters, BinaryStoreParameters,
};
use glasscache_protocol::binary::{OpcodeAndOpaque, opcode};
use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::request::StoreMode;

use super::{COPIED_BODY_BYTES_MAX, Item, Request, RequestWriter, Unsupported};
use crate::pipeline::{ExpectedBinaryReply, ExpectedReply, KeyList};

/// An exptime of the past, as the absolute time that it is: a second more than the longest relative one.
const EXPIRED_EXPTIME: u32 = 30 * 86_400 + 1;

/// The largest exptime: one more means "do not create" in an increment.
const EXPTIME_MAX: u32 = u32::MAX - 1;

impl Request<'_> {
    pub(super) fn write_binary(&self, writer: &mut RequestWriter<'_>) -> Result<(), Unsupported> {
        // Before anything is written: replies to a part of it could not be delivered.
        if let Some(operation) = self.unsupported_in_binary() {
            return Err(Unsupported(operation));
        }
        match *self {
            Self::Flags { key } => return Request::Get { key, cas: true }.write_binary(writer),
            Self::Extend { mode, ref item, unique, noreply } => {
                let opcode_and_opaque = begin_request(writer, store_opcode(mode), noreply);
                write_extend(writer, opcode_and_opaque, item, unique);
            }
            Self::Get { key, cas } => {
                let opcode_and_opaque = begin_single_read(writer, key, opcode::GETK, cas);
                with_raw_key(key, |raw_key| {
                    binary::get(writer.out, opcode_and_opaque, raw_key);
                });
            }
            Self::GetAndTouch { key, exptime } => {
                let opcode_and_opaque = begin_single_read(writer, key, opcode::GATK, false);
                write_touch(writer, opcode_and_opaque, key, exptime);
            }
            Self::GetMany { prefix, keys, cas } => {
                let mut key_list = begin_key_list(writer);
                for key in keys {
                    key_list.push(prefix, key);
                }
                write_reads(writer, key_list, cas);
            }
            Self::GetWithTtls { keys } => {
                let mut key_list = begin_key_list(writer);
                for &key in keys {
                    with_raw_key(key, |raw_key| key_list.push(b"", raw_key));
                }
                write_reads(writer, key_list, false);
            }
            Self::Store { mode, ref item, exptime, noreply } => {
                let opcode_and_opaque = begin_request(writer, store_opcode(mode), noreply);
                write_store_head(writer, opcode_and_opaque, mode, item, exptime);
                if item.body.len() <= COPIED_BODY_BYTES_MAX {
                    writer.out.extend_from_slice(item.body);
                }
            }
            Self::StoreMany { mode, items, exptime, quiet } => {
                write_store_many(writer, (mode, exptime), items, quiet);
            }
            Self::Delete { key, noreply } => write_delete(writer, key, noreply),
            Self::DeleteMany { keys } => {
                for &key in keys {
                    write_delete(writer, key, false);
                }
            }
            Self::Touch { key, exptime, noreply } => {
                // Touch has no quiet form: its response is read together with those to the quiet writes around it.
                let opcode_and_opaque = begin_request(writer, opcode::TOUCH, noreply);
                write_touch(writer, opcode_and_opaque, key, exptime);
            }
            Self::Arithmetic { key, ref arithmetic, noreply } => {
                write_arithmetic(writer, key, arithmetic, noreply);
            }
            Self::Flush { delay_s } => {
                let opcode_and_opaque = begin_request(writer, opcode::FLUSH, false);
                binary::flush(writer.out, opcode_and_opaque.opaque, delay_s);
            }
            Self::Stats { argument } => {
                let opaque = writer.reserve_opaques(1);
                expect_binary_reply(writer, ExpectedBinaryReply::Rows { opaque });
                binary::stat(writer.out, opaque, argument);
            }
            _ => {
                let opcode_and_opaque = begin_request(writer, opcode::VERSION, false);
                binary::header_only(writer.out, opcode_and_opaque);
            }
        }
        Ok(())
    }

    /// What binary has no form for, if the request needs it.
    fn unsupported_in_binary(&self) -> Option<&'static str> {
        match self {
            // In binary a unique of 0 compares nothing.
            Self::Store { mode, .. } | Self::StoreMany { mode, .. }
                if *mode == StoreMode::Cas(0) =>
            {
                Some("cas with a unique of 0")
            }
            Self::Stats { argument } if argument.len() > KEY_BYTES_MAX => {
                Some("an argument of stats with more than 250 bytes")
            }
            _ => self.needs_meta(),
        }
    }
}

/// Passes on the key itself: binary takes every byte, so no key is sent in base64.
fn with_raw_key<T>(key: WireKey<'_>, use_key: impl FnOnce(&[u8]) -> T) -> T {
    if !key.is_base64 {
        return use_key(key.bytes);
    }
    let mut raw_key = Vec::with_capacity(key.bytes.len());
    if base64::decode(key.bytes, &mut raw_key).is_none() {
        // The client encoded it, so it decodes; a key that does not is sent as it is.
        raw_key.clear();
        raw_key.extend_from_slice(key.bytes);
    }
    use_key(&raw_key)
}

fn expect_binary_reply(writer: &mut RequestWriter<'_>, expected: ExpectedBinaryReply) {
    writer.pipeline.expect(ExpectedReply::Binary(expected));
}

/// The opcode and the opaque of a request that has one response, or none unless something is unusual.
fn begin_request(writer: &mut RequestWriter<'_>, opcode: u8, quiet: bool) -> OpcodeAndOpaque {
    let opaque = writer.reserve_opaques(1);
    if quiet {
        let opcode = opcode::quiet_form(opcode);
        return OpcodeAndOpaque { opcode, opaque };
    }
    expect_binary_reply(writer, ExpectedBinaryReply::Status { opaque, opcode });
    OpcodeAndOpaque { opcode, opaque }
}

fn begin_single_read(
    writer: &mut RequestWriter<'_>,
    key: WireKey<'_>,
    opcode: u8,
    wants_cas: bool,
) -> OpcodeAndOpaque {
    let mut keys = begin_key_list(writer);
    with_raw_key(key, |raw_key| keys.push(b"", raw_key));
    let first_opaque = writer.reserve_opaques(1);
    let expected = ExpectedBinaryReply::Values { keys, first_opaque, is_single: true, wants_cas };
    expect_binary_reply(writer, expected);
    OpcodeAndOpaque { opcode, opaque: first_opaque }
}

fn begin_key_list(writer: &mut RequestWriter<'_>) -> KeyList {
    let mut key_list = writer.pipeline.key_list();
    key_list.begin(b"");
    key_list
}

/// Quiet reads of keys, and the noop that ends them.
fn write_reads(writer: &mut RequestWriter<'_>, keys: KeyList, wants_cas: bool) {
    let first_opaque = writer.reserve_opaques(keys.len() + 1);
    let opaques = (0..).map(|index| first_opaque.wrapping_add(index));
    for (key, opaque) in (0..keys.len()).filter_map(|index| keys.get(index)).zip(opaques) {
        let opcode_and_opaque = OpcodeAndOpaque { opcode: opcode::GETKQ, opaque };
        binary::get(writer.out, opcode_and_opaque, key);
    }
    write_noop(writer.out, first_opaque.wrapping_add(keys.len() as u32));
    let expected = ExpectedBinaryReply::Values { keys, first_opaque, is_single: false, wants_cas };
    expect_binary_reply(writer, expected);
}

/// Appends a noop; its response comes after those to everything before it.
pub(crate) fn write_noop(out: &mut Vec<u8>, opaque: u32) {
    let opcode_and_opaque = OpcodeAndOpaque { opcode: opcode::NOOP, opaque };
    binary::header_only(out, opcode_and_opaque);
}

fn store_opcode(mode: StoreMode) -> u8 {
    match mode {
        StoreMode::Set | StoreMode::Cas(_) => opcode::SET,
        StoreMode::Add => opcode::ADD,
        StoreMode::Replace => opcode::REPLACE,
        StoreMode::Append => opcode::APPEND,
        StoreMode::Prepend => opcode::PREPEND,
    }
}

/// A touch, with or without the value in the response.
fn write_touch(
    writer: &mut RequestWriter<'_>,
    opcode_and_opaque: OpcodeAndOpaque,
    key: WireKey<'_>,
    exptime: i64,
) {
    let exptime = to_wire_exptime(exptime);
    with_raw_key(key, |raw_key| {
        binary::touch(writer.out, opcode_and_opaque, raw_key, exptime);
    });
}

fn write_extend(
    writer: &mut RequestWriter<'_>,
    opcode_and_opaque: OpcodeAndOpaque,
    item: &Item<'_>,
    unique: u64,
) {
    let value_bytes = item.body.len() as u32;
    with_raw_key(item.key, |raw_key| {
        let out = &mut *writer.out;
        binary::append_or_prepend(out, opcode_and_opaque, raw_key, value_bytes, unique);
    });
    if item.body.len() <= COPIED_BODY_BYTES_MAX {
        writer.out.extend_from_slice(item.body);
    }
}

fn write_store_head(
    writer: &mut RequestWriter<'_>,
    opcode_and_opaque: OpcodeAndOpaque,
    mode: StoreMode,
    item: &Item<'_>,
    exptime: i64,
) {
    let value_bytes = item.body.len() as u32;
    let parameters = BinaryStoreParameters {
        flags: item.flags,
        exptime: to_wire_exptime(exptime),
        value_bytes,
        required_cas: match mode {
            StoreMode::Cas(unique) => unique,
            _ => 0,
        },
    };
    with_raw_key(item.key, |raw_key| match mode {
        StoreMode::Append | StoreMode::Prepend => {
            binary::append_or_prepend(writer.out, opcode_and_opaque, raw_key, value_bytes, 0);
        }
        _ => binary::store(writer.out, opcode_and_opaque, raw_key, &parameters),
    });
}

fn write_store_many(
    writer: &mut RequestWriter<'_>,
    (mode, exptime): (StoreMode, i64),
    items: &[Item<'_>],
    quiet: bool,
) {
    let first_opaque = *writer.next_opaque;
    for item in items {
        let opcode_and_opaque = begin_request(writer, store_opcode(mode), quiet);
        write_store_head(writer, opcode_and_opaque, mode, item, exptime);
        writer.out.extend_from_slice(item.body);
    }
    if quiet {
        let count = items.len() as u32;
        let opaque = writer.reserve_opaques(1);
        write_noop(writer.out, opaque);
        expect_binary_reply(
            writer,
            ExpectedBinaryReply::Quiet { first_opaque, count, noop_opaque: opaque },
        );
    }
}

fn write_delete(writer: &mut RequestWriter<'_>, key: WireKey<'_>, quiet: bool) {
    let opcode_and_opaque = begin_request(writer, opcode::DELETE, quiet);
    with_raw_key(key, |raw_key| {
        binary::delete(writer.out, opcode_and_opaque, raw_key, 0);
    });
}

fn write_arithmetic(
    writer: &mut RequestWriter<'_>,
    key: WireKey<'_>,
    arithmetic: &Arithmetic,
    quiet: bool,
) {
    let arithmetic_opcode =
        if arithmetic.is_decrement { opcode::DECREMENT } else { opcode::INCREMENT };
    let opcode_and_opaque = begin_request(writer, arithmetic_opcode, quiet);
    let parameters = ArithParameters {
        delta: arithmetic.delta,
        initial: arithmetic.initial.map(|(number, exptime)| (number, to_wire_exptime(exptime))),
        required_cas: 0,
    };
    with_raw_key(key, |raw_key| {
        binary::arith(writer.out, opcode_and_opaque, raw_key, &parameters);
    });
}

/// The exptime in 32 bits without a sign.
fn to_wire_exptime(exptime: i64) -> u32 {
    match exptime {
        ..0 => EXPIRED_EXPTIME,
        _ => u32::try_from(exptime).unwrap_or(EXPTIME_MAX).min(EXPTIME_MAX),
    }
}
