//! The length of the value on the line of a storage command, in the text and meta protocols.

use super::LineRefusal;
use crate::ascii;
use crate::limits::VALUE_BYTES_MAX;
use crate::replies;

/// The length of a value. A number beyond all bounds announces bytes that can be neither received
/// nor executed.
pub(crate) fn parse_value_length(text: &[u8]) -> Result<u32, LineRefusal> {
    match ascii::parse_u32(text) {
        Some(value_bytes) if value_bytes <= VALUE_BYTES_MAX => Ok(value_bytes),
        _ if text.first().is_some_and(u8::is_ascii_digit) => {
            Err(LineRefusal::of_unknown_length(replies::BAD_FORMAT))
        }
        _ => Err(LineRefusal::new(replies::BAD_FORMAT)),
    }
}
