//! memcached's slab classes as a way of counting: the class to which an item would belong, and the operations on
//! items of that class.
//!
//! We have no slabs. Dashboards and exporters read `stats items` and `stats slabs`, so hits and
//! writes are counted by the class that memcached would have used at the same `-f` and `-n`.

use glasscache_sim::slabs::classes::{SlabClasses, SlabConfig, item_bytes};
use glasscache_store::Item;

use crate::shared::config::Config;
use crate::shared::counters::Counters;

/// The class of sizes below this many bytes is found in a table of [`SIZE_STEP_BYTES`] steps.
const TABLE_SIZE_MAX: usize = 16 << 10;
/// Chunk sizes are multiples of this.
const SIZE_STEP_BYTES: usize = 8;

/// The classes of one server.
pub(crate) struct SlabClassTable {
    classes: SlabClasses,
    /// Class, counted from 1, of sizes in steps of 8 bytes.
    class_by_size_step: Vec<u8>,
}

impl SlabClassTable {
    pub(crate) fn new(config: &Config) -> SlabClassTable {
        let page_bytes = 1 << 20;
        let classes = SlabClasses::new(&SlabConfig {
            factor: config.slab_factor,
            chunk_bytes_min: config.slab_chunk_min,
            item_bytes_max: config.item_bytes_max,
            slab_chunk_bytes_max: config
                .slab_chunk_max
                .unwrap_or_else(|| (config.item_bytes_max / 2).min(page_bytes / 2)),
            slab_sizes: None,
        });
        let find_class = |size_step: usize| {
            classes.class_of((size_step * SIZE_STEP_BYTES) as u32).unwrap_or(1) as u8
        };
        let class_by_size_step = (0..TABLE_SIZE_MAX / SIZE_STEP_BYTES).map(find_class).collect();
        SlabClassTable { classes, class_by_size_step }
    }

    /// The chunk sizes, class 1 first.
    pub(crate) fn chunk_sizes(&self) -> &[u32] {
        self.classes.chunk_sizes()
    }

    /// Class and size of an item by memcached's measure.
    #[inline]
    pub(crate) fn class_and_size(
        &self,
        key_bytes: usize,
        value_bytes: u32,
        client_flags: u32,
    ) -> (usize, u32) {
        let size_bytes = item_bytes(key_bytes as u32, value_bytes, client_flags != 0);
        match self.class_by_size_step.get((size_bytes as usize).div_ceil(SIZE_STEP_BYTES)) {
            Some(class) => (usize::from(*class), size_bytes),
            None => {
                (self.classes.class_of(size_bytes).unwrap_or(self.chunk_sizes().len()), size_bytes)
            }
        }
    }

    /// Counts a hit.
    #[inline]
    pub(crate) fn count_hit(
        &self,
        counters: &Counters,
        key_bytes: usize,
        item: &Item<'_>,
        is_touch: bool,
    ) {
        let (class, _) = self.class_and_size(key_bytes, item.value_bytes(), item.flags());
        if let Some(class_counters) = counters.by_class.get(class) {
            if is_touch {
                class_counters.touch_hits.bump();
            } else {
                class_counters.get_hits.bump();
            }
        }
    }

    /// Counts a hit of a minimal item, which has no client flags, by a read that does not touch it.
    #[inline]
    pub(crate) fn count_minimal_item_hit(
        &self,
        counters: &Counters,
        key_bytes: usize,
        value_bytes: usize,
    ) {
        let (class, _) = self.class_and_size(key_bytes, value_bytes as u32, 0);
        if let Some(class_counters) = counters.by_class.get(class) {
            class_counters.get_hits.bump();
        }
    }

    /// Counts a write.
    #[inline]
    pub(crate) fn count_set(
        &self,
        counters: &Counters,
        key: &[u8],
        value_bytes: u32,
        client_flags: u32,
    ) {
        let (class, _) = self.class_and_size(key.len(), value_bytes, client_flags);
        if let Some(class_counters) = counters.by_class.get(class) {
            class_counters.set_cmds.bump();
        }
    }

    /// Counts a deletion that is about to happen.
    pub(crate) fn count_delete(&self, counters: &Counters, key_bytes: usize, item: &Item<'_>) {
        let (class, _) = self.class_and_size(key_bytes, item.value_bytes(), item.flags());
        if let Some(class_counters) = counters.by_class.get(class) {
            class_counters.delete_hits.bump();
        }
    }

    /// Counts an increment or decrement that left `value`.
    pub(crate) fn count_arith(
        &self,
        counters: &Counters,
        key: &[u8],
        value: u64,
        is_decrement: bool,
    ) {
        let digit_count = value.checked_ilog10().unwrap_or(0) + 1;
        let (class, _) = self.class_and_size(key.len(), digit_count, 0);
        if let Some(class_counters) = counters.by_class.get(class) {
            if is_decrement {
                class_counters.decr_hits.bump();
            } else {
                class_counters.incr_hits.bump();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_search() {
        let class_table = SlabClassTable::new(&Config::default());
        for value_bytes in 0..20_000 {
            let (class, size_bytes) = class_table.class_and_size(8, value_bytes, 0);
            assert_eq!(Some(class), class_table.classes.class_of(size_bytes), "{value_bytes}");
        }
    }
}
