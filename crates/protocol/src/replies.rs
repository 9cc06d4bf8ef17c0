//! Reply lines without variable parts, byte for byte memcached's because clients compare them.

/// Ends the reply of a `get`.
pub const END: &[u8] = b"END\r\n";
/// The value is stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// The condition of add, replace, append or prepend did not hold.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The unique of a `cas` did not match.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// There is no such item.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// The item is gone.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The item has its new expiry.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// An administrative command was executed.
pub const OK: &[u8] = b"OK\r\n";
/// `stats reset` was executed.
pub const RESET: &[u8] = b"RESET\r\n";
/// An unknown command.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The line has invalid syntax for its command.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// The line has too few tokens.
pub const BAD_LINE: &[u8] = b"CLIENT_ERROR bad command line\r\n";
/// The value is not followed by a line ending.
pub const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// The exptime is not a number.
pub const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// The delta of incr or decr is not a number.
pub const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// The value under the key is not a number.
pub const NOT_A_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// A line that does not end within its bound; the connection closes after the reply.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// The value is larger than `-I` allows.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// No memory for a new item.
pub const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// No memory for a changed item.
pub const NO_MEMORY_ARITH: &[u8] = b"SERVER_ERROR out of memory\r\n";
/// More connections than `-c` allows.
pub const TOO_MANY_CONNECTIONS: &[u8] = b"ERROR Too many open connections\r\n";
/// A meta flag appears twice.
pub const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// A meta flag is unknown.
pub const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// A meta arithmetic line has a bad flag of any kind.
pub const ARITH_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
/// The argument of a meta flag is invalid.
pub const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
/// The base64 key is invalid.
pub const BAD_KEY: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
/// The opaque is longer than its bound.
pub const OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
/// The line has more flags than its bound.
pub const TOO_MANY_FLAGS: &[u8] = b"CLIENT_ERROR options flags are too long\r\n";
/// An unknown mode of a meta set.
pub const BAD_SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
/// An unknown mode of a meta arithmetic.
pub const BAD_ARITH_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";
