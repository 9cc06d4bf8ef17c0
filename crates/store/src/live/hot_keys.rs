//! Hot keys of the last second, minute and hour.
//!
//! One in some of all requests is counted with its key; the keys that lead are then counted exactly by the workers. So a
//! key has two counts: those of before it led are scaled up and have an error, those of after have none.

use std::collections::VecDeque;
use std::sync::Arc;

use super::hash_map::HashedKeyMap;
use super::report::{HotKey, HotKeyOrder, HotKeyWindow};
use crate::request::KeyHash;
use crate::sampling::{Event, EventKind, HotCount, Sampling};

/// Keys that a running count has at most; then those with one sample are forgotten.
const RUNNING_KEYS_MAX: usize = 224;

/// Keys that are counted exactly, by each order.
const EXACT_LEADERS: usize = 32;

/// Keys that are kept of a longer time, by each order: a table of twice the length would take memory from the curve.
const LEADERS: usize = 24;

/// Keys in a report.
const REPORTED_KEYS_MAX: usize = 2 * LEADERS;

/// The minute and the hour consist of this many counts.
const MINUTE_PARTS: usize = 3;
const HOUR_PARTS: usize = 4;

/// Half of a 95 % interval, in standard errors.
const Z_975: f64 = 1.96;

/// The counts of one key.
#[derive(Debug, Clone)]
struct KeyCount {
    key: Arc<[u8]>,
    exact: HotCount,
    /// Scaled up from samples.
    sampled: HotCount,
    samples: u32,
}

impl KeyCount {
    fn total(&self, order: HotKeyOrder) -> u64 {
        match order {
            HotKeyOrder::Requests => self.exact.requests + self.sampled.requests,
            HotKeyOrder::Bytes => self.exact.bytes + self.sampled.bytes,
        }
    }

    fn add(&mut self, other: &KeyCount) {
        self.exact = [self.exact, other.exact].into_iter().sum();
        self.sampled = [self.sampled, other.sampled].into_iter().sum();
        self.samples += other.samples;
    }

    fn add_sample(&mut self, sampled: HotCount) {
        self.sampled = [self.sampled, sampled].into_iter().sum();
        self.samples += 1;
    }

    /// The standard error of the total: that of the samples.
    fn standard_error(&self, order: HotKeyOrder) -> f64 {
        let sampled = match order {
            HotKeyOrder::Requests => self.sampled.requests,
            HotKeyOrder::Bytes => self.sampled.bytes,
        };
        sampled as f64 / f64::from(self.samples.max(1)).sqrt()
    }
}

/// The counts of a time.
#[derive(Debug, Clone, Default)]
struct Summary {
    keys: HashedKeyMap<KeyHash, KeyCount>,
    /// All requests.
    requests: u64,
    /// Bytes of all values that were sent, scaled up, and the sums that their error follows from.
    bytes: f64,
    bytes_squares: f64,
}

impl Summary {
    fn add_sample(&mut self, event: &Event<'_>, is_counted_exactly: bool) {
        let bytes = u64::from(event.value_bytes) * u64::from(event.requests);
        self.bytes += bytes as f64;
        self.bytes_squares += (bytes as f64).powi(2);
        if is_counted_exactly {
            return;
        }
        let sampled = HotCount { requests: event.requests.into(), bytes };
        if let Some(count) = self.keys.get_mut(&event.hash) {
            return count.add_sample(sampled);
        }
        if self.keys.len() >= RUNNING_KEYS_MAX {
            self.keys.retain(|_, count| count.samples != 1 || count.exact.requests > 0);
        }
        if self.keys.len() < RUNNING_KEYS_MAX {
            let (key, exact) = (event.key.into(), HotCount::default());
            self.keys.insert(event.hash, KeyCount { key, exact, sampled, samples: 1 });
        }
    }

    fn add_key(&mut self, hash: KeyHash, added: &KeyCount) {
        self.keys.entry(hash).and_modify(|count| count.add(added)).or_insert_with(|| added.clone());
    }

    fn add(&mut self, other: &Summary) {
        other.keys.iter().for_each(|(hash, count)| self.add_key(*hash, count));
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.bytes_squares += other.bytes_squares;
    }

    /// The keys with most requests or bytes.
    fn leaders(&self, order: HotKeyOrder, count_max: usize) -> Vec<(KeyHash, &KeyCount)> {
        let mut keys: Vec<(KeyHash, &KeyCount)> =
            self.keys.iter().map(|(hash, count)| (*hash, count)).collect();
        keys.sort_by_key(|(hash, count)| (std::cmp::Reverse(count.total(order)), *hash));
        keys.truncate(count_max);
        keys
    }

    /// Forgets the keys that do not lead, and gives their memory back.
    fn keep_leaders(&mut self) {
        let leaders = HotKeyOrder::ALL.into_iter().flat_map(|order| self.leaders(order, LEADERS));
        self.keys = leaders.map(|(hash, count)| (hash, count.clone())).collect();
    }

