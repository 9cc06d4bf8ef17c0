//! Settings that commands may change while the server runs, and that only `stats settings` displays.
//!
//! They tune slabs and LRU segments, which this server does not have; scripts send the commands all the same and
//! read the values back, so the syntax and the bounds are kept.

use std::sync::Mutex;

use crate::shared::config::Config;
use crate::shared::lock::lock;

/// The changeable settings of one server.
#[derive(Debug)]
pub(crate) struct Tuning(Mutex<TuningValues>);

/// One set of values, with memcached's defaults.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TuningValues {
    /// `cache_memlimit` in bytes.
    pub(crate) memory_bytes: u64,
    pub(crate) lru_crawler: bool,
    pub(crate) lru_crawler_sleep_us: u32,
    pub(crate) lru_crawler_tocrawl: u32,
    pub(crate) lru_segmented: bool,
    pub(crate) hot_lru_pct: u32,
    pub(crate) warm_lru_pct: u32,
    pub(crate) hot_max_factor: f64,
    pub(crate) warm_max_factor: f64,
    /// `None`: no temporary LRU.
    pub(crate) temporary_ttl_s: Option<u32>,
    pub(crate) slab_automove: u32,
    pub(crate) slab_automove_ratio: f64,
    pub(crate) slab_automove_freeratio: f64,
    pub(crate) slab_automove_window: u32,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Tuning {
        Tuning(Mutex::new(TuningValues {
            memory_bytes: config.memory_bytes,
            lru_crawler: config.lru_crawler,
            lru_crawler_sleep_us: 100,
            lru_crawler_tocrawl: 0,
            lru_segmented: config.lru_maintainer,
            hot_lru_pct: 20,
            warm_lru_pct: 40,
            hot_max_factor: 0.2,
            warm_max_factor: 2.0,
            temporary_ttl_s: None,
            slab_automove: 1,
            slab_automove_ratio: 0.8,
            slab_automove_freeratio: 0.01,
            slab_automove_window: 30,
        }))
    }

    /// A copy of the current values.
    pub(crate) fn get(&self) -> TuningValues {
        lock(&self.0).clone()
    }

    /// Changes some of the values.
    pub(crate) fn change(&self, apply: impl FnOnce(&mut TuningValues)) {
        apply(&mut lock(&self.0));
    }
}
