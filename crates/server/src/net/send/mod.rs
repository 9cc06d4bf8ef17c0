//! Sending the output of a run, and keeping the part that the socket did not accept or that is deferred.
//!
//! While the kernel copies a large value, this worker serves no other connection: while there are others,
//! the output of a run is cut after `QUOTA_BYTES` (docs/decisions/server.md, 0025).

mod pending_output;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use self::pending_output::{PendingOutput, WaitReason};
use crate::net::stream::Stream;
use crate::session::context::Context;
use crate::session::output::Output;
use crate::shared::counters::Counters;
use crate::shared::peer_memory::PeerMemory;

/// Bytes that one connection sends at a time while there are no others: more than a socket accepts.
pub(crate) const UNSHARED_QUOTA_BYTES: usize = 16 << 20;

/// The result of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// Everything was sent.
    All,
    /// Its quota was sent; the socket accepts more.
    QuotaUsed,
    /// The socket accepted a part.
    Partial,
    /// The connection is broken.
    Failed,
}

/// The output of a connection, as far as it could not be sent yet.
#[derive(Default)]
pub(crate) struct ConnectionOutput {
    pending: Option<Box<PendingOutput>>,
    /// The connection is closed once its pending output is sent.
    is_closing: bool,
}

impl ConnectionOutput {
    /// Rendered output, of a previous process or the last of this one.
    pub(crate) fn from_rendered(
        bytes: Vec<u8>,
        is_closing: bool,
        peer_memory: &Arc<PeerMemory>,
    ) -> ConnectionOutput {
        ConnectionOutput { pending: PendingOutput::from_copy(bytes, peer_memory), is_closing }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether the connection is closed once its pending output is sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    pub(crate) fn close_when_sent(&mut self) {
        self.is_closing = true;
    }

    /// Bytes that it keeps in memory, copied or held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.memory_bytes())
    }

    /// Number of unsent bytes.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.unsent_bytes())
    }

    /// A copy of the unsent bytes.
    pub(crate) fn copy_unsent(&self) -> Vec<u8> {
        self.pending.as_ref().map_or_else(Vec::new, |pending| pending.copy_unsent())
    }

    /// Whether some of it is in the memory of the store.
    pub(crate) fn has_held_values(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.has_held_values())
    }

    /// Copies the held values, whose memory another process may use soon, if they have at most `copied_bytes_left`
    /// bytes, which are subtracted, and fit into the memory for peers.
    pub(crate) fn copy_held_values(
        &mut self,
        copied_bytes_left: &mut usize,
        peer_memory: &PeerMemory,
    ) {
        if let Some(pending) = &mut self.pending {
            pending.copy_held_values(copied_bytes_left, peer_memory);
        }
    }

    /// Sends the output of a run, before which nothing is pending, and keeps the rest.
    pub(crate) fn send(
        &mut self,
        out: &mut Output<'_>,
        stream: &mut Stream,
        context: &Context<'_>,
    ) -> SendOutcome {
        let (send_outcome, pending) = send_output(stream, out, context);
        self.pending = pending;
        if out.release_held_values() {
            context.shared.peer_memory.record_release();
        }
        if send_outcome == SendOutcome::All && stream.has_buffered_output() {
            return SendOutcome::Partial;
        }
        send_outcome
    }

    /// Sends pending output, up to a quota of it.
    pub(crate) fn resume(&mut self, stream: &mut Stream, context: &Context<'_>) -> SendOutcome {
        if let Some(pending) = &mut self.pending {
            match pending.send(stream, context) {
                SendOutcome::All => self.pending = None,
                send_outcome => return send_outcome,
            }
        }
        match stream.flush(context.counters) {
            Ok(()) => SendOutcome::All,
            Err(Errno::AGAIN) => SendOutcome::Partial,
            Err(_) => SendOutcome::Failed,
        }
    }

    /// Sends copied output as far as the socket accepts it, without a store; true when nothing is left. A broken
    /// connection has none.
    pub(crate) fn send_copied(&mut self, stream: &mut Stream, counters: &Counters) -> bool {
        if let Some(pending) = &mut self.pending
            && pending.send_copied(stream, counters)
        {
            self.pending = None;
        }
        if self.pending.is_none() {
            // The rest is tried again, or closed when the time is over.
            let _ = stream.flush(counters);
        }
        self.pending.is_none() && !stream.has_buffered_output()
    }
}

/// Whether the socket has space for a whole slice as made under high pressure: the kernel reports a socket as
/// writable once a third of its send buffer is free.
pub(crate) fn is_writable(socket: &OwnedFd) -> bool {
    let mut poll_fds = [PollFd::new(socket, PollFlags::OUT)];
    let zero_timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The next operation on the socket reports the error.
    !matches!(poll(&mut poll_fds, Some(&zero_timeout)), Ok(0))
}

/// Sends `out`, and returns the unsent rest and the result.
fn send_output(
    stream: &mut Stream,
    out: &Output<'_>,
    context: &Context<'_>,
) -> (SendOutcome, Option<Box<PendingOutput>>) {
    let mut sent_bytes = 0;
    let mut quota_end = context.quota_bytes;
    while sent_bytes < out.len() {
        let send_result = if out.is_all_rendered() {
            stream.send(out.bytes.get(sent_bytes..).unwrap_or_default(), context.counters)
        } else {
            let send_vector = out.gather(sent_bytes, quota_end - sent_bytes);
            stream.send_pieces(&send_vector, quota_end < out.len(), context.counters)
        };
        match send_result {
            Ok(newly_sent_bytes) => sent_bytes += newly_sent_bytes,
            Err(Errno::AGAIN) => {
                let pending_output =
                    PendingOutput::new(out, sent_bytes, WaitReason::Socket, context);
                return (
                    pending_output.as_ref().map_or(SendOutcome::Failed, |_| SendOutcome::Partial),
                    pending_output,
                );
            }
            Err(Errno::INTR) => {}
            Err(_) => return (SendOutcome::Failed, None),
        }
        if sent_bytes >= quota_end && sent_bytes < out.len() {
            if let Some(pending_output) =
                PendingOutput::new(out, sent_bytes, WaitReason::Quota, context)
            {
                return (SendOutcome::QuotaUsed, Some(pending_output));
            }
            // Output that cannot be kept has to be sent at once.
            quota_end = sent_bytes + context.quota_bytes;
        }
    }
    (SendOutcome::All, None)
}
