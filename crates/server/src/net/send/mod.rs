//! Sending the output of a run, and keeping the part that the socket did not accept or that is deferred.
//!
//! While the kernel copies a large value, this worker serves no other connection: while there are others,
//! the output of a run is cut after `QUOTA_BYTES` (docs/decisions/server.md, 0025).

mod pending_output;

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub(crate) use self::pending_output::PendingOutput;
use self::pending_output::WaitReason;
use crate::net::stream::Stream;
use crate::session::context::Context;
use crate::session::output::Output;

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

/// Whether the socket has space for a whole slice as made under high pressure: the kernel reports a socket as
/// writable once a third of its send buffer is free.
pub(crate) fn is_writable(socket: &OwnedFd) -> bool {
    let mut poll_fds = [PollFd::new(socket, PollFlags::OUT)];
    let zero_timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
    // The next operation on the socket reports the error.
    !matches!(poll(&mut poll_fds, Some(&zero_timeout)), Ok(0))
}

/// Sends `out`, and returns the unsent rest and the result.
pub(crate) fn send_output(
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
