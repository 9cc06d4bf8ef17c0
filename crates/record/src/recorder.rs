//! The recorder: it samples requests, passes them to the writer's thread through a bounded queue, and counts what it
//! drops.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::options::{Options, RecordError};
use crate::request::Request;
use crate::writer::{self, LogFolder};
use crate::writer_queue::{Inbox, WriterQueue, lock};

/// How long [`Recorder::close`] waits for the last part to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Records requests into a folder. Cheap to clone; the log is complete after [`Recorder::close`] or the drop of the
/// last clone. After a fork the child records under an instance of its own.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<RecorderShared>);

#[derive(Debug)]
struct RecorderShared {
    options: Arc<Options>,
    writer_queue: ArcSwap<WriterQueue>,
    requests: AtomicU64,
    is_closed: AtomicBool,
}

/// What a recorder did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// Requests that began, recorded or not.
    pub requests: u64,
    /// Requests that are in the log or on their way to it.
    pub recorded: u64,
    /// Requests that were to be recorded and are not: no memory was left, they were too large, or the folder could not
    /// be written.
    pub dropped: u64,
    /// Files of requests that are complete.
    pub parts: u64,
    /// Bytes of all complete files.
    pub bytes: u64,
}

impl Recorder {
    /// Starts recording.
    ///
    /// A folder that cannot be written is not an error: the recorder stops, counts what it drops, and
    /// [`Recorder::take_warning`] says why.
    ///
    /// # Errors
    /// Options that have no meaning.
    pub fn open(options: Options) -> Result<Self, RecordError> {
        options.check()?;
        let options = Arc::new(options);
        let writer_queue = start_writer_queue(&options, None);
        Ok(Self::new(options, writer_queue))
    }

    /// Like [`Recorder::open`], and takes its number in the folder before it returns: no other recorder gets that
    /// number while this one lives, however late its first request is written.
    ///
    /// # Errors
    /// Options that have no meaning.
    pub fn open_with_instance(options: Options) -> Result<Self, RecordError> {
        options.check()?;
        let options = Arc::new(options);
        let writer_queue = match LogFolder::open(&options) {
            Ok(log_folder) => start_writer_queue(&options, Some(log_folder)),
            Err(error) => {
                let (writer_queue, _) = new_writer_queue(&options);
                writer_queue.state.fail_folder(&options.folder, &error);
                writer_queue.state.finish();
                writer_queue
            }
        };
        Ok(Self::new(options, writer_queue))
    }

