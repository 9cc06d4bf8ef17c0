//! One request while it is recorded: the items in the order of the calls, and the time spent in cache calls.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use glasscache_client::RequestRecord;

use crate::finished::{Parent, RequestNumbers, UnfinishedRequest};
use crate::writer_queue::WriterQueue;

/// A request that is being recorded. Shared by the threads or tasks that work for it; [`Request::finish`], or the drop
/// of the last handle, hands it to the recorder.
#[derive(Debug, Clone)]
pub struct Request(Arc<SharedRequest>);

#[derive(Debug)]
struct SharedRequest {
    writer_queue: Arc<WriterQueue>,
    number: u64,
    state: Mutex<Option<RequestState>>,
}

/// The reads of one call, which [`Request::begin_read`] began and which get their sizes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedReads {
    first_read: usize,
    read_count: usize,
}

impl RecordedReads {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.read_count
    }
}

#[derive(Debug)]
struct RequestState {
    started_at: Instant,
    record: Box<UnfinishedRequest>,
    pending_calls: u32,
    calls_pending_since: Instant,
    time_in_calls: Duration,
    decode_time: Duration,
}

impl Request {
    pub(crate) fn new(writer_queue: Arc<WriterQueue>, request_number: u64) -> Self {
        let now = Instant::now();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut record = writer_queue.new_record();
        record.numbers = RequestNumbers {
            number: request_number,
            time_us: since_epoch.map_or(0, |since_epoch| since_epoch.as_micros() as u64),
            ..RequestNumbers::default()
        };
        let state = RequestState {
            started_at: now,
            record,
            pending_calls: 0,
            calls_pending_since: now,
            time_in_calls: Duration::ZERO,
            decode_time: Duration::ZERO,
        };
        Self(Arc::new(SharedRequest {
            writer_queue,
            number: request_number,
            state: Mutex::new(Some(state)),
        }))
    }

    /// The number of the request, from 0 for the first one of the process, recorded or not.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Names the item that the page is about.
    pub fn set_page(&self, key: &[u8]) {
        self.update_state(|state| state.record.page = Some(key.into()));
    }

    /// Names the kind of request.
    pub fn set_route(&self, route: &str) {
        self.update_state(|state| state.record.route = Some(route.into()));
    }

    /// Notes that a call begins which reads these keys, each with its parent if the caller knows it. Until
    /// [`Request::end_call`] it counts as pending.
    pub fn begin_read<'p>(
        &self,
        keys: impl IntoIterator<Item = (impl AsRef<[u8]>, Option<Parent<'p>>)>,
    ) -> RecordedReads {
        self.begin_read_at(Instant::now(), keys)
    }

    /// As [`Self::begin_read`], of a call that began at a time which is known.
    pub fn begin_read_at<'p>(
        &self,
        began_at: Instant,
        keys: impl IntoIterator<Item = (impl AsRef<[u8]>, Option<Parent<'p>>)>,
    ) -> RecordedReads {
        let mut recorded_reads = RecordedReads { first_read: 0, read_count: 0 };
        self.update_state(|state| {
            state.begin_call(began_at);
            recorded_reads.first_read = state.record.reads.len();
            recorded_reads.read_count = state.record.append_call(keys.into_iter());
        });
        recorded_reads
    }

    /// Notes that a call begins which writes.
    pub fn begin_write(&self) {
        self.update_state(|state| {
            state.begin_call(Instant::now());
            let numbers = &mut state.record.numbers;
            numbers.writes = numbers.writes.saturating_add(1);
        });
    }

    /// Notes that the application changes a key in place: it depends on the present value (`add`, `cas`, `incr`,
    /// `append`), or read the unique on which a later write will.
    pub fn note_changed_key(&self, key: &[u8]) {
        self.update_state(|state| state.record.append_changed_key(key));
    }

    /// Notes that a key is stored with a TTL in seconds.
    pub fn note_ttl(&self, key: &[u8], ttl_s: u32) {
        self.update_state(|state| state.record.append_ttl(key, ttl_s));
    }

    /// Notes the bytes of the value under the call's key at `index`, as stored remotely.
    pub fn set_size(&self, recorded_reads: RecordedReads, index: usize, value_bytes: usize) {
        self.set_sizes(recorded_reads, [(index, value_bytes)]);
    }

