//! The bounded queue of finished requests to the writer's thread, and the counters that both sides share.
//!
//! Requests are copied into one batch, which the writer takes as a whole, when it has become large or a part of the log is
//! due: to wake the writer for each request would take longer than to record it.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use glasscache_client::fork::Process;

use crate::finished::{RequestBatch, UnfinishedRequest};

/// Records that are kept for the next requests: about as many as are recorded at once.
const SPARE_RECORDS_MAX: usize = 64;

/// A record of more memory than this is not kept.
const SPARE_RECORD_BYTES_MAX: usize = 64 << 10;

/// The writer takes a batch of this many bytes at once: what the processor's cache holds beside other data.
const URGENT_BYTES: usize = 256 << 10;

/// The queue to the writer's thread. It belongs to one process; after a fork the child needs a new one.
#[derive(Debug)]
pub(crate) struct WriterQueue {
    process: Process,
    inbox: Arc<Inbox>,
    pub(crate) state: Arc<WriterState>,
}

/// Where finished requests wait for the writer.
#[derive(Debug)]
pub(crate) struct Inbox {
    content: Mutex<InboxContent>,
    wake_writer: Condvar,
    /// A batch of this many bytes is taken at once.
    urgent_bytes: usize,
}

#[derive(Debug, Default)]
struct InboxContent {
    batch: RequestBatch,
    #[expect(
        clippy::vec_box,
        reason = "a request moves its record by the pointer, and gives back the same one"
    )]
    spare_records: Vec<Box<UnfinishedRequest>>,
    /// No more requests are taken.
    is_closed: bool,
    /// Whether the writer waits for any request, with which a part of the log begins, and not for a large batch.
    is_part_empty: bool,
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
    /// A queue, and where its writer takes what is submitted; a part of the log has this many bytes.
    pub(crate) fn new(memory_limit_bytes: usize, part_bytes: usize) -> (Self, Arc<Inbox>) {
        let inbox = Arc::new(Inbox {
            content: Mutex::default(),
            wake_writer: Condvar::new(),
            urgent_bytes: URGENT_BYTES.min(part_bytes / 4),
        });
        let state = Arc::new(WriterState { memory_limit_bytes, ..WriterState::default() });
        let writer_queue = Self { process: Process::current(), inbox: Arc::clone(&inbox), state };
        (writer_queue, inbox)
    }

    /// Whether this process is a child of the one that started it.
    pub(crate) fn was_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Counts a request that is not recorded.
    pub(crate) fn count_dropped(&self) {
        self.state.dropped.fetch_add(1, Relaxed);
    }

    /// An empty record.
    pub(crate) fn new_record(&self) -> Box<UnfinishedRequest> {
        lock(&self.inbox.content).spare_records.pop().unwrap_or_default()
    }

    /// Hands a finished request to the writer, or drops it if the memory is full.
    pub(crate) fn submit(&self, record: Box<UnfinishedRequest>) {
        // In a child the lock may be that of a thread which exists only in its parent.
        if self.was_forked() || record.is_too_large {
            self.count_dropped();
            return;
        }
        let footprint_bytes = record.footprint_bytes();
        let bytes_before = self.state.unwritten_bytes.fetch_add(footprint_bytes, Relaxed);
        // Counted before it is handed over: the writer subtracts what it cannot write.
        self.state.recorded.fetch_add(1, Relaxed);
        let is_accepted = !self.state.has_failed.load(Relaxed)
            && bytes_before + footprint_bytes <= self.state.memory_limit_bytes
            && self.inbox.push(record);
        if !is_accepted {
            self.state.count_submitted_as_dropped(1, footprint_bytes);
        }
    }

    /// Ends the writer once everything submitted is written.
    pub(crate) fn stop(&self) {
        self.inbox.close();
    }
}

