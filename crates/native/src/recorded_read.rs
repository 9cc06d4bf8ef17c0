//! The recorded read of a thread: the call that begins it leaves it here, and the read that follows records its bytes
//! in it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use glasscache_record as record;
use pyo3::prelude::*;

thread_local! {
    /// The recorded call that the next read of this thread belongs to. A read begins right after it was recorded,
    /// without a switch to another task, so nothing comes between them.
    static NEXT_READ: Cell<Option<RecordedRead>> = const { Cell::new(None) };

    /// How long this thread has decoded values since the last recorded call began or ended.
    static DECODE_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };

    /// Whether this thread measures decoding although no block of a recorder is open.
    static MEASURES_DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread measures how long it decodes values.
pub(crate) fn measures_decoding() -> bool {
    MEASURES_DECODING.get()
}

/// How long values are decoded in this function, which is measured as it is for a recorder.
pub(crate) fn decode_time_of<V>(decode: impl FnOnce() -> V) -> (V, Duration) {
    let (time_before, measured_before) = (DECODE_TIME.get(), MEASURES_DECODING.replace(true));
    let value = decode();
    MEASURES_DECODING.set(measured_before);
    (value, DECODE_TIME.get().saturating_sub(time_before))
}

/// Takes how long this thread has decoded values since the last time.
pub(crate) fn take_decode_time() -> Duration {
    DECODE_TIME.replace(Duration::ZERO)
}

/// Decodes, and measures how long that takes.
pub(crate) fn measure_decoding<V>(decode: impl FnOnce() -> V) -> V {
    let started_at = Instant::now();
    let value = decode();
    DECODE_TIME.set(DECODE_TIME.get() + started_at.elapsed());
    value
}

/// A read whose sizes are recorded.
///
/// A Python object where the error of a stale connection carries it to the next attempt.
#[pyclass(frozen, from_py_object, module = "glasscache._native")]
#[derive(Debug, Clone)]
pub(crate) struct RecordedRead {
    request: record::Request,
    pub(crate) recorded_reads: record::RecordedReads,
}

impl RecordedRead {
    pub(crate) fn new(request: record::Request, recorded_reads: record::RecordedReads) -> Self {
        Self { request, recorded_reads }
    }

    /// Stores it in the thread-local, for the next read of this thread.
    pub(crate) fn store_for_this_thread(self) {
        NEXT_READ.set(Some(self));
    }

    /// The read that a recorded request has begun on this thread, if there is one.
    pub(crate) fn take_for_this_thread() -> Option<Self> {
        NEXT_READ.take()
    }

    /// Records the bytes of values, as stored remotely, each with the index of its key.
    pub(crate) fn set_sizes(&self, indices_and_sizes: impl IntoIterator<Item = (usize, usize)>) {
        self.request.set_sizes(self.recorded_reads, indices_and_sizes);
    }

    /// Records the bytes of the value under the key at `index`, as stored remotely.
    pub(crate) fn set_size(&self, index: usize, value_bytes: usize) {
        self.request.set_size(self.recorded_reads, index, value_bytes);
    }
}

/// The sizes of the values of one call, which are recorded together when this is dropped: one lock for all.
#[derive(Debug)]
pub(crate) struct RecordedSizes {
    recorded_read: RecordedRead,
    indices_and_sizes: Vec<(usize, usize)>,
}

impl RecordedSizes {
    /// Those of the read that a recorded request has begun on this thread, if there is one.
    pub(crate) fn take_for_this_thread() -> Option<Self> {
        let recorded_read = RecordedRead::take_for_this_thread()?;
        let indices_and_sizes = Vec::with_capacity(recorded_read.recorded_reads.count());
        Some(Self { recorded_read, indices_and_sizes })
    }

    /// Adds the bytes of the value under the key at `index`.
    pub(crate) fn add(&mut self, index: usize, value_bytes: usize) {
        self.indices_and_sizes.push((index, value_bytes));
    }
}

impl Drop for RecordedSizes {
    fn drop(&mut self) {
        self.recorded_read.set_sizes(self.indices_and_sizes.drain(..));
    }
}
