//! The write buffer: quiet writes to one server are collected and many of them sent at once.
//!
//! A single write is sent at once. Of a burst, the second and all later ones
//! are enqueued here, and leave with the next call to the server, before it and on its own
//! connection, on any thread; or when there are [`BATCH_BYTES_MAX`] of them; or after [`SEND_DELAY_MAX`] by a
//! thread that exists only while there are such bursts; or when the client is closed or dropped
//! (docs/decisions/client.md, 0054). What is buffered here belongs to the process that
//! buffered it: a child after a fork has servers of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::engine::pending_writes::PendingWrites;
use crate::engine::server::ServerState;
use crate::fork::random_opaque;
use crate::pipeline::Pipeline;
use crate::request::{CommandSet, Request, RequestWriter};
use crate::thread_id::this_thread_id;

/// Buffered bytes of one server from which on the writing thread sends them: a send of this length costs
/// a twentieth of what its writes cost one by one, and a longer one gains nothing more.
const BATCH_BYTES_MAX: usize = 32 << 10;

/// How long a buffered write waits at most before it is sent.
const SEND_DELAY_MAX: Duration = Duration::from_millis(1);

/// Writes that follow each other within this time are a burst.
const BURST_GAP_MAX: Duration = Duration::from_micros(100);

/// The buffered writes of one server.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    /// Whether anything is buffered, or taken and not sent yet. Relaxed: a thread that may rely on an earlier write has
    /// synchronised with it, and any other call may begin before it.
    has_buffered: AtomicBool,
    state: Mutex<WriteBufferState>,
    /// Signalled when a taken batch was sent.
    batch_sent: Condvar,
}

#[derive(Debug, Default)]
struct WriteBufferState {
    out: Vec<u8>,
    pending: PendingWrites,
    /// The thread that enqueued the last of them.
    writer_thread_id: usize,
    /// When the first of them was enqueued.
    oldest_enqueued_at: Option<Instant>,
    /// When the last quiet write was made.
    last_write_at: Option<Instant>,
    next_opaque: u32,
    /// A call has taken writes and has not sent all of them yet.
    is_being_sent: bool,
    /// Calls that wait for that.
    waiting_calls: usize,
    /// Quiet writes expect no reply, so this pipeline is never polled.
    unread_pipeline: Option<Box<Pipeline>>,
    sender: SenderState,
}

/// The state of the thread that sends the writes that no call has sent.
#[derive(Debug, Default)]
enum SenderState {
    /// It is not running.
    #[default]
    NotRunning,
    /// It is running.
    Awake,
    /// It waits to be woken.
    Asleep(Thread),
}

/// What the caller of a quiet write does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BufferResult {
    /// It is not part of a burst, or cannot be buffered: send it.
    SendNow,
    /// It was enqueued.
    Enqueued,
    /// It was enqueued, and a thread must be started that sends it if no call does.
    EnqueuedWithoutSender,
    /// It was enqueued, and the caller sends all: there are enough, or no thread could be started.
    CallerSendsBatch,
}

impl WriteBuffer {
    fn state(&self) -> MutexGuard<'_, WriteBufferState> {
        // Nothing in this file can panic with the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether writes are buffered, or taken and not sent yet.
    pub(crate) fn has_buffered(&self) -> bool {
        self.has_buffered.load(Ordering::Relaxed)
    }

    /// Drops the buffered writes, which count as lost.
    pub(crate) fn drop_buffered_writes(&self) {
        let mut state = self.state();
        state.out.clear();
        let lost_writes = std::mem::take(&mut state.pending);
        state.oldest_enqueued_at = None;
        self.has_buffered.store(state.is_being_sent, Ordering::Relaxed);
        drop(state);
        drop(lost_writes);
    }

    /// Enqueues a quiet write, if it follows another closely and `server` can take it.
    pub(crate) fn buffer_write(
        &self,
        server: &Arc<ServerState>,
        request: &Request<'_>,
        now: Instant,
    ) -> BufferResult {
        let has_quiet_writes = |command_set| command_set != CommandSet::Classic;
        let can_buffer = server.command_set().is_some_and(has_quiet_writes)
            && request.external_body().is_none()
            && !server.health.is_down();
        if !can_buffer {
            return BufferResult::SendNow;
        }
        let mut state = self.state();
        let previous_write_at = state.last_write_at.replace(now);
        let was_empty = state.pending.is_empty();
        let starts_burst = previous_write_at.is_none_or(|previous_write_at| {
            now.saturating_duration_since(previous_write_at) > BURST_GAP_MAX
        });
        if was_empty && starts_burst {
            return BufferResult::SendNow;
        }
        state.enqueue(server, request, now);
        self.has_buffered.store(true, Ordering::Relaxed);
        if state.out.len() >= BATCH_BYTES_MAX {
            return BufferResult::CallerSendsBatch;
        }
        if !was_empty {
            return BufferResult::Enqueued;
        }
        match std::mem::replace(&mut state.sender, SenderState::Awake) {
            SenderState::Awake => BufferResult::Enqueued,
            SenderState::Asleep(thread) => {
                drop(state);
                thread.unpark();
                BufferResult::Enqueued
            }
            SenderState::NotRunning => BufferResult::EnqueuedWithoutSender,
        }
    }

