//! The capacity of a miniature: the live bytes that the store holds per byte of memory, and the memory that its index leaves.

use super::miniature::Capacity;
use crate::ghost::Ghost;
use crate::store::{ghost_tags_for, index_outside_bytes};
use crate::tuning::PolicySettings;

/// Live bytes per byte of memory, before the store is full and shows its own.
const UTILISATION_START: f64 = 0.93;

/// The store may keep four segments beyond the share of a sweep, of 512.
const KEEP_BUDGET_DIVISOR: u64 = 128;

/// The ghost of a store of few large items is one segment, which is far more than its settings want: tags above this, per
/// hundred items, would take more memory than the items of the sample.
const GHOST_PERCENT_MAX: u16 = 200;

/// What capacities follow from.
pub(super) struct Sizing {
    /// `-m`.
    pub(super) memory_bytes: f64,
    pub(super) index_bytes: f64,
    pub(super) ghost_bytes: f64,
    /// Live bytes, if the store is full.
    pub(super) item_bytes: Option<f64>,
    pub(super) workers: usize,
}

impl Sizing {
    /// The capacity of a miniature of one in `keys_per_sample` keys in `factor` of the memory, which holds `item_count`
    /// items now.
    pub(super) fn capacity(
        &self,
        factor: f64,
        settings: PolicySettings,
        keys_per_sample: u32,
        item_count: usize,
    ) -> Capacity {
        let memory_bytes = self.memory_bytes * factor;
        let bytes = self.item_memory(memory_bytes, (self.index_bytes + self.ghost_bytes) * factor);
        self.capacity_of(bytes, memory_bytes, settings, keys_per_sample, item_count)
    }

    /// The capacity of one in the present memory, whose ghost is as large as its settings want and not as that of the store
    /// is now.
    pub(super) fn capacity_with_ghost(
        &self,
        settings: PolicySettings,
        keys_per_sample: u32,
        item_count: usize,
    ) -> Capacity {
        let tags = ghost_tags(self.memory_bytes, settings, keys_per_sample, item_count);
        let ghost_bytes = Ghost::bytes_of(tags) as f64;
        let bytes = self.item_memory(self.memory_bytes, self.index_bytes + ghost_bytes);
        self.capacity_of(bytes, self.memory_bytes, settings, keys_per_sample, item_count)
    }

    fn capacity_of(
        &self,
        item_memory: f64,
        memory_bytes: f64,
        settings: PolicySettings,
        keys_per_sample: u32,
        item_count: usize,
    ) -> Capacity {
        let bytes = (item_memory * self.utilisation() / f64::from(keys_per_sample)) as u64;
        let tags = ghost_tags(memory_bytes, settings, keys_per_sample, item_count);
        let tags_max =
            item_count * usize::from(settings.ghost_percent.max(GHOST_PERCENT_MAX)) / 100;
        Capacity {
            bytes,
            ghost_tags: (tags / keys_per_sample.max(1) as usize).min(tags_max),
            keep_budget_bytes: bytes / KEEP_BUDGET_DIVISOR,
        }
    }

    /// Memory for items where index and ghost have `index_bytes`, of which a part is outside of `-m`.
    fn item_memory(&self, memory_bytes: f64, index_bytes: f64) -> f64 {
        let outside_bytes = index_outside_bytes(memory_bytes as u64, self.workers) as f64;
        memory_bytes - (index_bytes - outside_bytes).max(0.0)
    }

    fn utilisation(&self) -> f64 {
        let item_memory = self.item_memory(self.memory_bytes, self.index_bytes + self.ghost_bytes);
        self.item_bytes
            .map_or(UTILISATION_START, |item_bytes| (item_bytes / item_memory).clamp(0.5, 1.0))
    }
}

/// Tags that the ghost of the store would have.
fn ghost_tags(
    memory_bytes: f64,
    settings: PolicySettings,
    keys_per_sample: u32,
    item_count: usize,
) -> usize {
    let items = item_count * keys_per_sample as usize;
    ghost_tags_for(items * usize::from(settings.ghost_percent) / 100, memory_bytes as u64)
}
