//! S4-FIFO compared with a naive implementation of its definition, and with S3-FIFO at the default settings.

use std::collections::VecDeque;

use glasscache_sim::policy::{PolicyKind, S4FifoSettings};
use glasscache_sim::trace::intern::Mode;
use proptest::prelude::*;

use super::{any_requests, prepare, replay};

/// An object in a queue.
#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    uses: u32,
    ghost_hits: u32,
    /// Objects that had entered the small queue with it.
    entered: usize,
}

/// The definition, with lists that are searched from end to end.
struct NaiveS4Fifo {
    settings: S4FifoSettings,
    small: VecDeque<Entry>,
    main: VecDeque<Entry>,
    /// Keys with their ghost hits.
    ghost: VecDeque<(u64, u32)>,
    small_capacity: usize,
    ghost_capacity: usize,
    capacity: usize,
    entered: usize,
    has_evicted: bool,
}

impl NaiveS4Fifo {
    fn new(settings: S4FifoSettings, capacity: usize) -> Self {
        Self {
            settings,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            small_capacity: ((capacity as f64 * settings.small_share()) as usize).max(1),
            ghost_capacity: (capacity as f64 * settings.ghost_share()) as usize,
            capacity,
            entered: 0,
            has_evicted: false,
        }
    }

    fn hit(&mut self, key: u64) -> bool {
        let skipped = (self.small_capacity as f64 * self.settings.skip_share()) as usize;
        if let Some(entry) = self.small.iter_mut().find(|entry| entry.key == key) {
            entry.uses += u32::from(self.entered - entry.entered >= skipped);
            return true;
        }
        if let Some(entry) = self.main.iter_mut().find(|entry| entry.key == key) {
            entry.uses += 1;
            return true;
        }
        false
    }

    fn store(&mut self, key: u64) {
        let remembered = self.ghost.iter().position(|&(ghost_key, _)| ghost_key == key);
        let ghost_hits =
            remembered.and_then(|index| self.ghost.remove(index)).map_or(0, |(_, hits)| hits + 1);
        while self.small.len() + self.main.len() >= self.capacity {
            self.evict();
        }
        let is_filling = !self.has_evicted && self.small.len() >= self.small_capacity;
        if ghost_hits > u32::from(self.settings.ghost_hits_ignored()) || is_filling {
            self.main.push_back(Entry { key, uses: 0, ghost_hits: 0, entered: 0 });
        } else {
            self.entered += 1;
            self.small.push_back(Entry { key, uses: 0, ghost_hits, entered: self.entered });
        }
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        if self.main.len() > self.capacity - self.small_capacity || self.small.is_empty() {
            while let Some(entry) = self.main.pop_front() {
                if entry.uses == 0 {
                    return;
                }
                self.main.push_back(Entry { uses: entry.uses.min(3) - 1, ..entry });
            }
        }
        while let Some(entry) = self.small.pop_front() {
            if entry.uses < u32::from(self.settings.uses_to_promote()) {
                self.ghost.push_back((entry.key, entry.ghost_hits));
                while self.ghost.len() > self.ghost_capacity {
                    self.ghost.pop_front();
                }
                return;
            }
            self.main.push_back(Entry { uses: 0, ..entry });
        }
    }
}

fn count_naive_misses(settings: S4FifoSettings, capacity: usize, keys: &[u64]) -> u64 {
    let mut cache = NaiveS4Fifo::new(settings, capacity);
    let mut misses = 0;
    for &key in keys {
        if !cache.hit(key) {
            misses += 1;
            cache.store(key);
        }
    }
    misses
}

fn published_settings() -> Vec<S4FifoSettings> {
    let grids = ["s4fifo-paper", "s4fifo-library"].map(|name| S4FifoSettings::grid(name).unwrap());
    grids.concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_published_setting_equals_the_definition(requests in any_requests(), capacity in 1..50_usize) {
        let trace = prepare(&requests, Mode::Objects);
        let keys: Vec<u64> = requests.iter().map(|&(key, _)| key).collect();
        for settings in published_settings() {
            let misses = replay(PolicyKind::S4Fifo(settings), capacity as u64, &trace).misses;
            prop_assert_eq!(misses, count_naive_misses(settings, capacity, &keys), "{}", settings);
        }
    }

    #[test]
    fn the_default_is_s3_fifo_in_objects_and_bytes(requests in any_requests(), capacity in 1..80_u64) {
        for mode in [Mode::Objects, Mode::Bytes] {
            let trace = prepare(&requests, mode);
            let s4fifo = PolicyKind::S4Fifo(S4FifoSettings::default());
            // A ghost of a tenth less than the capacity has at least one object in S3-FIFO.
            if capacity > 1 {
                prop_assert_eq!(replay(s4fifo, capacity, &trace), replay(PolicyKind::S3Fifo, capacity, &trace));
            }
        }
    }
}
