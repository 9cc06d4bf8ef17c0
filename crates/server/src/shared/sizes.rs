//! How much is received, rendered, sent and examined at a time: bounds that several parts of the server share.

/// Values of at least this size are received into the store's memory; smaller ones are collected in the
/// connection's buffer first, since an incomplete reservation keeps its segment open.
pub(crate) const UPLOAD_BYTES_MIN: u32 = 64 << 10;

/// Bytes received at a time: enough for hundreds of commands, and small enough that most of a large value is
/// received directly into the store's memory.
pub(crate) const RECV_BYTES: usize = 16 << 10;

/// The input buffer of a worker: the longest incomplete command, and space to receive after it.
pub(crate) const INPUT_BYTES: usize = UPLOAD_BYTES_MIN as usize + 4096 + RECV_BYTES;

/// Bytes that one connection sends before others are served.
pub(crate) const QUOTA_BYTES: usize = 64 << 10;

/// Output beyond this is sent before more is made.
pub(crate) const SLICE_BYTES: usize = 64 << 10;

/// The same for output with large values, which are sent from where they lie.
pub(crate) const SLICE_BYTES_BY_REFERENCE: usize = 1 << 20;

/// The same while memory for peers is short: with one small value more it still fits into a writable socket.
pub(crate) const SLICE_BYTES_HIGH_PRESSURE: usize = 8 << 10;

/// Approximate maximum of items, connections or prefixes that one slice of a long reply examines.
pub(crate) const SLICE_EXAMINED: usize = 256;

/// Whether a slice of a long reply has examined or rendered enough.
pub(crate) fn is_slice_full(examined: usize, rendered_bytes: usize) -> bool {
    examined >= SLICE_EXAMINED || rendered_bytes >= SLICE_BYTES
}
