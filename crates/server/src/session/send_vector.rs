//! The pieces of one `sendmsg`: a range of an output, bounded in bytes and in number.

use std::io::IoSlice;

/// Maximum number of pieces passed to the kernel in one call.
const PIECES_MAX: usize = 64;

/// Pieces for one call, and the bytes that can still be added.
pub(crate) struct SendVector<'o> {
    pub(crate) pieces: Vec<IoSlice<'o>>,
    /// Bytes still to be skipped.
    skip: usize,
    /// Bytes that still fit.
    room: usize,
}

impl<'o> SendVector<'o> {
    /// Empty, for the range from `skip` to `skip + most` bytes.
    pub(crate) fn new(skip: usize, most: usize) -> Self {
        Self {
            pieces: Vec::with_capacity(8),
            skip,
            room: most,
        }
    }

    /// Adds the part of the next piece that is in the range; false when no more fits.
    pub(crate) fn push(&mut self, piece: &'o [u8]) -> bool {
        let skipped = self.skip.min(piece.len());
        self.skip -= skipped;
        let rest = piece.get(skipped..).unwrap_or_default();
        let rest = rest.get(..self.room).unwrap_or(rest);
        if !rest.is_empty() {
            self.room -= rest.len();
            self.pieces.push(IoSlice::new(rest));
        }
        self.room > 0 && self.pieces.len() < PIECES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_from_the_pieces_at_any_offset() {
        let (first, second, whole) = (b"abc", b"defgh", b"abcdefgh");
        for skip in 0..=8 {
            for most in 1..=8 {
                let mut gathered = SendVector::new(skip, most);
                let _ = gathered.push(first) && gathered.push(second);
                let bytes: Vec<u8> = gathered.pieces.iter().flat_map(|p| p.to_vec()).collect();
                assert_eq!(bytes, whole[skip..(skip + most).min(8)]);
            }
        }
    }

    #[test]
    fn no_call_gets_more_pieces_than_the_maximum() {
        let mut gathered = SendVector::new(0, 1000);
        while gathered.push(b"x") {}
        assert_eq!(gathered.pieces.len(), PIECES_MAX);
    }
}
