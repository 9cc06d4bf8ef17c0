//! The sampling layer: which keys and requests are reported to whoever evaluates the load, and how.
//!
//! A key is sampled by its hash, always or never, and every operation on it is an event. Of all requests one in a few is
//! an event with its key, whichever it is, so that hot keys and prefixes are found; the hottest keys are then counted
//! exactly. A worker writes events to a ring of its own and never waits: what does not fit is counted as dropped. For a
//! key that is neither sampled nor hot an operation costs the test of one bit.

mod event;
mod hot_counts;
mod ring;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) use event::{Event, EventKind};
pub(crate) use hot_counts::HotCount;

use crate::request::{Expiry, KeyHash, Seconds};
use hot_counts::{HotCounts, HotHashes};
use ring::EventRing;

/// Classes of hashes: the low bits.
const CLASSES: u32 = 1 << CLASS_BITS;
const CLASS_BITS: u32 = 12;

/// Most keys that one sampled key represents.
pub(crate) const KEYS_PER_SAMPLE_MAX: u32 = CLASSES;

/// Words of a ring, by the memory of the store.
const RING_WORDS_MIN: u64 = 1 << 11;
const RING_WORDS_MAX: u64 = 1 << 13;
const MEMORY_BYTES_PER_RING_WORD: u64 = 64 << 10;

/// Requests between two that are reported, before their rate is known.
const REQUEST_INTERVAL_START: u32 = 128;

/// What the workers share: the choice of keys and requests, and a ring for each of them.
pub(crate) struct Sampling {
    /// A bit for each class of hashes that has sampled or hot keys.
    classes: [AtomicU64; CLASSES as usize / u64::BITS as usize],
    /// Classes below this are sampled.
    sampled_classes: AtomicU32,
    /// One in about this many requests is reported; 0: none.
    request_interval: AtomicU32,
    hot_hashes: HotHashes,
    rings: Box<[EventRing]>,
    hot_counts: Box<[HotCounts]>,
}

impl Sampling {
    /// For this many workers. With `is_enabled` all keys are sampled at first; otherwise nothing ever is.
    pub(crate) fn new(is_enabled: bool, workers: usize, memory_bytes: u64) -> Self {
        let ring_words = (memory_bytes / MEMORY_BYTES_PER_RING_WORD)
            .next_power_of_two()
            .clamp(RING_WORDS_MIN, RING_WORDS_MAX) as usize;
        let worker_count = if is_enabled { workers } else { 0 };
        let sampling = Sampling {
            classes: [const { AtomicU64::new(0) }; _],
            sampled_classes: AtomicU32::new(0),
            request_interval: AtomicU32::new(0),
            hot_hashes: HotHashes::default(),
            rings: (0..worker_count).map(|_| EventRing::new(ring_words)).collect(),
            hot_counts: (0..worker_count).map(|_| HotCounts::default()).collect(),
        };
        if is_enabled {
            sampling.request_interval.store(REQUEST_INTERVAL_START, Ordering::Relaxed);
            sampling.set_choice(1, &[]);
        }
        sampling
    }

    /// Samples one in `keys_per_sample` keys, a power of two, and counts the keys with these hashes exactly.
    // LOSSY: while the bits change, an event may be missed or reported although its key is not sampled any more.
    pub(crate) fn set_choice(&self, keys_per_sample: u32, hot: &[KeyHash]) {
        let sampled_classes = CLASSES / keys_per_sample.clamp(1, KEYS_PER_SAMPLE_MAX);
        self.hot_hashes.replace(hot);
        self.sampled_classes.store(sampled_classes, Ordering::Relaxed);
        for (index, word) in self.classes.iter().enumerate() {
            let first_class = index as u32 * u64::BITS;
            let sampled = match sampled_classes.saturating_sub(first_class) {
                bits @ 0..u64::BITS => (1 << bits) - 1,
                _ => u64::MAX,
            };
            let hot_bits = hot.iter().filter(|hash| class_of(**hash) / u64::BITS == index as u32);
            let with_hot =
                hot_bits.fold(sampled, |bits, hash| bits | 1_u64 << (class_of(*hash) % u64::BITS));
            word.store(with_hot, Ordering::Relaxed);
        }
    }

    /// Reports one in about this many requests from now on.
    pub(crate) fn set_request_interval(&self, interval: u32) {
        self.request_interval.store(interval, Ordering::Relaxed);
    }

    /// One in this many requests is reported.
    pub(crate) fn request_interval(&self) -> u32 {
        self.request_interval.load(Ordering::Relaxed)
    }

    /// Whether a key with this hash may be sampled or hot.
    #[inline]
    fn is_interesting(&self, hash: KeyHash) -> bool {
        let class = class_of(hash);
        let word = self.classes.get((class / u64::BITS) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (class % u64::BITS) & 1 != 0)
    }

