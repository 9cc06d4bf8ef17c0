//! What a worker lends to the connection it serves, and how much is received into it at a time.

use crate::shared::sizes::INPUT_BYTES;

/// Bytes received beside a large value, and first of all after one: the next one's line fits, and what
/// comes with it, which has to be copied into the store, is little.
pub(super) const RECV_BYTES_UPLOADER: usize = 2 << 10;

/// Bytes received of a connection that is read ahead of serving others.
pub(crate) const READ_AHEAD_BYTES: usize = 4 << 10;

/// Where the input that a connection is served comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'h> {
    /// What was kept of earlier input.
    Kept,
    /// The socket, behind what was kept.
    Socket,
    /// Received already; where it is [`HEARD_BYTES`] long the socket may have more.
    ReadAhead(&'h [u8]),
}

impl<'h> Source<'h> {
    /// What was read ahead, if the socket had no more.
    pub(super) fn whole(self) -> Option<&'h [u8]> {
        match self {
            Source::ReadAhead(input) if input.len() < READ_AHEAD_BYTES => Some(input),
            _ => None,
        }
    }
}

/// What a worker lends to the connection it serves.
pub(crate) struct Buffers {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
}

/// A rendering buffer that grew beyond this, for one long reply, is given back after it.
const OUTPUT_BYTES_KEPT: usize = 512 << 10;

impl Buffers {
    /// Takes the rendering buffer back.
    pub(super) fn put_output(&mut self, bytes: Vec<u8>) {
        self.output = if bytes.capacity() > OUTPUT_BYTES_KEPT {
            Vec::new()
        } else {
            bytes
        };
    }

    pub(crate) fn new() -> Buffers {
        Buffers {
            input: vec![0; INPUT_BYTES],
            output: Vec::new(),
        }
    }
}

/// How much input there is to be served.
pub(super) struct Received {
    pub(super) filled: usize,
    /// The socket filled all the room that there was: it has more.
    pub(super) is_full: bool,
}

impl Received {
    /// So many bytes, and no sign of more.
    pub(super) fn less(filled: usize) -> Received {
        Received {
            filled,
            is_full: false,
        }
    }
}
