//! Binary requests, written by a client into its output buffer.
//!
//! Keys arrive checked (1 to 250 bytes). The value of a store is not written here: the head gives its length, and
//! the transport sends head and value together.

use super::header::{Header, MAGIC_REQUEST};
use super::{OpcodeAndOpaque, opcode};

/// The head of a set, add or replace, without opcode and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinaryStoreParameters {
    /// Client flags.
    pub flags: u32,
    /// The exptime as it goes on the wire.
    pub exptime: u32,
    /// Length of the value in bytes.
    pub value_bytes: u32,
    /// The CAS unique that the item must have; 0 is any.
    pub required_cas: u64,
}

/// An increment or decrement, without opcode and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArithParameters {
    /// The delta.
    pub delta: u64,
    /// The number and the exptime of an item made where none is.
    pub initial: Option<(u64, u32)>,
    /// The CAS unique that the item must have; 0 is any.
    pub required_cas: u64,
}

/// Appends a get, in any of its four forms.
#[inline]
pub fn get(out: &mut Vec<u8>, opcode_and_opaque: OpcodeAndOpaque, key: &[u8]) {
    write_request(out, opcode_and_opaque, 0, b"", key, 0);
}

/// Appends a touch or a gat, in any of its forms.
pub fn touch(out: &mut Vec<u8>, opcode_and_opaque: OpcodeAndOpaque, key: &[u8], exptime: u32) {
    write_request(out, opcode_and_opaque, 0, &exptime.to_be_bytes(), key, 0);
}

/// Appends the head of a set, add or replace; the value follows it on the wire.
pub fn store(
    out: &mut Vec<u8>,
    opcode_and_opaque: OpcodeAndOpaque,
    key: &[u8],
    parameters: &BinaryStoreParameters,
) {
    let extras_number = (u64::from(parameters.flags) << 32) | u64::from(parameters.exptime);
    let extras = extras_number.to_be_bytes();
    write_request(
        out,
        opcode_and_opaque,
        parameters.required_cas,
        &extras,
        key,
        parameters.value_bytes,
    );
}

/// Appends the head of an append or prepend; the value follows it on the wire.
pub fn append_or_prepend(
    out: &mut Vec<u8>,
    opcode_and_opaque: OpcodeAndOpaque,
    key: &[u8],
    value_bytes: u32,
    required_cas: u64,
) {
    write_request(out, opcode_and_opaque, required_cas, b"", key, value_bytes);
}

/// Appends a delete; a `required_cas` of 0 is any CAS unique.
pub fn delete(
    out: &mut Vec<u8>,
    opcode_and_opaque: OpcodeAndOpaque,
    key: &[u8],
    required_cas: u64,
) {
    write_request(out, opcode_and_opaque, required_cas, b"", key, 0);
}

/// Appends an increment or decrement.
pub fn arith(
    out: &mut Vec<u8>,
    opcode_and_opaque: OpcodeAndOpaque,
    key: &[u8],
    parameters: &ArithParameters,
) {
    let (initial, exptime) = parameters.initial.unwrap_or((0, u32::MAX));
    let mut extras = [0; 20];
    let (delta_part, after_delta) = extras.split_at_mut(8);
    delta_part.copy_from_slice(&parameters.delta.to_be_bytes());
    let (initial_part, exptime_part) = after_delta.split_at_mut(8);
    initial_part.copy_from_slice(&initial.to_be_bytes());
    exptime_part.copy_from_slice(&exptime.to_be_bytes());
    write_request(out, opcode_and_opaque, parameters.required_cas, &extras, key, 0);
}

/// Appends a login by SASL PLAIN (RFC 4616). Neither the user nor the password may contain a NUL.
pub fn sasl_plain(out: &mut Vec<u8>, opaque: u32, user: &[u8], password: &[u8]) {
    let message_bytes = (user.len() + password.len()) as u32 + 2;
    write_request(
        out,
        OpcodeAndOpaque { opcode: opcode::SASL_AUTH, opaque },
        0,
        b"",
        b"PLAIN",
        message_bytes,
    );
    for part in [user, password] {
        out.push(0);
        out.extend_from_slice(part);
    }
}

/// Appends a flush, after `delay_s` seconds if not 0.
pub fn flush(out: &mut Vec<u8>, opaque: u32, delay_s: u32) {
    let extras = delay_s.to_be_bytes();
    let opcode_and_opaque = OpcodeAndOpaque { opcode: opcode::FLUSH, opaque };
    write_request(out, opcode_and_opaque, 0, &extras, b"", 0);
}

/// Appends a request for statistics, of one family if `argument` is not empty.
pub fn stat(out: &mut Vec<u8>, opaque: u32, argument: &[u8]) {
    let opcode_and_opaque = OpcodeAndOpaque { opcode: opcode::STAT, opaque };
    write_request(out, opcode_and_opaque, 0, b"", argument, 0);
}

/// Appends a request that is a header alone: noop, version, quit, the list of SASL mechanisms.
pub fn header_only(out: &mut Vec<u8>, opcode_and_opaque: OpcodeAndOpaque) {
    write_request(out, opcode_and_opaque, 0, b"", b"", 0);
}

#[inline]
fn write_request(
    out: &mut Vec<u8>,
    opcode_and_opaque: OpcodeAndOpaque,
    required_cas: u64,
    extras: &[u8],
    key: &[u8],
    value_bytes: u32,
) {
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: opcode_and_opaque.opcode,
        key_bytes: key.len() as u16,
        extras_bytes: extras.len() as u8,
        body_bytes: ((extras.len() + key.len()) as u32).saturating_add(value_bytes),
        opaque: opcode_and_opaque.opaque,
        cas: required_cas,
        ..Header::default()
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
}
