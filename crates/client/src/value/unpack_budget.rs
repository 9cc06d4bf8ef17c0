//! What the values of one call may take unpacked, together.
//!
//! Each value has its own bound; eight small values that unpack to just below it would still fill the memory of a reader
//! that asks for eight keys.

/// Bytes that a call's values may take unpacked for each byte of theirs on the wire, above the bound of a single value:
/// text and JSON compress to a tenth, logs to a thirtieth.
const BYTES_PER_WIRE_BYTE: usize = 32;

/// The values that a call has unpacked so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnpackBudget {
    unpacked_bytes: usize,
    wire_bytes: usize,
}

impl UnpackBudget {
    /// How many bytes the next value may take, which has `wire_bytes`, given the bound of a single value.
    pub(super) fn bytes_max(&self, wire_bytes: usize, value_bytes_max: usize) -> usize {
        let wire_bytes = self.wire_bytes.saturating_add(wire_bytes);
        let allowance = wire_bytes.saturating_mul(BYTES_PER_WIRE_BYTE);
        let call_bytes_max = value_bytes_max.saturating_add(allowance);
        call_bytes_max.saturating_sub(self.unpacked_bytes).min(value_bytes_max)
    }

    /// Counts a value that takes as much as its bytes on the wire.
    pub fn add_unpacked(&mut self, wire_bytes: usize) {
        self.add(wire_bytes, wire_bytes);
    }

    /// Counts a value that was read.
    pub(super) fn add(&mut self, wire_bytes: usize, unpacked_bytes: usize) {
        self.wire_bytes = self.wire_bytes.saturating_add(wire_bytes);
        self.unpacked_bytes = self.unpacked_bytes.saturating_add(unpacked_bytes);
    }
}
