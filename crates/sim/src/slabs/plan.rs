//! The cost of a list of classes for given sizes: waste by class, and how many items fit into a given memory.

use super::classes::{PAGE_BYTES, SlabClasses};
use super::demand::Demand;

/// The use of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassUse {
    /// Size of its chunks.
    pub chunk_bytes: u32,
    /// Chunks that items need.
    pub chunks: u64,
    /// Bytes that items need in them.
    pub requested_bytes: u128,
}

impl ClassUse {
    /// Chunks that a page holds.
    pub fn chunks_per_page(&self) -> u32 {
        PAGE_BYTES / self.chunk_bytes
    }

    /// Bytes that its chunks take, the unusable tail of each page shared among them.
    pub fn taken_bytes(&self) -> f64 {
        self.chunks as f64 * f64::from(PAGE_BYTES) / f64::from(self.chunks_per_page())
    }

    /// Bytes taken but not needed.
    pub fn wasted_bytes(&self) -> f64 {
        self.taken_bytes() - self.requested_bytes as f64
    }
}

/// A list of classes under a demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Every class, including unused ones.
    pub classes: Vec<ClassUse>,
    items: u64,
    item_bytes: u128,
}

impl Plan {
    /// Assigns a demand to classes.
    pub fn new(classes: &SlabClasses, demand: &Demand) -> Self {
        let chunk_sizes = classes.chunk_sizes();
        let mut class_uses: Vec<ClassUse> = chunk_sizes
            .iter()
            .map(|&chunk_bytes| ClassUse { chunk_bytes, ..ClassUse::default() })
            .collect();
        for (bytes, count) in demand.chunks() {
            let class_index = chunk_sizes
                .partition_point(|&chunk_bytes| chunk_bytes < bytes)
                .min(chunk_sizes.len() - 1);
            class_uses[class_index].chunks += count;
            class_uses[class_index].requested_bytes += u128::from(bytes) * u128::from(count);
        }
        Self { classes: class_uses, items: demand.items(), item_bytes: demand.item_bytes() }
    }

    /// Bytes that all chunks take, page tails included.
    pub fn taken_bytes(&self) -> f64 {
        self.classes.iter().map(ClassUse::taken_bytes).sum()
    }

    /// The share of the memory that holds no byte of an item.
    pub fn waste(&self) -> f64 {
        if self.items == 0 { 0.0 } else { 1.0 - self.item_bytes as f64 / self.taken_bytes() }
    }

    /// Number of classes in use.
    pub fn used_classes(&self) -> usize {
        self.classes.iter().filter(|class| class.chunks > 0).count()
    }

    /// The trap of small factors: the classes end early, and all larger items go into the largest chunk.
    ///
    /// Returns the last chunk before the largest, when more than a hundredth of the memory is lost above it.
    pub fn last_class_before_gap(&self) -> Option<u32> {
        let [.., second_largest, largest] = self.classes.as_slice() else {
            return None;
        };
        let is_far = f64::from(largest.chunk_bytes) > 4.0 * f64::from(second_largest.chunk_bytes);
        (is_far && largest.wasted_bytes() > 0.01 * self.taken_bytes())
            .then_some(second_largest.chunk_bytes)
    }

    /// How many items of this mix a memory holds before memcached has to evict.
    ///
    /// Pages go to the classes one by one as the mix arrives, so each class has begun a page that is not full; a
    /// class that expects less than one item has no page. memcached refuses a page only to a class that has one: the
    /// first page of a class may lie beyond `-m`, and then counts against it like the others. So it begins to evict
    /// when a class needs a further page and the limit is reached.
    pub fn items_that_fit(&self, memory_bytes: u64) -> u64 {
        if self.items == 0 {
            return 0;
        }
        let pages = memory_bytes / u64::from(PAGE_BYTES);
        // No item takes less than the smallest chunk, which bounds the result.
        let bytes_max = memory_bytes + self.classes.len() as u64 * u64::from(PAGE_BYTES);
        let items_max = bytes_max / u64::from(self.classes[0].chunk_bytes);
        let items_within_limit =
            find_most_items(items_max, |items| self.pages_taken(items) <= pages);
        let further_pages = self.further_pages(items_within_limit);
        find_most_items(items_max, |items| self.further_pages(items) <= further_pages)
    }

    /// Pages of all classes when this many items of the mix have arrived.
    pub fn pages_taken(&self, items: u64) -> u64 {
        self.pages_by_class(items).sum()
    }

    /// Pages other than the first of each class.
    fn further_pages(&self, items: u64) -> u64 {
        self.pages_by_class(items).map(|pages| pages.saturating_sub(1)).sum()
    }

    fn pages_by_class(&self, items: u64) -> impl Iterator<Item = u64> {
        let fraction = items as f64 / self.items.max(1) as f64;
        self.classes.iter().map(move |class| {
            let chunks = class.chunks as f64 * fraction;
            if chunks < 0.5 {
                0
            } else {
                (chunks / f64::from(class.chunks_per_page())).ceil() as u64
            }
        })
    }
}

