//! Why bytes did not decompress: what every compressor answers and the codec tells.

/// Why bytes did not decompress.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// They would pass the bound.
    TooLarge,
    /// They are not what the flags say.
    Corrupt,
}
