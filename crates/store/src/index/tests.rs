//! The index by itself: with items that are only numbers, and under loom in every order of its steps.

use std::sync::Arc;

use super::entry::TAG_SHIFT;
use super::*;

/// An item's address is its hash's low part plus an offset, so the hash can be computed from it.
struct NumberHashes;

const ITEM_ADDR_OFFSET: u64 = 1 << 40;

fn hash_of(number: u64) -> KeyHash {
    // Tags differ little on purpose: few tags cause frequent false matches.
    KeyHash(((number % 3) << TAG_SHIFT) | number)
}

fn item_of(number: u64) -> Addr {
    Addr(ITEM_ADDR_OFFSET + number)
}

impl ItemHashes for NumberHashes {
    fn hash_of(&self, addr: Addr) -> KeyHash {
        hash_of(addr.0 - ITEM_ADDR_OFFSET)
    }
}

/// Segments one after the other, returned ones first unless they are only kept.
struct SequentialSource {
    next: std::sync::atomic::AtomicU32,
    segments_max: u32,
    /// Whether returned segments are allocated again at once; the store waits for all readers first.
    reuses_returned: bool,
    returned: std::sync::Mutex<Vec<SegmentId>>,
}

impl SequentialSource {
    fn new(segments_max: u32) -> Self {
        SequentialSource {
            next: std::sync::atomic::AtomicU32::new(1),
            segments_max,
            reuses_returned: true,
            returned: std::sync::Mutex::default(),
        }
    }
}

impl SegmentSource for SequentialSource {
    fn allocate_segment(&self) -> Option<SegmentId> {
        if self.reuses_returned
            && let Some(id) = self.returned.lock().unwrap().pop()
        {
            return Some(id);
        }
        let next = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (next < self.segments_max).then_some(SegmentId(next))
    }
    fn free_segment(&self, segment: SegmentId) {
        self.returned.lock().unwrap().push(segment);
    }
}

fn contains(index: &Index, number: u64) -> bool {
    index.find(hash_of(number), |item| item == item_of(number)).is_some()
}

fn insert(index: &Index, number: u64, source: &dyn SegmentSource) {
    let entry = Entry::new(hash_of(number), 0, item_of(number));
    index.lock(hash_of(number)).insert(entry, source).unwrap();
}

fn remove(index: &Index, number: u64) -> bool {
    let mut bucket = index.lock(hash_of(number));
    let slot = bucket.find(hash_of(number), |item| item == item_of(number));
    slot.map(|slot| bucket.remove(slot)).is_some()
}

#[cfg(not(loom))]
mod single_threaded {
    use super::*;
    use crate::memory::Arena;

    /// Keys of one bucket of the first table.
    fn colliding_number(number: u64) -> u64 {
        number << 32
    }

    const CHAIN_ITEMS_MAX: u64 = (SLOTS_PER_LINE * (CHAIN_LINES_MAX + 1)) as u64;

    #[test]
    fn a_chain_at_its_bound_takes_no_more_and_every_item_in_it_is_found() {
        let (index, source) = new_index_and_source(8);
        for number in 0..CHAIN_ITEMS_MAX {
            insert(&index, colliding_number(number), &source);
        }
        let newcomer = colliding_number(CHAIN_ITEMS_MAX);
        let entry = Entry::new(hash_of(newcomer), 0, item_of(newcomer));
        let mut bucket = index.lock(hash_of(newcomer));
        assert_eq!(bucket.insert(entry, &source), Err(bucket::ChainFull));
        drop(bucket);
        assert!(!contains(&index, newcomer));
        let mut entries = Vec::new();
        index.entries_of(hash_of(newcomer), &mut entries);
        assert_eq!(entries.len() as u64, CHAIN_ITEMS_MAX);
        for number in 0..CHAIN_ITEMS_MAX {
            assert!(contains(&index, colliding_number(number)), "{number}");
            assert!(remove(&index, colliding_number(number)), "{number}");
        }
    }

