//! When a value was computed and how long that took, stored with it: both decide about a refresh before it expires.
//!
//! The body begins with 16 bytes, little-endian: milliseconds since 1970 (8), microseconds that computing took (4), and
//! the flags of the value (4), whose own bytes follow. Only the own dialect has the form.

/// Bytes before the value's own.
const HEADER_BYTES: usize = 16;

/// When a value was computed, and how long that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeInfo {
    /// Milliseconds since 1970.
    pub made_at_ms: u64,
    /// Microseconds that making took; an hour and more is [`u32::MAX`].
    pub cost_us: u32,
}

impl ComputeInfo {
    /// The body of a value with its compute info.
    pub(super) fn to_body(self, flags: u32, bytes: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(HEADER_BYTES + bytes.len());
        body.extend(self.made_at_ms.to_le_bytes());
        body.extend(self.cost_us.to_le_bytes());
        body.extend(flags.to_le_bytes());
        body.extend_from_slice(bytes);
        body
    }

    /// The compute info, the flags of the value and its bytes; `None` if the body is cut.
    pub(super) fn parse(body: &[u8]) -> Option<(Self, u32, &[u8])> {
        let (made_at_ms, remaining) = body.split_first_chunk()?;
        let (cost_us, remaining) = remaining.split_first_chunk()?;
        let (flags, bytes) = remaining.split_first_chunk()?;
        let compute_info = Self {
            made_at_ms: u64::from_le_bytes(*made_at_ms),
            cost_us: u32::from_le_bytes(*cost_us),
        };
        Some((compute_info, u32::from_le_bytes(*flags), bytes))
    }
}
