//! The binary protocol, deprecated upstream and still used by many clients: `parse` and `write` are the
//! server's end of it, `request` and `reply` the client's.
//!
//! A packet is a header of 24 bytes, then extras, a key and a value, whose lengths the header gives. Opcodes,
//! statuses and error texts are those of memcached 1.6.45.

mod header;
pub mod opcode;
mod parse;
pub mod reply;
pub mod request;
mod status;
mod write;

pub use header::{HEADER_BYTES, Header, MAGIC_REQUEST, MAGIC_RESPONSE};
pub use parse::{Command, Get, OpcodeAndOpaque, PacketRefusal, Parsed, likely_key, parse};
pub use status::Status;
pub use write::{
    StoredItem, value_head_bytes_max, write_error, write_error_with_text, write_miss_with_key,
    write_number, write_stat, write_success, write_text, write_touched, write_value_head,
};
