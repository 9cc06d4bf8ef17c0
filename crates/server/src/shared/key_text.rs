//! Keys in lines of text.

/// Whether a key has no blank and no control byte, so that a line may contain it.
pub(crate) fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 127)
}