    #[test]
    fn a_full_chain_evicts_one_of_its_least_used_items_and_not_always_the_same() {
        let (index, source) = new_index_and_source(8);
        for number in 0..CHAIN_ITEMS_MAX {
            let entry =
                Entry::new(hash_of(colliding_number(number)), (number % 2) as u8, item_of(number));
            let mut bucket = index.lock(hash_of(colliding_number(number)));
            bucket.insert(entry, &source).unwrap();
        }
        let bucket = index.lock(hash_of(0));
        let victims: std::collections::HashSet<u64> = (0..1000)
            .map(|number| Entry::new(hash_of(0), 0, Addr(ITEM_ADDR_OFFSET + 64 * number)))
            .map(|newcomer| bucket.least_used(newcomer).unwrap().entry)
            .inspect(|victim| assert_eq!(victim.frequency(), 0))
            .map(|victim| victim.item_addr().0)
            .collect();
        let least_used_count = CHAIN_ITEMS_MAX.div_ceil(2);
        assert!(victims.len() > 50, "{} of {least_used_count}", victims.len());
    }

    #[test]
    fn two_full_chains_are_not_merged_beyond_the_bound() {
        let (index, source) = new_index_and_source(16);
        // In a table of 128 buckets, and one more, bit 7 decides between buckets 0 and 128.
        assert_eq!(index.split(&NumberHashes, &source), ResizeOutcome::Done);
        for number in 0..CHAIN_ITEMS_MAX {
            insert(&index, colliding_number(number), &source);
            insert(&index, colliding_number(number) | 128, &source);
        }
        assert_eq!(index.merge(&source), ResizeOutcome::NoRoom);
        for number in 0..CHAIN_ITEMS_MAX {
            assert!(contains(&index, colliding_number(number)), "{number}");
            assert!(contains(&index, colliding_number(number) | 128), "{number}");
        }
    }

    fn new_index_and_source(segments_max: usize) -> (Index, SequentialSource) {
        let arena = Arc::new(Arena::new(segments_max, 13).unwrap());
        (
            Index::new(Lines::new(arena), SegmentId(0), segments_max),
            SequentialSource::new(segments_max as u32),
        )
    }

    #[test]
    fn the_index_grows_and_shrinks_without_losing_an_item() {
        let (index, source) = new_index_and_source(64);
        let item_count = if cfg!(miri) { 2000 } else { 30_000 };
        for number in 0..item_count {
            insert(&index, number, &source);
            while index.needs_split(number as usize) {
                assert_eq!(index.split(&NumberHashes, &source), ResizeOutcome::Done);
            }
        }
        let segments_at_peak = index.segment_count();
        assert!((0..item_count).all(|number| contains(&index, number)));
        assert!(!contains(&index, item_count));
        for number in 0..item_count {
            assert!(remove(&index, number) && !contains(&index, number));
            while index.needs_merge((item_count - number) as usize) {
                assert_eq!(index.merge(&source), ResizeOutcome::Done);
            }
            index.drain_overflow_step(&source);
        }
        assert!(
            index.segment_count() <= 2 && segments_at_peak > 2,
            "segments came back: {segments_at_peak} to {}",
            index.segment_count()
        );
        assert_eq!(
            source.returned.lock().unwrap().len() + index.segment_count(),
            source.next.into_inner() as usize
        );
    }

    #[test]
    fn most_slots_are_used_at_every_item_count() {
        let (index, source) = new_index_and_source(256);
        for number in 0..60_000u64 {
            let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            insert(&index, spread, &source);
            while index.needs_split(number as usize) {
                index.split(&NumberHashes, &source);
            }
            if number > 20_000 && number % 1000 == 0 {
                let index_bytes = index.segment_count() * (1 << 13);
                assert!(
                    index_bytes as u64 <= number * 15,
                    "{index_bytes} bytes for {number} items"
                );
            }
        }
    }

    /// Items whose hash is unavailable.
    struct PanickingHashes;

    impl ItemHashes for PanickingHashes {
        fn hash_of(&self, _addr: Addr) -> KeyHash {
            panic!("a hash was requested")
        }
    }