    fn new(options: Arc<Options>, writer_queue: WriterQueue) -> Self {
        Self(Arc::new(RecorderShared {
            options,
            writer_queue: ArcSwap::from_pointee(writer_queue),
            requests: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// Begins a request; `None` if it is not to be recorded.
    pub fn begin_request(&self) -> Option<Request> {
        let request_number = self.next_sampled()?;
        self.begin_sampled(request_number)
    }

    /// Counts a request, and returns its number if it is among those that are recorded.
    pub fn next_sampled(&self) -> Option<u64> {
        let request_number = self.0.requests.fetch_add(1, Relaxed);
        is_sampled(request_number, self.0.options.sample).then_some(request_number)
    }

    /// Begins a request that [`Self::next_sampled`] has chosen; `None` if the recorder has stopped.
    pub fn begin_sampled(&self, request_number: u64) -> Option<Request> {
        if self.0.is_closed.load(Relaxed) {
            return None;
        }
        let writer_queue = self.writer_queue();
        if writer_queue.state.has_failed.load(Relaxed) {
            writer_queue.count_dropped();
            return None;
        }
        Some(Request::new(writer_queue, request_number))
    }

    /// What was recorded so far, by this process since its start or its fork.
    pub fn stats(&self) -> Stats {
        let writer_queue = self.0.writer_queue.load();
        Stats {
            requests: self.0.requests.load(Relaxed),
            recorded: writer_queue.state.recorded.load(Relaxed),
            dropped: writer_queue.state.dropped.load(Relaxed),
            parts: writer_queue.state.parts.load(Relaxed),
            bytes: writer_queue.state.written_bytes.load(Relaxed),
        }
    }

    /// Why the recorder stopped, once: the first call after it stopped.
    pub fn take_warning(&self) -> Option<String> {
        let writer_queue = self.0.writer_queue.load();
        if !writer_queue.state.has_failed.load(Relaxed) {
            return None;
        }
        lock(&writer_queue.state.failure).take()
    }

    /// Ends the recording and waits, a second at most, until everything is written; returns whether it is. Requests
    /// that finish later are dropped.
    pub fn close(&self) -> bool {
        self.0.close()
    }

    /// The queue to the writer of this process.
    fn writer_queue(&self) -> Arc<WriterQueue> {
        let writer_queue = self.0.writer_queue.load_full();
        if !writer_queue.was_forked() {
            return writer_queue;
        }
        let new_queue = Arc::new(start_writer_queue(&self.0.options, None));
        let replaced_queue =
            self.0.writer_queue.compare_and_swap(&writer_queue, Arc::clone(&new_queue));
        if Arc::ptr_eq(&replaced_queue, &writer_queue) {
            // The queue of the parent may have been in use when the process was forked, so nothing frees it here.
            std::mem::forget(writer_queue);
            new_queue
        } else {
            // Another thread of the child was faster.
            new_queue.stop();
            self.0.writer_queue.load_full()
        }
    }
}

impl RecorderShared {
    fn close(&self) -> bool {
        let writer_queue = self.writer_queue.load_full();
        if writer_queue.was_forked() {
            return true;
        }
        if !self.is_closed.swap(true, Relaxed) {
            writer_queue.stop();
        }
        let is_finished = lock(&writer_queue.state.is_finished);
        let wait_result = writer_queue.state.finish_signal.wait_timeout_while(
            is_finished,
            CLOSE_TIMEOUT,
            |is_finished| !*is_finished,
        );
        *wait_result.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for RecorderShared {
    fn drop(&mut self) {
        self.close();
    }
}

/// Starts a writer for this process and returns the queue to it; it writes into `log_folder` if it is open already.
fn start_writer_queue(options: &Arc<Options>, log_folder: Option<LogFolder>) -> WriterQueue {
    let (writer_queue, inbox) = new_writer_queue(options);
    let state = Arc::clone(&writer_queue.state);
    if let Err(error) = writer::start_writer(Arc::clone(options), log_folder, inbox, state) {
        let reason = format!("recording stopped: no thread could be started: {error}");
        writer_queue.state.fail(reason);
        writer_queue.state.finish();
    }
    writer_queue
}

fn new_writer_queue(options: &Options) -> (WriterQueue, Arc<Inbox>) {
    WriterQueue::new(options.memory_bytes, options.part_bytes())
}

/// Whether a request is recorded: a hash of its number, so that the choice is even in any run of requests and the same
/// when a program is run again.
fn is_sampled(request_number: u64, sample: f64) -> bool {
    // splitmix64's finaliser; its upper 53 bits as a number from 0 to 1.
    let mut hash = request_number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    ((hash >> 11) as f64) < sample * (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sampled_fraction_is_recorded() {
        for sample in [0.0, 0.01, 0.5, 1.0] {
            let sampled_count = (0..100_000)
                .filter(|&request_number| is_sampled(request_number, sample))
                .count() as f64;
            let expected = 100_000.0 * sample;
            let deviation_max = 4.0 * (expected * (1.0 - sample)).sqrt();
            assert!((sampled_count - expected).abs() <= deviation_max, "{sample}: {sampled_count}");
        }
    }

    #[test]
    fn a_recorder_opened_with_its_number_shares_it_with_no_other_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Recorder::open_with_instance(Options::new(folder.path())).unwrap();
        let recorders = [open(), open()];
        for recorder in &recorders {
            // One after the other: what is written second would otherwise get the number of the first.
            recorder.begin_request().unwrap().finish();
            while !recorder.close() {}
        }
        let log = crate::read_folder(folder.path()).unwrap().log;
        assert_eq!(log.requests.instances, [0, 1]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_stops_a_recorder_opened_with_its_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recorder = Recorder::open_with_instance(Options::new(file.path())).unwrap();
        assert!(recorder.begin_request().is_none());
        assert!(recorder.close());
        assert_eq!(recorder.stats().dropped, 1);
        let warning = recorder.take_warning().unwrap();
        assert!(warning.contains("requests go on"), "{warning}");
    }
}
