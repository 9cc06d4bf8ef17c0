//! The pieces of one `sendmsg`: a range of an output, bounded in bytes and in number.

use std::io::IoSlice;

/// Maximum number of pieces passed to the kernel in one call.
const PIECES_MAX: usize = 512;

/// Pieces for one call, and the bytes that can still be added.
pub(crate) struct SendVector<'o> {
    pub(crate) slices: Vec<IoSlice<'o>>,
    /// Bytes still to be skipped.
    bytes_to_skip: usize,
    /// Bytes that still fit.
    bytes_left: usize,
}

impl<'o> SendVector<'o> {
    /// Empty, for the range from `bytes_to_skip` to `bytes_to_skip + bytes_max` bytes.
    pub(crate) fn new(bytes_to_skip: usize, bytes_max: usize) -> Self {
        Self { slices: Vec::with_capacity(8), bytes_to_skip, bytes_left: bytes_max }
    }

    /// Adds the part of the next piece that is in the range; false when no more fits.
    pub(crate) fn push(&mut self, piece: &'o [u8]) -> bool {
        let skipped_bytes = self.bytes_to_skip.min(piece.len());
        self.bytes_to_skip -= skipped_bytes;
        let piece_in_range = piece.get(skipped_bytes..).unwrap_or_default();
        let piece_in_range = piece_in_range.get(..self.bytes_left).unwrap_or(piece_in_range);
        if !piece_in_range.is_empty() {
            self.bytes_left -= piece_in_range.len();
            self.slices.push(IoSlice::new(piece_in_range));
        }
        self.bytes_left > 0 && self.slices.len() < PIECES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_from_the_pieces_at_any_offset() {
        let (first, second, whole) = (b"abc", b"defgh", b"abcdefgh");
        for bytes_to_skip in 0..=8 {
            for bytes_max in 1..=8 {
                let mut send_vector = SendVector::new(bytes_to_skip, bytes_max);
                let _ = send_vector.push(first) && send_vector.push(second);
                let gathered: Vec<u8> =
                    send_vector.slices.iter().flat_map(|slice| slice.to_vec()).collect();
                assert_eq!(gathered, whole[bytes_to_skip..(bytes_to_skip + bytes_max).min(8)]);
            }
        }
    }

    #[test]
    fn no_call_gets_more_pieces_than_the_maximum() {
        let mut send_vector = SendVector::new(0, 1000);
        while send_vector.push(b"x") {}
        assert_eq!(send_vector.slices.len(), PIECES_MAX);
    }
}
