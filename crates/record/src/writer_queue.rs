//! The bounded queue of finished requests to the writer's thread, and the counters that both sides share.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::finished::FinishedRequest;

/// A message to the writer's thread.
pub(crate) enum WriterMessage {
    /// A request to write.
    Request(Box<FinishedRequest>),
    /// No more requests will come.
    Close,
}

/// The queue to the writer's thread. It belongs to one process; after a fork the child needs a new one.
#[derive(Debug)]
pub(crate) struct WriterQueue {
    /// The id of the process.
    process_id: u32,
    sender: Sender<WriterMessage>,
    pub(crate) state: Arc<WriterState>,
}

/// What the writer's thread and the recorder share.
#[derive(Debug, Default)]
pub(crate) struct WriterState {
    /// Bytes of the requests that are submitted and not in a written part.
    pub(crate) unwritten_bytes: AtomicUsize,
    pub(crate) recorded: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) parts: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    memory_limit_bytes: usize,
    /// Why the recorder stopped, once it did.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) has_failed: AtomicBool,
    pub(crate) is_finished: Mutex<bool>,
    pub(crate) finish_signal: Condvar,
}

impl WriterQueue {
    /// A queue, and the receiver of what is submitted.
    pub(crate) fn new(memory_limit_bytes: usize) -> (Self, Receiver<WriterMessage>) {
        let (sender, messages) = channel();
        let state = Arc::new(WriterState { memory_limit_bytes, ..WriterState::default() });
        let writer_queue = Self { process_id: std::process::id(), sender, state };
        (writer_queue, messages)
    }

    /// Whether this process is a child of the one that started it.
    pub(crate) fn was_forked(&self) -> bool {
        self.process_id != std::process::id()
    }

    /// Counts a request that is not recorded.
    pub(crate) fn count_dropped(&self) {
        self.state.dropped.fetch_add(1, Relaxed);
    }

    /// Hands a finished request to the writer, or drops it if the memory is full.
    pub(crate) fn submit(&self, request: FinishedRequest) {
        let footprint_bytes = request.footprint_bytes();
        let bytes_before = self.state.unwritten_bytes.fetch_add(footprint_bytes, Relaxed);
        // Counted before it is sent: the writer subtracts what it cannot write.
        self.state.recorded.fetch_add(1, Relaxed);
        let is_accepted = !self.state.has_failed.load(Relaxed)
            && bytes_before + footprint_bytes <= self.state.memory_limit_bytes
            && !self.was_forked()
            && self.sender.send(WriterMessage::Request(Box::new(request))).is_ok();
        if !is_accepted {
            self.state.count_submitted_as_dropped(1, footprint_bytes);
        }
    }

    /// Ends the writer once everything submitted is written.
    pub(crate) fn stop(&self) {
        let _ = self.sender.send(WriterMessage::Close);
    }
}

impl WriterState {
    /// Counts submitted requests as dropped, and their memory as free.
    pub(crate) fn count_submitted_as_dropped(&self, request_count: u64, footprint_bytes: usize) {
        self.unwritten_bytes.fetch_sub(footprint_bytes, Relaxed);
        self.recorded.fetch_sub(request_count, Relaxed);
        self.dropped.fetch_add(request_count, Relaxed);
    }

    /// Stops the recorder for ever, as its folder cannot be written.
    pub(crate) fn fail_folder(&self, folder: &Path, error: &io::Error) {
        self.fail(format!(
            "recording into {} stopped: {error}; requests go on and are not recorded",
            folder.display()
        ));
    }

    /// Stops the recorder for ever.
    pub(crate) fn fail(&self, reason: String) {
        *lock(&self.failure) = Some(reason);
        self.has_failed.store(true, Relaxed);
    }

    /// Wakes whoever waits for the thread's end.
    pub(crate) fn finish(&self) {
        *lock(&self.is_finished) = true;
        self.finish_signal.notify_all();
    }
}

/// Locks, whatever became of a thread that held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