impl Inbox {
    /// Adds a request, unless the writer has ended, and keeps its record for the next one.
    fn push(&self, mut record: Box<UnfinishedRequest>) -> bool {
        let mut content = lock(&self.content);
        if content.is_closed {
            return false;
        }
        let waited_for_more = self.has_to_wait(&content);
        content.batch.push(&record);
        let wakes_writer = waited_for_more && !self.has_to_wait(&content);
        if content.spare_records.len() < SPARE_RECORDS_MAX
            && record.footprint_bytes() <= SPARE_RECORD_BYTES_MAX
        {
            record.clear();
            content.spare_records.push(record);
        }
        drop(content);
        if wakes_writer {
            self.wake_writer.notify_one();
        }
        true
    }

    fn close(&self) {
        lock(&self.content).is_closed = true;
        self.wake_writer.notify_one();
    }

    /// Whether the writer has nothing to do yet.
    fn has_to_wait(&self, content: &InboxContent) -> bool {
        let is_large = content.batch.footprint_bytes() >= self.urgent_bytes;
        let begins_part = content.is_part_empty && !content.batch.is_empty();
        !(is_large || begins_part || content.is_closed)
    }

    /// Exchanges an empty batch for the requests that have come, once there are many or `time_left` of the part of the log
    /// is over; `None`: the part is empty, and begins with any request. Returns whether further requests may come.
    pub(crate) fn take(&self, taken_batch: &mut RequestBatch, time_left: Option<Duration>) -> bool {
        let mut content = lock(&self.content);
        content.is_part_empty = time_left.is_none();
        let has_to_wait = |content: &mut InboxContent| self.has_to_wait(content);
        content = match time_left {
            None => {
                let wait_result = self.wake_writer.wait_while(content, has_to_wait);
                wait_result.unwrap_or_else(PoisonError::into_inner)
            }
            Some(time_left) => {
                let wait_result =
                    self.wake_writer.wait_timeout_while(content, time_left, has_to_wait);
                wait_result.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        content.is_part_empty = false;
        std::mem::swap(&mut content.batch, taken_batch);
        !content.is_closed
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

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(writer_queue: &WriterQueue, key_count: usize) {
        let mut record = writer_queue.new_record();
        record.append_call(std::iter::repeat_n(("key", None), key_count));
        writer_queue.submit(record);
    }

    /// The reads of the requests that the writer takes without waiting.
    fn take_reads(inbox: &Inbox, time_left: Option<Duration>) -> Vec<usize> {
        let mut batch = RequestBatch::default();
        inbox.take(&mut batch, time_left);
        let mut read_counts = Vec::new();
        batch.for_each(|request| read_counts.push(request.read_count()));
        read_counts
    }

    #[test]
    fn the_writer_wakes_for_the_first_request_of_a_part_and_then_for_large_batches_or_the_end() {
        let (writer_queue, inbox) = WriterQueue::new(1 << 20, 4000);
        let has_to_wait = |is_part_empty| {
            let mut content = lock(&inbox.content);
            content.is_part_empty = is_part_empty;
            inbox.has_to_wait(&content)
        };
        assert!(has_to_wait(true));
        submit(&writer_queue, 1);
        assert!(!has_to_wait(true) && has_to_wait(false));
        submit(&writer_queue, 100);
        assert!(!has_to_wait(false));
        assert_eq!(take_reads(&inbox, None), [1, 100]);
        submit(&writer_queue, 2);
        assert!(has_to_wait(false));
        assert_eq!(take_reads(&inbox, Some(Duration::ZERO)), [2]);
        writer_queue.stop();
        assert!(!has_to_wait(false));
    }

    #[test]
    fn the_memory_of_a_record_serves_the_next_request_and_none_is_taken_after_the_end() {
        let (writer_queue, inbox) = WriterQueue::new(1 << 20, 1 << 20);
        submit(&writer_queue, 50);
        let record = writer_queue.new_record();
        assert!(record.reads.capacity() >= 50 && record.reads.is_empty());
        writer_queue.submit(record);
        assert_eq!(take_reads(&inbox, None), [50, 0]);
        writer_queue.stop();
        submit(&writer_queue, 1);
        let state = &writer_queue.state;
        assert_eq!((state.recorded.load(Relaxed), state.dropped.load(Relaxed)), (2, 1));
        assert!(take_reads(&inbox, None).is_empty());
    }
}