    /// Takes all events that workers reported, and returns how many were dropped since the last call.
    pub(crate) fn take_events(&self, mut visit: impl FnMut(&Event<'_>)) -> u64 {
        self.rings.iter().map(|ring| ring.take(&mut visit)).sum()
    }

    /// What was counted of the key with this hash since it was given in [`Sampling::set_choice`].
    pub(crate) fn hot_count(&self, hash: KeyHash) -> Option<HotCount> {
        let slot = self.hot_hashes.find(hash)?;
        Some(self.hot_counts.iter().map(|counts| counts.get(slot)).sum())
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.rings.iter().map(EventRing::memory_bytes).sum::<usize>()
            + size_of_val(&*self.hot_counts)
    }
}

fn class_of(hash: KeyHash) -> u32 {
    hash.0 as u32 % CLASSES
}

/// Whether keys with this hash are sampled at one in `keys_per_sample`.
pub(crate) fn is_sampled(hash: KeyHash, keys_per_sample: u32) -> bool {
    class_of(hash) < CLASSES / keys_per_sample.clamp(1, KEYS_PER_SAMPLE_MAX)
}

/// The highest level at which keys with this hash are sampled, where level n is one in 2^n keys.
pub(crate) fn level_of(hash: KeyHash) -> u8 {
    // Leading zeros among the bits of a class.
    (class_of(hash).leading_zeros() - (u32::BITS - CLASS_BITS)) as u8
}

/// One operation of a worker.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) hash: KeyHash,
    pub(crate) kind: EventKind,
    /// Bytes of the value that was found or stored; of a fill, its microseconds.
    pub(crate) value_bytes: usize,
    /// When the item that was found or stored expires.
    pub(crate) expiry: Expiry,
    pub(crate) now: Seconds,
}

/// A worker's part: it decides which of its operations are reported.
pub(crate) struct Recorder {
    /// The number of the worker; `None` for one that was never registered.
    worker_index: Option<usize>,
    /// Requests until the next one that is reported.
    requests_left: Cell<u32>,
    /// The state of the random intervals between those.
    random: Cell<u32>,
}

impl Recorder {
    pub(crate) fn new(worker_index: Option<usize>) -> Self {
        Recorder { worker_index, requests_left: Cell::new(1), random: Cell::new(0x9e37_79b9) }
    }

    /// Reports an operation if its key is sampled or hot, or its turn has come.
    #[inline]
    pub(crate) fn record<'k>(
        &self,
        sampling: &Sampling,
        hash: KeyHash,
        operation: impl FnOnce() -> Operation<'k>,
    ) {
        let requests_left = self.requests_left.get().wrapping_sub(1);
        self.requests_left.set(requests_left);
        if requests_left == 0 || sampling.is_interesting(hash) {
            self.report(sampling, &operation());
        }
    }

    /// Reports how long a client took to fill a miss, if the key is sampled. It does not count as a request.
    pub(crate) fn record_fill(
        &self,
        sampling: &Sampling,
        hash: KeyHash,
        time_us: usize,
        now: Seconds,
    ) {
        if sampling.is_interesting(hash) {
            let kind = EventKind::Fill;
            let expiry = Expiry::Never;
            let fill = Operation { key: b"", hash, kind, value_bytes: time_us, expiry, now };
            self.report_key(sampling, &fill);
        }
    }

    #[cold]
    #[inline(never)]
    fn report(&self, sampling: &Sampling, operation: &Operation<'_>) {
        self.report_key(sampling, operation);
        if self.requests_left.get() == 0 {
            self.report_request(sampling, operation);
        }
    }

    fn report_key(&self, sampling: &Sampling, operation: &Operation<'_>) {
        let Some(worker_index) = self.worker_index else {
            return;
        };
        if class_of(operation.hash) < sampling.sampled_classes.load(Ordering::Relaxed)
            && let Some(ring) = sampling.rings.get(worker_index)
        {
            ring.push(&operation.to_event(0));
        }
        if operation.kind.is_read()
            && let Some(slot) = sampling.hot_hashes.find(operation.hash)
            && let Some(counts) = sampling.hot_counts.get(worker_index)
        {
            counts.add(slot, operation.value_bytes);
        }
    }

    /// Reports an operation with its key, and draws when the next one is: between 1 and twice the interval, so that no
    /// rhythm of the requests is in step with it.
    fn report_request(&self, sampling: &Sampling, operation: &Operation<'_>) {
        let interval = sampling.request_interval().min(u32::from(u16::MAX) / 2);
        if interval == 0 {
            return self.requests_left.set(u32::MAX);
        }
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        self.requests_left.set(1 + random % (2 * interval - 1));
        if let Some(ring) = self.worker_index.and_then(|index| sampling.rings.get(index)) {
            ring.push(&operation.to_event(interval as u16));
        }
    }
}

