//! Keys in lines of text.

/// Whether a key has no blank and no control byte, so that a line may contain it.
pub(crate) fn fits_in_line(key: &[u8]) -> bool {
    key.iter().all(|byte| *byte > b' ' && *byte != 127)
}
