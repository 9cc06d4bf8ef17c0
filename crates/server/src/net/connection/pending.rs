//! Input that cannot be parsed yet, charged to the memory that peers may hold.
//!
//! For an incomplete command of known length all of its memory is allocated at once and the rest is received into
//! it, so that each byte is copied once, however slowly it arrives.

use std::sync::Arc;

use crate::shared::peer_memory::{Charge, PeerMemory};

/// Buffered input; allocates nothing while it is empty.
#[derive(Default)]
pub(super) struct PendingInput(Option<BufferedInput>);

struct BufferedInput {
    bytes: Vec<u8>,
    /// Number of bytes from which on the input can be parsed; 0 if unknown.
    command_bytes: usize,
    charge: Charge,
}

impl PendingInput {
    /// A copy of `input`.
    pub(super) fn copy_of(input: &[u8], memory: &Arc<PeerMemory>) -> PendingInput {
        let copy = || BufferedInput {
            bytes: input.to_vec(),
            command_bytes: 0,
            charge: memory.charge(input.len()),
        };
        PendingInput((!input.is_empty()).then(copy))
    }

    /// An empty buffer for a command of `command_bytes`, charged to `charge`.
    pub(super) fn with_capacity(command_bytes: usize, charge: Charge) -> PendingInput {
        PendingInput(Some(BufferedInput {
            bytes: Vec::with_capacity(command_bytes),
            command_bytes,
            charge,
        }))
    }

    /// Reserves memory for a command of `command_bytes`; 0 if its length is unknown.
    pub(super) fn grow(&mut self, command_bytes: usize) {
        if let Some(buffered) = &mut self.0
            && command_bytes > buffered.bytes.len()
        {
            buffered.bytes.reserve_exact(command_bytes.saturating_sub(buffered.bytes.len()));
            buffered.command_bytes = command_bytes;
            if buffered.charge.bytes() < command_bytes {
                buffered.charge.set(command_bytes);
            }
        }
    }

    /// Whether it is the beginning of a command of known length whose memory is reserved.
    pub(super) fn is_incomplete(&self) -> bool {
        self.0.as_ref().is_some_and(|buffered| buffered.bytes.len() < buffered.command_bytes)
    }

    /// The spare capacity, into which the missing bytes are received.
    pub(super) fn buffer_mut(&mut self) -> Option<&mut Vec<u8>> {
        self.0.as_mut().map(|buffered| &mut buffered.bytes)
    }

    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|buffered| buffered.bytes.as_slice())
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().map_or(0, <[u8]>::len)
    }

    /// Whether nothing is buffered and no memory is reserved.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn charged_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |buffered| buffered.charge.bytes())
    }
}

#[cfg(test)]
mod tests {
    use glasscache_store::{Config, Store};

    use super::*;

    fn memory() -> Arc<PeerMemory> {
        let config = Config { memory_bytes: 64 << 20, workers: 1, ..Config::default() };
        PeerMemory::new(Store::new(config).unwrap(), Vec::new())
    }

    #[test]
    fn a_command_received_in_pieces_stays_in_one_buffer() {
        let memory = memory();
        let mut pending = PendingInput::copy_of(b"set a 0 0 60000\r\n", &memory);
        assert!(!pending.is_incomplete());
        pending.grow(60_019);
        let buffer_address = pending.bytes().unwrap().as_ptr();
        while pending.is_incomplete() {
            let buffer = pending.buffer_mut().unwrap();
            buffer.extend_from_slice(&[b'x'; 59][..(60_019 - buffer.len()).min(59)]);
        }
        assert_eq!(pending.bytes().unwrap().as_ptr(), buffer_address);
        assert_eq!((pending.len(), memory.charged_bytes()), (60_019, 60_019));
        drop(pending);
        assert_eq!(memory.charged_bytes(), 0);
    }
}