    /// As [`Self::set_size`], of several keys: each with its index.
    pub fn set_sizes(
        &self,
        recorded_reads: RecordedReads,
        indices_and_sizes: impl IntoIterator<Item = (usize, usize)>,
    ) {
        self.update_state(|state| state.set_sizes(recorded_reads, indices_and_sizes));
    }

    /// Notes that the caller of a call has resumed. Each call that began ends once.
    pub fn end_call(&self) {
        self.update_state(|state| state.end_call(Instant::now()));
    }

    /// As [`Self::end_call`], of a call within which values were decoded for this long.
    pub fn end_call_after_decoding(&self, decode_time: Duration) {
        self.update_state(|state| {
            state.decode_time += decode_time;
            state.end_call(Instant::now());
        });
    }

    /// As [`Self::end_call_after_decoding`], of a call that read one value of this many bytes, 0 if unknown.
    pub fn end_read(
        &self,
        recorded_reads: RecordedReads,
        value_bytes: usize,
        decode_time: Duration,
    ) {
        self.update_state(|state| {
            if value_bytes > 0 {
                state.set_sizes(recorded_reads, [(0, value_bytes)]);
            }
            state.decode_time += decode_time;
            state.end_call(Instant::now());
        });
    }

    /// Ends the request; calls that begin later are not recorded.
    pub fn finish(&self) {
        self.0.finish();
    }

    fn update_state(&self, update: impl FnOnce(&mut RequestState)) {
        if let Some(state) = &mut *self.0.lock() {
            update(state);
        }
    }
}

impl RequestRecord for Request {
    fn begin_read(
        &self,
        keys: &mut dyn Iterator<Item = Cow<'_, [u8]>>,
        parent: Option<&[u8]>,
    ) -> Range<usize> {
        let parent = parent.map(|key| Parent { key, is_named: true });
        let recorded_reads = self.begin_read(keys.map(|key| (key, parent)));
        recorded_reads.first_read..recorded_reads.first_read + recorded_reads.read_count
    }

    fn begin_write(&self) {
        self.begin_write();
    }

    fn note_changed_key(&self, key: &[u8]) {
        self.note_changed_key(key);
    }

    fn note_ttl(&self, key: &[u8], ttl_s: u32) {
        self.note_ttl(key, ttl_s);
    }

    fn set_size(&self, read_index: usize, value_bytes: usize) {
        let recorded_reads = RecordedReads { first_read: read_index, read_count: 1 };
        self.set_size(recorded_reads, 0, value_bytes);
    }

    fn end_call(&self) {
        self.end_call();
    }
}

impl SharedRequest {
    fn lock(&self) -> MutexGuard<'_, Option<RequestState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self) {
        let Some(mut state) = self.lock().take() else {
            return;
        };
        let now = Instant::now();
        if state.pending_calls > 0 {
            state.time_in_calls += now.duration_since(state.calls_pending_since);
        }
        let base_time = now.duration_since(state.started_at).saturating_sub(state.time_in_calls);
        let to_us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let numbers = &mut state.record.numbers;
        numbers.base_us = to_us(base_time);
        numbers.wait_us = to_us(state.time_in_calls);
        numbers.decode_us = to_us(state.decode_time.min(state.time_in_calls));
        self.writer_queue.submit(state.record);
    }
}

impl Drop for SharedRequest {
    fn drop(&mut self) {
        self.finish();
    }
}

impl RequestState {
    fn set_sizes(
        &mut self,
        RecordedReads { first_read, read_count }: RecordedReads,
        indices_and_sizes: impl IntoIterator<Item = (usize, usize)>,
    ) {
        let reads = self.record.reads.get_mut(first_read..first_read + read_count);
        let reads = reads.unwrap_or_default();
        for (index, value_bytes) in indices_and_sizes {
            if let Some(read) = reads.get_mut(index) {
                read.value_bytes = u32::try_from(value_bytes).unwrap_or(u32::MAX);
            }
        }
    }

    fn begin_call(&mut self, now: Instant) {
        if self.pending_calls == 0 {
            self.calls_pending_since = now;
        }
        self.pending_calls += 1;
    }

    fn end_call(&mut self, now: Instant) {
        if self.pending_calls == 1 {
            self.time_in_calls += now.duration_since(self.calls_pending_since);
        }
        self.pending_calls = self.pending_calls.saturating_sub(1);
    }
}
