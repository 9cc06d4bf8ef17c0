//! Received bytes that are not consumed yet: one buffer that is reused from reply to reply.

/// Initial size of the buffer: a reply of a hundred small values in one receive. A small buffer is worse
/// than slow: with 4 KiB, large values meet a closed TCP window and wait 0.2 s for its probes.
const RECEIVE_BYTES: usize = 64 << 10;

/// Memory that an idle connection may keep; more is freed when the reply was consumed.
const RETAINED_BYTES_MAX: usize = 1 << 20;

/// A buffer with received bytes between `start` and `end`.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes from `offset`, counted from the first that is not consumed.
    pub(crate) fn slice(&self, offset: usize, byte_count: usize) -> Option<&[u8]> {
        let slice_start = self.start.checked_add(offset)?;
        self.buffer
            .get(slice_start..slice_start.checked_add(byte_count)?)
            .filter(|_| slice_start + byte_count <= self.end)
    }

    /// Everything from `offset` on.
    pub(crate) fn slice_from(&self, offset: usize) -> &[u8] {
        self.buffer.get(self.start + offset..self.end).unwrap_or_default()
    }

    /// Free space for the next receive: `byte_count` bytes, or less while few bytes have been received. The buffer at
    /// most doubles each time, so that its size follows what was received and not the length that a peer announces.
    pub(crate) fn receive_space(&mut self, byte_count: usize) -> &mut [u8] {
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.len() - self.end < byte_count.clamp(1, RECEIVE_BYTES) && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let free_byte_count = self.buffer.len() - self.end;
        if free_byte_count < byte_count || self.buffer.is_empty() {
            let doubled_capacity = self.buffer.len().max(RECEIVE_BYTES / 2) * 2;
            // Space for a whole receive, but at most twice the present size, even if a head announces a gigabyte.
            let capacity = (self.end + byte_count.max(RECEIVE_BYTES))
                .clamp(RECEIVE_BYTES, doubled_capacity.max(RECEIVE_BYTES));
            if capacity > self.buffer.len() {
                self.buffer.resize(capacity, 0);
            }
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    pub(crate) fn mark_received(&mut self, byte_count: usize) {
        self.end = (self.end + byte_count).min(self.buffer.len());
    }

    /// Consumes `byte_count` bytes from the front.
    pub(crate) fn consume(&mut self, byte_count: usize) {
        self.start = (self.start + byte_count).min(self.end);
        if self.is_empty() && self.buffer.len() > RETAINED_BYTES_MAX {
            self.buffer = Vec::new();
            self.start = 0;
            self.end = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_gets_room_for_a_whole_receive_and_at_most_doubles() {
        let mut buffer = ReceiveBuffer::default();
        for doubled_capacity in [RECEIVE_BYTES, 2 * RECEIVE_BYTES] {
            let free_byte_count = buffer.receive_space(1).len();
            assert_eq!(free_byte_count, RECEIVE_BYTES);
            buffer.mark_received(free_byte_count);
            assert_eq!(buffer.len(), doubled_capacity);
        }
        assert_eq!(buffer.receive_space(1 << 30).len(), 2 * RECEIVE_BYTES);
    }
}