    #[test]
    fn the_index_grows_after_a_panic_in_a_split() {
        let (index, source) = new_index_and_source(64);
        (0..2000).for_each(|number| insert(&index, number, &source));
        let split = std::panic::AssertUnwindSafe(|| index.split(&PanickingHashes, &source));
        assert!(std::panic::catch_unwind(split).is_err());
        assert_eq!(index.split(&NumberHashes, &source), ResizeOutcome::Done);
        assert!((0..2000).all(|number| contains(&index, number)));
    }

    #[test]
    fn a_walk_by_cursor_passes_every_bucket_of_any_count() {
        for bucket_count in 1..200 {
            let (mut cursor, mut visit_counts) = (Some(0), vec![0; bucket_count]);
            while let Some(walk_cursor) = cursor {
                visit_counts[bucket_of(KeyHash(u64::reverse_bits(walk_cursor)), bucket_count)] += 1;
                cursor = next_cursor(walk_cursor, bucket_count);
            }
            assert!(
                visit_counts.iter().all(|&visits| visits == 1),
                "{bucket_count}: {visit_counts:?}"
            );
        }
    }
}

#[cfg(loom)]
mod interleaved {
    use super::*;
    use loom::thread;

    /// Four segments of one line: enough for a bucket, its sibling and overflow.
    fn new_index_and_source() -> (Arc<Index>, Arc<SequentialSource>) {
        new_index_and_source_with(1)
    }

    fn new_index_and_source_with(lines_per_segment: usize) -> (Arc<Index>, Arc<SequentialSource>) {
        let lines = Lines::with_segment_count(4, lines_per_segment);
        let source = SequentialSource { reuses_returned: false, ..SequentialSource::new(4) };
        (Arc::new(Index::new(lines, SegmentId(0), 4)), Arc::new(source))
    }

    fn explore(test: impl Fn() + Sync + Send + 'static) {
        explore_with(3, test);
    }

    /// Two steps of resizing have too many orders for three preemptions.
    fn explore_two_steps(test: impl Fn() + Sync + Send + 'static) {
        explore_with(2, test);
    }

    fn explore_with(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(test);
    }