    fn report(&self, order: HotKeyOrder) -> Arc<[HotKey]> {
        let total = match order {
            HotKeyOrder::Requests => self.requests as f64,
            HotKeyOrder::Bytes => self.bytes,
        };
        let total_error = match order {
            HotKeyOrder::Requests => 0.0,
            HotKeyOrder::Bytes => self.bytes_squares.sqrt() / self.bytes.max(1.0),
        };
        let describe = |(_, count): (KeyHash, &KeyCount)| {
            let share = count.total(order) as f64 / total.max(1.0);
            let own_error = count.standard_error(order) / total.max(1.0);
            HotKey {
                key: Arc::clone(&count.key),
                requests: count.total(HotKeyOrder::Requests),
                bytes: count.total(HotKeyOrder::Bytes),
                share: share.min(1.0),
                error: (Z_975 * own_error.hypot(share * total_error)).min(1.0),
            }
        };
        self.leaders(order, REPORTED_KEYS_MAX).into_iter().map(describe).collect()
    }
}

/// A key that the workers count.
#[derive(Debug, Clone)]
struct ExactKey {
    key: Arc<[u8]>,
    /// What was counted before it was last read.
    counted: HotCount,
}

/// Counts of a time in parts, the last of which is running.
#[derive(Debug, Clone)]
struct Parts {
    ended: VecDeque<Summary>,
    running: Summary,
    count_max: usize,
}

impl Parts {
    fn new(count_max: usize) -> Self {
        Parts { ended: VecDeque::new(), running: Summary::default(), count_max }
    }

    /// Adds to the running part, which keeps only the keys that lead.
    fn add(&mut self, summary: &Summary) {
        self.running.add(summary);
        self.running.keep_leaders();
    }

    /// Ends the running part and returns it.
    fn rotate(&mut self) -> Summary {
        let ended = std::mem::take(&mut self.running);
        if self.ended.len() >= self.count_max {
            self.ended.pop_front();
        }
        self.ended.push_back(ended.clone());
        ended
    }

    fn sum(&self) -> Summary {
        let mut sum = self.running.clone();
        self.ended.iter().for_each(|part| sum.add(part));
        sum
    }
}

/// The hot keys.
#[derive(Debug, Clone)]
pub(super) struct HotKeys {
    second: Summary,
    last_second: Summary,
    minute: Parts,
    hour: Parts,
    exact: HashedKeyMap<KeyHash, ExactKey>,
    seconds: u32,
}

impl Default for HotKeys {
    fn default() -> Self {
        HotKeys {
            second: Summary::default(),
            last_second: Summary::default(),
            minute: Parts::new(MINUTE_PARTS),
            hour: Parts::new(HOUR_PARTS),
            exact: HashedKeyMap::default(),
            seconds: 0,
        }
    }
}

impl HotKeys {
    /// Bytes of memory, about: a key and its counts for each that is kept.
    pub(super) fn memory_bytes(&self) -> usize {
        let parts = self.minute.ended.iter().chain(&self.hour.ended);
        let summaries = parts.chain([
            &self.second,
            &self.last_second,
            &self.minute.running,
            &self.hour.running,
        ]);
        summaries.map(|s| s.keys.capacity() * (size_of::<(KeyHash, KeyCount)>() + 1)).sum()
    }

    /// Counts one of all requests.
    pub(super) fn add_request(&mut self, event: &Event<'_>) {
        if matches!(event.kind, EventKind::GetHit | EventKind::GetMiss) {
            let is_counted_exactly = self.exact.contains_key(&event.hash);
            self.second.add_sample(event, is_counted_exactly);
        }
    }

    /// Adds what the workers counted since the last call, and chooses the keys that they count from now on.
    pub(super) fn choose_exact(&mut self, sampling: &Sampling, keys_per_sample: u32) {
        self.add_exact_counts(sampling);
        let leaders = self.recent_leaders();
        self.exact.retain(|hash, _| leaders.contains_key(hash));
        let hashes: Vec<KeyHash> = leaders.keys().copied().collect();
        sampling.set_choice(keys_per_sample, &hashes);
        for (hash, key) in leaders {
            // A key without a slot continues to be sampled.
            if let Some(counted) = sampling.hot_count(hash) {
                self.exact.entry(hash).or_insert(ExactKey { key, counted });
            }
        }
    }

    /// The keys that lead in the last seconds. The counts are not added up in a map: that would be the largest of all.
    fn recent_leaders(&self) -> HashedKeyMap<KeyHash, Arc<[u8]>> {
        let recent = [&self.second, &self.last_second, &self.minute.running];
        let counts_of = |hash| recent.iter().filter_map(move |summary| summary.keys.get(&hash));
        let mut leaders = HashedKeyMap::default();
        for order in HotKeyOrder::ALL {
            let hashes = recent.iter().flat_map(|summary| summary.keys.keys().copied());
            let total = |hash| counts_of(hash).map(|count| count.total(order)).sum::<u64>();
            let mut totals: Vec<_> =
                hashes.map(|hash| (std::cmp::Reverse(total(hash)), hash)).collect();
            totals.sort_unstable();
            totals.dedup();
            for (_, hash) in totals.into_iter().take(EXACT_LEADERS) {
                leaders.extend(counts_of(hash).next().map(|count| (hash, Arc::clone(&count.key))));
            }
        }
        leaders
    }

