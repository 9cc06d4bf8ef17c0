//! Why bytes did not decompress: returned by every compressor and reported by the codec.

/// Why bytes did not decompress.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecompressError {
    /// They would pass the bound.
    TooLarge,
    /// They do not match their flags.
    Corrupt,
}