    #[test]
    fn a_reader_never_misses_while_a_bucket_splits() {
        explore(|| {
            let (index, source) = new_index_and_source();
            insert(&index, 2, &*source);
            insert(&index, 3, &*source);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(contains(&index, 3) && !contains(&index, 5)))
            };
            assert_eq!(index.split(&NumberHashes, &*source), ResizeOutcome::Done);
            reader.join().unwrap();
            assert!(contains(&index, 2) && contains(&index, 3));
        });
    }

    #[test]
    fn a_reader_never_misses_while_buckets_merge() {
        explore(|| {
            let (index, source) = new_index_and_source();
            index.split(&NumberHashes, &*source);
            insert(&index, 3, &*source);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(contains(&index, 3)))
            };
            assert_eq!(index.merge(&*source), ResizeOutcome::Done);
            reader.join().unwrap();
            assert!(contains(&index, 3));
        });
    }

    /// The number of buckets is the same before and after, and the key was in another one between.
    #[test]
    fn a_reader_never_misses_while_a_bucket_splits_and_merges_again() {
        explore_two_steps(|| {
            let (index, source) = new_index_and_source();
            insert(&index, 3, &*source);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(contains(&index, 3)))
            };
            assert_eq!(index.split(&NumberHashes, &*source), ResizeOutcome::Done);
            assert_eq!(index.merge(&*source), ResizeOutcome::Done);
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_reader_never_misses_while_buckets_merge_and_one_splits_again() {
        explore_two_steps(|| {
            let (index, source) = new_index_and_source();
            index.split(&NumberHashes, &*source);
            insert(&index, 3, &*source);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(contains(&index, 3)))
            };
            assert_eq!(index.merge(&*source), ResizeOutcome::Done);
            assert_eq!(index.split(&NumberHashes, &*source), ResizeOutcome::Done);
            reader.join().unwrap();
        });
    }

    /// As above, with a bucket that stays in a segment that others use too.
    #[test]
    fn a_reader_never_misses_while_a_bucket_of_a_kept_segment_merges_and_splits_again() {
        explore_two_steps(|| {
            let (index, source) = new_index_and_source_with(2);
            for _ in 0..2 {
                assert_eq!(index.split(&NumberHashes, &*source), ResizeOutcome::Done);
            }
            insert(&index, 3, &*source);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(contains(&index, 3)))
            };
            assert_eq!(index.merge(&*source), ResizeOutcome::Done);
            assert_eq!(index.split(&NumberHashes, &*source), ResizeOutcome::Done);
            reader.join().unwrap();
        });
    }

    /// A writer that waited for a bucket's lock must not get one that is no longer the key's.
    #[test]
    fn a_writer_loses_nothing_while_buckets_merge_and_one_splits_again() {
        explore_two_steps(|| {
            let (index, source) = new_index_and_source();
            index.split(&NumberHashes, &*source);
            let writer = {
                let (index, source) = (Arc::clone(&index), Arc::clone(&source));
                thread::spawn(move || insert(&index, 3, &*source))
            };
            assert_eq!(index.merge(&*source), ResizeOutcome::Done);
            assert_eq!(index.split(&NumberHashes, &*source), ResizeOutcome::Done);
            writer.join().unwrap();
            assert!(contains(&index, 3));
        });
    }

    #[test]
    fn a_walk_sees_every_entry_while_a_bucket_splits_and_merges_again() {
        explore_two_steps(|| {
            let (index, source) = new_index_and_source();
            insert(&index, 3, &*source);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    let mut entries = Vec::new();
                    index.entries_of(hash_of(3), &mut entries);
                    assert!(entries.iter().any(|entry| entry.item_addr() == item_of(3)));
                })
            };
            assert_eq!(index.split(&NumberHashes, &*source), ResizeOutcome::Done);
            assert_eq!(index.merge(&*source), ResizeOutcome::Done);
            reader.join().unwrap();
        });
    }

    #[test]
    fn a_split_and_a_writer_lose_nothing() {
        explore(|| {
            let (index, source) = new_index_and_source();
            insert(&index, 3, &*source);
            let writer = {
                let (index, source) = (Arc::clone(&index), Arc::clone(&source));
                thread::spawn(move || {
                    insert(&index, 5, &*source);
                    assert!(remove(&index, 3));
                })
            };
            index.split(&NumberHashes, &*source);
            writer.join().unwrap();
            assert!(contains(&index, 5) && !contains(&index, 3));
        });
    }

    /// A mover and a writer both want to replace the same item: exactly one may.
    #[test]
    fn either_the_mover_or_the_writer_wins() {
        explore(|| {
            let (index, source) = new_index_and_source();
            insert(&index, 3, &*source);
            let replace = |index: &Index, copy: u64| {
                let mut bucket = index.lock(hash_of(3));
                let slot = bucket.find(hash_of(3), |item| item == item_of(3));
                slot.map(|slot| bucket.replace(slot, Entry::new(hash_of(3), 0, item_of(copy))))
                    .is_some()
            };
            let mover = {
                let index = Arc::clone(&index);
                thread::spawn(move || replace(&index, 103))
            };
            let is_written = replace(&index, 203);
            let is_moved = mover.join().unwrap();
            assert!(is_written != is_moved, "both or none replaced the item");
            let current_copy = if is_moved { 103 } else { 203 };
            assert!(index.find(hash_of(3), |item| item == item_of(current_copy)).is_some());
        });
    }

    #[test]
    fn a_recorded_use_never_restores_a_removed_item() {
        explore(|| {
            let (index, source) = new_index_and_source();
            insert(&index, 3, &*source);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    if let Some(hit) = index.find(hash_of(3), |item| item == item_of(3)) {
                        hit.record_use(|_| false);
                    }
                })
            };
            assert!(remove(&index, 3));
            reader.join().unwrap();
            assert!(!contains(&index, 3));
        });
    }
}
