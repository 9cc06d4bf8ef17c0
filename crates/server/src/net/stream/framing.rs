//! The records of TLS in a stream of bytes, by their headers alone.

/// Bytes of a record's header; the last two are the length of its body.
const HEADER_BYTES: usize = 5;

/// Longest body of a record in bytes, in TLS 1.2; a longer one is refused when it is read.
const BODY_BYTES_MAX: usize = (16 << 10) + 2048;

/// Longest record in bytes.
pub(crate) const RECORD_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;

/// By how much the body of a record is longer than its content, at least: what authenticates it.
const OVERHEAD_BYTES_MIN: usize = 16;

/// Where a stream stands: between two records, or inside one.
#[derive(Debug, Clone, Default)]
pub(super) struct Framing {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header so far.
    header_bytes: usize,
    /// Bytes of the body; 0 until the header is complete.
    body_bytes: usize,
    /// Bytes of the body that are still to come.
    missing_bytes: usize,
}

/// The records at the start of some bytes that are complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WholeRecords {
    /// Their bytes.
    pub(crate) bytes: usize,
    /// The most bytes of content that they can have.
    pub(crate) content_bytes_max: usize,
}

impl Framing {
    /// Whether the stream stands between two records.
    pub(super) fn is_between_records(&self) -> bool {
        self.header_bytes == 0 && self.missing_bytes == 0
    }

    /// Bytes of the record inside which the stream stands, all of them, as far as known; 0 between two records.
    pub(super) fn record_bytes(&self) -> usize {
        if self.is_between_records() { 0 } else { HEADER_BYTES + self.body_bytes }
    }

    /// Bytes until the end of the header or the body inside which the stream stands, or will stand.
    pub(super) fn bytes_to_boundary(&self) -> usize {
        if self.missing_bytes > 0 { self.missing_bytes } else { HEADER_BYTES - self.header_bytes }
    }

    /// Moves past `bytes`.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let step_bytes = self.step(bytes);
            bytes = bytes.get(step_bytes..).unwrap_or_default();
        }
    }

    /// The records that are complete in `bytes`, which come next. A record that is too long to be valid counts as
    /// complete: reading it fails.
    pub(super) fn whole_records(&self, bytes: &[u8]) -> WholeRecords {
        let mut framing = self.clone();
        let (mut position, mut whole) = (0, WholeRecords::default());
        let mut content_bytes_max = 0;
        while let Some(rest) = bytes.get(position..).filter(|rest| !rest.is_empty()) {
            position += framing.step(rest);
            if framing.body_bytes > BODY_BYTES_MAX {
                return WholeRecords { bytes: bytes.len(), content_bytes_max };
            }
            if framing.is_between_records() {
                content_bytes_max += framing.body_bytes.saturating_sub(OVERHEAD_BYTES_MIN);
                whole = WholeRecords { bytes: position, content_bytes_max };
            }
        }
        whole
    }

    /// Moves past the first of `bytes` that belong to one header or one body, and returns how many.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.missing_bytes > 0 {
            let step_bytes = self.missing_bytes.min(bytes.len());
            self.missing_bytes -= step_bytes;
            return step_bytes;
        }
        if self.header_bytes == 0 {
            self.body_bytes = 0;
        }
        let rest = self.header.get_mut(self.header_bytes..).unwrap_or_default();
        let step_bytes = rest.len().min(bytes.len());
        for (target, byte) in rest.iter_mut().zip(bytes) {
            *target = *byte;
        }
        self.header_bytes += step_bytes;
        if self.header_bytes == HEADER_BYTES {
            let [_, _, _, high, low] = self.header;
            self.body_bytes = usize::from(u16::from_be_bytes([high, low]));
            (self.missing_bytes, self.header_bytes) = (self.body_bytes, 0);
        }
        step_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(body_lengths: &[u16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in body_lengths {
            bytes.extend_from_slice(&[23, 3, 3]);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.resize(bytes.len() + usize::from(*length), 7);
        }
        bytes
    }

    #[test]
    fn an_invalid_length_counts_as_complete() {
        let bytes = [&records(&[100])[..], &[23, 3, 3, 0xff, 0xff, 1, 2]].concat();
        assert_eq!(Framing::default().whole_records(&bytes).bytes, bytes.len());
    }

    proptest! {
        /// However the stream is cut: the position is exact, and so is what is complete of the rest.
        #[test]
        fn records_are_found_however_the_stream_is_cut(
            body_lengths in proptest::collection::vec(0_u16..300, 1..10),
            cut in any::<prop::sample::Index>(),
            end in any::<prop::sample::Index>(),
        ) {
            let bytes = records(&body_lengths);
            let (cut, end) = (cut.index(bytes.len() + 1), end.index(bytes.len() + 1));
            let (cut, end) = (cut.min(end), cut.max(end));
            let ends: Vec<usize> = body_lengths
                .iter()
                .scan(0, |position, length| {
                    *position += HEADER_BYTES + usize::from(*length);
                    Some(*position)
                })
                .collect();
            let mut framing = Framing::default();
            framing.advance(&bytes[..cut]);
            prop_assert_eq!(framing.is_between_records(), cut == 0 || ends.contains(&cut));
            let last_end = ends.iter().copied().filter(|position| *position <= end).max();
            let whole = framing.whole_records(&bytes[cut..end]);
            prop_assert_eq!(whole.bytes, last_end.unwrap_or(0).saturating_sub(cut));
            // A record that began before the cut is counted with all of its content.
            prop_assert!(whole.content_bytes_max <= whole.bytes + framing.record_bytes());
        }
    }
}
