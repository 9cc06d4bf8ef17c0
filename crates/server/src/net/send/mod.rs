//! Sending the output of a run, and keeping what the socket did not take or what is sent after others were served.
//!
//! The kernel copies a megabyte in some 200 us, in which nobody else of this worker is served: what a run sends
//! is cut after `SHARE_BYTES` where others are about (docs/decisions/0025-large-transfers-last.md).

mod waiting;

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

pub(crate) use self::waiting::Waiting;
use self::waiting::Why;
use crate::session::context::Context;
use crate::session::gathered::Gathered;
use crate::session::output::Output;

/// What one connection sends at a time while there are no others: more than a socket takes.
pub(crate) const WHOLE_BYTES: usize = 16 << 20;

/// How far a send came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything.
    All,
    /// Its share; the socket takes more.
    Share,
    /// What the socket took.
    Some,
    /// The connection is broken.
    Failed,
}

/// Whether the socket takes so much that a slice under high pressure leaves whole: the kernel reports room once a
/// third of the send buffer is free.
pub(crate) fn is_writable(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // An error is found by whoever uses the socket next.
    !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
}

/// Sends `out`, and gives back what is left of it and how far it came.
pub(crate) fn output(
    socket: &OwnedFd,
    out: &Output<'_>,
    context: &Context<'_>,
) -> (Sent, Option<Box<Waiting>>) {
    let mut sent = 0;
    let mut share_end = context.share_bytes;
    while sent < out.len() {
        let outcome = if out.is_flat() {
            send(socket, out.bytes.get(sent..).unwrap_or_default(), context)
        } else {
            let gathered = out.gather(sent, share_end - sent);
            send_pieces(socket, &gathered, share_end < out.len(), context)
        };
        match outcome {
            Ok(bytes) => sent += bytes,
            Err(Errno::AGAIN) => {
                let waiting = Waiting::new(out, sent, Why::Full, context);
                return (
                    waiting.as_ref().map_or(Sent::Failed, |_| Sent::Some),
                    waiting,
                );
            }
            Err(Errno::INTR) => {}
            Err(_) => return (Sent::Failed, None),
        }
        if sent >= share_end && sent < out.len() {
            if let Some(waiting) = Waiting::new(out, sent, Why::Share, context) {
                return (Sent::Share, Some(waiting));
            }
            // What cannot be kept has to go at once.
            share_end = sent + context.share_bytes;
        }
    }
    (Sent::All, None)
}

fn send(socket: &OwnedFd, bytes: &[u8], context: &Context<'_>) -> Result<usize, Errno> {
    context.counters.send_calls.bump();
    let sent = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?;
    context.counters.bytes_written.add(sent as u64);
    Ok(sent)
}

/// Sends pieces; with `has_more` the kernel does not close a packet for them, since more follows at once.
fn send_pieces(
    socket: &OwnedFd,
    gathered: &Gathered<'_>,
    has_more: bool,
    context: &Context<'_>,
) -> Result<usize, Errno> {
    context.counters.send_calls.bump();
    let mut no_control = SendAncillaryBuffer::default();
    let more = if has_more {
        SendFlags::MORE
    } else {
        SendFlags::empty()
    };
    let flags = SendFlags::NOSIGNAL | more;
    let sent = rustix::net::sendmsg(socket, &gathered.pieces, &mut no_control, flags)?;
    context.counters.bytes_written.add(sent as u64);
    Ok(sent)
}