impl<'k> Operation<'k> {
    /// A read; of what was found, the bytes of the value and the expiry.
    pub(crate) fn read(
        key: &'k [u8],
        hash: KeyHash,
        found: Option<(u32, Expiry)>,
        now: Seconds,
    ) -> Self {
        let (value_bytes, expiry) = found.unwrap_or_default();
        Operation {
            key,
            hash,
            kind: if found.is_some() { EventKind::GetHit } else { EventKind::GetMiss },
            value_bytes: value_bytes as usize,
            expiry,
            now,
        }
    }

    fn to_event(self, requests: u16) -> Event<'k> {
        Event {
            hash: self.hash,
            kind: self.kind,
            requests,
            key_bytes: self.key.len() as u8,
            value_bytes: self.value_bytes.min(u32::MAX as usize) as u32,
            expires_at: match self.expiry {
                Expiry::Never => 0,
                Expiry::At(second) => second.0.max(1),
            },
            at: self.now,
            key: if requests > 0 { self.key } else { b"" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sampling: &Sampling, recorder: &Recorder, hash: u64) {
        recorder.record(sampling, KeyHash(hash), || operation(hash));
    }

    fn operation(hash: u64) -> Operation<'static> {
        Operation {
            key: b"key",
            hash: KeyHash(hash),
            kind: EventKind::GetHit,
            value_bytes: 10,
            expiry: Expiry::Never,
            now: Seconds(5),
        }
    }

    fn count_key_events(sampling: &Sampling) -> usize {
        let mut key_events = 0;
        sampling.take_events(|event| key_events += usize::from(event.requests == 0));
        key_events
    }

    #[test]
    fn a_rate_chooses_nested_sets_of_keys() {
        let (sampling, recorder) = (Sampling::new(true, 1, 64 << 20), Recorder::new(Some(0)));
        let mut counts = Vec::new();
        for keys_per_sample in [1, 2, 64, KEYS_PER_SAMPLE_MAX] {
            sampling.set_choice(keys_per_sample, &[]);
            let mut key_events = 0;
            for hash in 0..u64::from(CLASSES) {
                record(&sampling, &recorder, hash);
                key_events += count_key_events(&sampling);
                let is_kept = level_of(KeyHash(hash)) >= keys_per_sample.ilog2() as u8;
                assert_eq!(is_sampled(KeyHash(hash), keys_per_sample), is_kept);
            }
            counts.push(key_events as u32);
        }
        assert_eq!(counts, [CLASSES, CLASSES / 2, CLASSES / 64, 1]);
    }

    #[test]
    fn hot_keys_are_counted_exactly_and_not_sampled() {
        let (sampling, recorder) = (Sampling::new(true, 1, 64 << 20), Recorder::new(Some(0)));
        let hot = KeyHash(4000);
        sampling.set_choice(KEYS_PER_SAMPLE_MAX, &[hot]);
        for _ in 0..1000 {
            record(&sampling, &recorder, hot.0);
            record(&sampling, &recorder, 4000 + (1 << 40));
        }
        assert_eq!(sampling.hot_count(hot), Some(HotCount { requests: 1000, bytes: 10_000 }));
        assert_eq!(count_key_events(&sampling), 0);
    }

    #[test]
    fn requests_are_reported_at_the_interval_with_their_keys() {
        let (sampling, recorder) = (Sampling::new(true, 1, 64 << 20), Recorder::new(Some(0)));
        sampling.set_choice(KEYS_PER_SAMPLE_MAX, &[]);
        let mut requests = 0;
        for hash in 1..100_000 {
            record(&sampling, &recorder, hash * u64::from(CLASSES) + 1);
            sampling.take_events(|event| {
                assert_eq!(event.key, b"key");
                requests += u32::from(event.requests);
            });
        }
        assert!((90_000..110_000).contains(&requests), "{requests}");
    }

    #[test]
    fn a_fill_of_a_sampled_key_is_reported_with_its_time_and_is_no_request() {
        let (sampling, recorder) = (Sampling::new(true, 1, 64 << 20), Recorder::new(Some(0)));
        sampling.set_choice(2, &[]);
        let mut fills = Vec::new();
        for hash in [7, u64::from(CLASSES) - 1] {
            recorder.record_fill(&sampling, KeyHash(hash), 12_000, Seconds(9));
        }
        sampling.take_events(|event| {
            fills.push((event.hash.0, event.kind, event.value_bytes, event.requests));
        });
        assert_eq!(fills, [(7, EventKind::Fill, 12_000, 0)]);
    }

    #[test]
    fn nothing_is_reported_where_sampling_is_off() {
        let (sampling, recorder) = (Sampling::new(false, 1, 64 << 20), Recorder::new(Some(0)));
        (0..1000).for_each(|hash| record(&sampling, &recorder, hash));
        assert_eq!(sampling.take_events(|_| panic!("an event")), 0);
    }
}