    fn add_exact_counts(&mut self, sampling: &Sampling) {
        for (hash, exact) in &mut self.exact {
            let Some(counted) = sampling.hot_count(*hash) else {
                continue;
            };
            let before = std::mem::replace(&mut exact.counted, counted);
            let added = HotCount {
                requests: counted.requests.saturating_sub(before.requests),
                bytes: counted.bytes.saturating_sub(before.bytes),
            };
            if added.requests > 0 {
                self.second.add_key(
                    *hash,
                    &KeyCount {
                        key: Arc::clone(&exact.key),
                        exact: added,
                        sampled: HotCount::default(),
                        samples: 0,
                    },
                );
            }
        }
    }

    /// Ends a second, in which there were this many requests.
    pub(super) fn end_second(&mut self, requests: u64) {
        self.second.requests += requests;
        self.seconds += 1;
        let mut ended = std::mem::take(&mut self.second);
        ended.keep_leaders();
        self.minute.add(&ended);
        self.last_second = ended;
        if self.seconds.is_multiple_of(HotKeyWindow::Minute.seconds() / MINUTE_PARTS as u32) {
            let part = self.minute.rotate();
            self.hour.add(&part);
        }
        if self.seconds.is_multiple_of(HotKeyWindow::Hour.seconds() / HOUR_PARTS as u32) {
            self.hour.rotate();
        }
    }

    /// The hottest keys, by window and order.
    pub(super) fn report(
        &self,
    ) -> [[Arc<[HotKey]>; HotKeyOrder::ALL.len()]; HotKeyWindow::ALL.len()] {
        let minute = self.minute.sum();
        // What the parts of the minute hold that ended is in the running hour.
        let mut hour = self.hour.sum();
        hour.add(&self.minute.running);
        [&self.last_second, &minute, &hour]
            .map(|summary| HotKeyOrder::ALL.map(|order| summary.report(order)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Expiry, Seconds};
    use crate::sampling::{Operation, Recorder};

    /// A second of reads by key number, as the server sees them: with the choice made four times.
    fn run_second(
        hot: &mut HotKeys,
        sampling: &Sampling,
        recorder: &Recorder,
        mut draw: impl FnMut() -> u32,
    ) {
        for _ in 0..4 {
            for _ in 0..10_000 {
                let number = draw();
                let key = format!("key{number}");
                let operation = Operation {
                    key: key.as_bytes(),
                    hash: KeyHash(u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    kind: EventKind::GetHit,
                    value_bytes: if number == 7 { 20_000 } else { 100 },
                    expiry: Expiry::Never,
                    now: Seconds(5),
                };
                recorder.record(sampling, operation.hash, || operation);
                sampling.take_events(|event| {
                    if event.requests > 0 {
                        hot.add_request(event);
                    }
                });
            }
            hot.choose_exact(sampling, 4096);
        }
        hot.end_second(40_000);
    }

    #[test]
    fn a_known_key_is_counted_when_the_table_is_full() {
        let mut summary = Summary::default();
        for _ in 0..2 {
            for number in 1..=RUNNING_KEYS_MAX as u64 {
                let event = Event {
                    hash: KeyHash(number),
                    kind: EventKind::GetHit,
                    requests: 10,
                    key_bytes: 1,
                    value_bytes: 5,
                    expires_at: 0,
                    at: Seconds(1),
                    key: b"k",
                };
                summary.add_sample(&event, false);
            }
        }
        assert_eq!(summary.keys.len(), RUNNING_KEYS_MAX);
        assert!(summary.keys.values().all(|count| count.samples == 2));
    }

    #[test]
    fn the_hottest_keys_lead_after_two_seconds_with_their_shares() {
        let (mut hot, sampling) = (HotKeys::default(), Sampling::new(true, 1, 1 << 30));
        let recorder = Recorder::new(Some(0));
        let mut state = 7_u64;
        // Key k has a share of 1 / 2^(k + 1), to 1/1024 and the rest.
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (state >> 33) as u32;
            if number % 1024 < 2 {
                100 + number % 50_000
            } else {
                (number % 1024).leading_zeros() - 22
            }
        };
        run_second(&mut hot, &sampling, &recorder, &mut draw);
        run_second(&mut hot, &sampling, &recorder, &mut draw);
        let [second, minute, _] = hot.report();
        for report in [&second, &minute] {
            for (index, key) in report[0].iter().take(6).enumerate() {
                assert_eq!(&*key.key, format!("key{index}").as_bytes());
                let share = 0.5_f64.powi(index as i32 + 1);
                assert!((key.share - share).abs() < 0.1 * share + key.error, "{index}: {key:?}");
            }
            assert_eq!(&*report[1][1].key, b"key0");
            assert_eq!(&*report[1][0].key, b"key7", "few requests and most bytes");
        }
        assert!(second[0][0].error < 1e-6, "counted exactly in the second second");
    }
}