/// The largest number up to `items_max` that fits, if all below it fit.
fn find_most_items(items_max: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let (mut fitting_items, mut excess_items) = (0, items_max + 1);
    while fitting_items + 1 < excess_items {
        let middle = u64::midpoint(fitting_items, excess_items);
        if fits(middle) {
            fitting_items = middle;
        } else {
            excess_items = middle;
        }
    }
    fitting_items
}

/// Share of the memory that glasscache's segments keep free ahead of need.
const RESERVE_SHARE: f64 = 0.02;

/// How many items of this mix glasscache's segments hold: their records and the mean index space of each item, part
/// of which is outside the memory limit; for the default of four workers.
pub fn count_items_in_segments(demand: &Demand, memory_bytes: u64) -> u64 {
    let record_bytes = demand.segment_bytes() as f64 / demand.items().max(1) as f64;
    let index_bytes = glasscache_store::INDEX_BYTES_MEAN;
    let outside_limit_bytes = glasscache_store::index_outside_bytes(memory_bytes, 4) as f64;
    let usable_bytes = memory_bytes as f64 * (1.0 - RESERVE_SHARE);
    let items_with_index = (usable_bytes + outside_limit_bytes) / (record_bytes + index_bytes);
    items_with_index.min(usable_bytes / record_bytes) as u64
}

#[cfg(test)]
mod tests {
    use super::super::classes::{SlabConfig, head_bytes};
    use super::*;

    fn demand_of(sizes: &[(u32, u64)]) -> Demand {
        let mut demand = Demand::default();
        for &(value_bytes, count) in sizes {
            demand.add(&SlabConfig::default(), head_bytes(10, false), value_bytes, count);
        }
        demand
    }

    #[test]
    fn waste_counts_chunk_and_page_overhead() {
        let classes = SlabClasses::new(&SlabConfig::default());
        let plan = Plan::new(&classes, &demand_of(&[(27, 1000)]));
        assert_eq!((plan.used_classes(), plan.classes[0].chunks), (1, 1000));
        let expected = 1.0 - 96.0 / (1_048_576.0 / 10_922.0);
        assert!((plan.waste() - expected).abs() < 1e-9);
        assert_eq!(plan.items_that_fit(64 << 20), 64 * 10_922);
    }

    #[test]
    fn the_first_page_of_a_class_may_lie_beyond_the_limit() {
        let classes = SlabClasses::new(&SlabConfig::default());
        // A page holds 10,922 chunks of the small items and 885 of the large ones.
        let two_sizes = Plan::new(&classes, &demand_of(&[(27, 1000), (1000, 1000)]));
        let fitting = [0, 1, 2, 3, 4].map(|mib| two_sizes.items_that_fit(mib << 20));
        assert_eq!(
            fitting,
            [2 * 885, 2 * 885, 2 * 885, 4 * 885, 6 * 885],
            "each class has a page whatever -m is"
        );
        // The class of the one very large item begins its page when the two others have used up the limit.
        let with_rare_size =
            Plan::new(&classes, &demand_of(&[(27, 1000), (1000, 1000), (20_000, 1)]));
        assert_eq!(with_rare_size.items_that_fit(2 << 20), 2 * 885);
        assert_eq!(with_rare_size.pages_taken(2 * 885), 3);
        // With one page more, that page is used up by then, and no class gets a second one.
        assert_eq!(with_rare_size.items_that_fit(3 << 20), 2 * 885);
        assert_eq!(with_rare_size.items_that_fit(4 << 20), 4 * 885 + 1);
    }

    #[test]
    fn more_memory_never_holds_fewer_items() {
        let sizes: Vec<(u32, u64)> =
            (1..200).map(|step| (step * 137, u64::from(20_000 / step))).collect();
        for factor in [1.08, 1.25, 2.0] {
            let config = SlabConfig { factor, ..SlabConfig::default() };
            let plan = Plan::new(&SlabClasses::new(&config), &demand_of(&sizes));
            let fitting: Vec<u64> = (0..128).map(|mib| plan.items_that_fit(mib << 20)).collect();
            assert!(fitting.is_sorted(), "{factor}: {fitting:?}");
            assert!(fitting[0] > 0, "{factor}");
        }
    }

    #[test]
    fn large_items_need_a_head_and_pieces() {
        let classes = SlabClasses::new(&SlabConfig::default());
        let plan = Plan::new(&classes, &demand_of(&[(600_000, 10)]));
        assert_eq!(plan.classes.iter().map(|class| class.chunks).sum::<u64>(), 30);
    }

    #[test]
    fn a_small_factor_leaves_a_gap_below_the_largest_class() {
        let small_factor = SlabConfig { factor: 1.08, ..SlabConfig::default() };
        let mix = demand_of(&[(100, 1000), (20_000, 1000)]);
        assert_eq!(
            Plan::new(&SlabClasses::new(&small_factor), &mix).last_class_before_gap(),
            Some(13_800)
        );
        assert_eq!(
            Plan::new(&SlabClasses::new(&SlabConfig::default()), &mix).last_class_before_gap(),
            None
        );
        let only_small = demand_of(&[(100, 1000)]);
        assert_eq!(
            Plan::new(&SlabClasses::new(&small_factor), &only_small).last_class_before_gap(),
            None
        );
    }
}