    /// Notes that the sending thread could not be started.
    pub(crate) fn clear_sender(&self) {
        self.state().sender = SenderState::NotRunning;
    }

    /// Takes the buffered writes, to be sent before anything else; waits while another call is about to send
    /// what was buffered before. `None`: there is nothing. An error: the deadline passed first.
    #[inline]
    pub(crate) fn take_batch(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Option<Box<WriteBatch>>, BatchWaitTimedOut> {
        if self.has_buffered() { self.wait_for_batch(deadline) } else { Ok(None) }
    }

    fn wait_for_batch(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Option<Box<WriteBatch>>, BatchWaitTimedOut> {
        let mut state = self.state();
        while state.is_being_sent {
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return Err(BatchWaitTimedOut);
            }
            state.waiting_calls += 1;
            let wait_result = self.batch_sent.wait_timeout(state, time_left);
            state = wait_result.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting_calls -= 1;
        }
        if state.pending.is_empty() {
            return Ok(None);
        }
        state.is_being_sent = true;
        state.oldest_enqueued_at = None;
        Ok(Some(Box::new(WriteBatch {
            out: std::mem::take(&mut state.out),
            pending: std::mem::take(&mut state.pending),
            end_offset: 0,
            writer_thread_id: state.writer_thread_id,
            write_buffer: self.clone(),
        })))
    }

    /// What the sending thread should do `now`; `None`: end, because it has been idle.
    pub(crate) fn next_sender_step(&self, now: Instant, was_idle: bool) -> Option<SenderStep> {
        let mut state = self.state();
        if let Some(enqueued_at) = state.oldest_enqueued_at {
            state.sender = SenderState::Awake;
            let time_left =
                SEND_DELAY_MAX.saturating_sub(now.saturating_duration_since(enqueued_at));
            return Some(if time_left.is_zero() {
                SenderStep::Send
            } else {
                SenderStep::Sleep(time_left)
            });
        }
        if was_idle {
            state.sender = SenderState::NotRunning;
            return None;
        }
        state.sender = SenderState::Asleep(thread::current());
        Some(SenderStep::Park)
    }
}

/// What the sending thread has to do.
pub(crate) enum SenderStep {
    Send,
    Sleep(Duration),
    Park,
}

impl WriteBufferState {
    fn enqueue(&mut self, server: &Arc<ServerState>, request: &Request<'_>, now: Instant) {
        if self.pending.is_empty() {
            if self.next_opaque == 0 {
                self.next_opaque = random_opaque();
            }
            self.pending = PendingWrites::new(server, self.next_opaque);
            self.out.reserve(BATCH_BYTES_MAX + BATCH_BYTES_MAX / 8);
            self.oldest_enqueued_at = Some(now);
        }
        self.writer_thread_id = this_thread_id();
        let mut writer = RequestWriter {
            command_set: server.command_set().unwrap_or(CommandSet::Meta),
            pipeline: self.unread_pipeline.get_or_insert_with(|| Box::new(Pipeline::new(0))),
            out: &mut self.out,
            next_opaque: &mut self.next_opaque,
        };
        // Meta and binary have a form for every quiet request but those that no server would take.
        if request.write(&mut writer).is_ok() {
            self.pending.add_write(request);
        }
    }
}

/// Another call held earlier writes until the deadline.
#[derive(Debug)]
pub(crate) struct BatchWaitTimedOut;

/// Quiet writes taken by a call; others wait until it has sent them.
#[derive(Debug)]
pub(crate) struct WriteBatch {
    pub(crate) out: Vec<u8>,
    pub(crate) pending: PendingWrites,
    /// The byte of the connection's output at which they end.
    pub(crate) end_offset: u64,
    /// The thread that enqueued the last of them, whose own connection keeps them in order with what it sends itself.
    pub(crate) writer_thread_id: usize,
    write_buffer: Arc<WriteBuffer>,
}

impl WriteBatch {
    /// Forgets the writes in a child after a fork: they are the parent's, and so is the lock of their server.
    pub(crate) fn abandon(mut self: Box<Self>) {
        std::mem::take(&mut self.pending).drop_uncounted();
        std::mem::forget(self);
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        let write_buffer = &self.write_buffer;
        let mut state = write_buffer.state();
        state.is_being_sent = false;
        write_buffer.has_buffered.store(!state.pending.is_empty(), Ordering::Relaxed);
        if state.out.capacity() == 0 {
            self.out.clear();
            std::mem::swap(&mut state.out, &mut self.out);
        }
        let has_waiting_calls = state.waiting_calls > 0;
        drop(state);
        if has_waiting_calls {
            write_buffer.batch_sent.notify_all();
        }
    }
}
