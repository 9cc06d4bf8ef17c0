//! The bounds of the wire: what a peer may send before it is refused.

/// Longest key in bytes, after base64 decoding where a meta command uses it.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest command line in bytes, save for the keys of a get: memcached gives up at the same length.
pub const LINE_BYTES_MAX: usize = 2048;

/// Key bytes that one `get` line may carry: 80,000 keys of 13 bytes fit, an endless line does not.
pub const GET_KEY_BYTES_MAX: usize = 1 << 20;

/// Longest value length that is taken as a number at all; memcached's is the largest `int` less two.
pub const VALUE_BYTES_MAX: u32 = i32::MAX as u32 - 2;

/// Longest opaque token of a meta command, its letter included.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// Most tokens on a meta line, command and key included.
pub const META_TOKENS_MAX: usize = 20;
