//! Limits of the wire format: what a peer may send before it is refused.

/// Maximum key length in bytes, after base64 decoding where a meta command uses it.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest command line in bytes, the keys of a get excepted; memcached has the same limit.
pub const LINE_BYTES_MAX: usize = 2048;

/// Key bytes that one `get` line may carry: room for 80,000 keys of 13 bytes, and a bound for an endless line.
pub const GET_KEYS_BYTES_MAX: usize = 1 << 20;

/// Largest value length that is accepted as a number; in memcached the largest `int` minus two.
pub const VALUE_BYTES_MAX: u32 = i32::MAX as u32 - 2;

/// Maximum length in bytes of the opaque token of a meta command, its letter included.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// Maximum number of tokens on a meta line, command and key included.
pub const META_TOKENS_MAX: usize = 20;

/// Maximum length in bytes of a line, a value or a message before the login. A user and a password need far less,
/// and anybody can make the server keep this much.
pub const LOGIN_BYTES_MAX: usize = 512;
