//! The index by itself: with items that are only numbers, and under loom in every order of its steps.

use std::sync::Arc;

use super::entry::TAG_SHIFT;
use super::*;

/// An item's address is its hash's low part plus an offset, so its hash can be had back.
struct Numbers;

const FAR: u64 = 1 << 40;

fn hash_of(number: u64) -> KeyHash {
    // Tags differ little on purpose: few tags make false matches common.
    KeyHash(((number % 3) << TAG_SHIFT) | number)
}

fn item_of(number: u64) -> Addr {
    Addr(FAR + number)
}

impl Keys for Numbers {
    fn hash_of(&self, item: Addr) -> KeyHash {
        hash_of(item.0 - FAR)
    }
}

/// Segments one after the other; what is given back is only counted.
struct Counting {
    next: std::sync::atomic::AtomicU32,
    limit: u32,
    given: std::sync::Mutex<Vec<SegmentId>>,
}

impl Counting {
    fn new(limit: u32) -> Self {
        Counting {
            next: std::sync::atomic::AtomicU32::new(1),
            limit,
            given: std::sync::Mutex::default(),
        }
    }
}

impl Supply for Counting {
    fn take(&self) -> Option<SegmentId> {
        if let Some(id) = self.given.lock().unwrap().pop() {
            return Some(id);
        }
        let next = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (next < self.limit).then_some(SegmentId(next))
    }
    fn give(&self, segment: SegmentId) {
        self.given.lock().unwrap().push(segment);
    }
}

fn contains(index: &Index, number: u64) -> bool {
    index
        .find(hash_of(number), |item| item == item_of(number))
        .is_some()
}

fn insert(index: &Index, number: u64, supply: &dyn Supply) {
    let entry = Entry::new(hash_of(number), 0, item_of(number));
    index.lock(hash_of(number)).insert(entry, supply).unwrap();
}

fn remove(index: &Index, number: u64) -> bool {
    let mut bucket = index.lock(hash_of(number));
    let place = bucket.find(hash_of(number), |item| item == item_of(number));
    place.map(|place| bucket.remove(place)).is_some()
}

#[cfg(not(loom))]
mod alone {
    use super::*;
    use crate::memory::Arena;

    fn index(segments: usize) -> (Index, Counting) {
        let arena = Arc::new(Arena::new(segments, 13).unwrap());
        (
            Index::new(Lines::new(arena), SegmentId(0), segments),
            Counting::new(segments as u32),
        )
    }

    #[test]
    fn it_grows_and_shrinks_without_losing_an_item() {
        let (index, supply) = index(64);
        let count = if cfg!(miri) { 2000 } else { 30_000 };
        for number in 0..count {
            insert(&index, number, &supply);
            while index.wants_split(number as usize) {
                assert_eq!(index.split(&Numbers, &supply), Step::Done);
            }
        }
        let at_most = index.segments();
        assert!((0..count).all(|number| contains(&index, number)));
        assert!(!contains(&index, count));
        for number in 0..count {
            assert!(remove(&index, number) && !contains(&index, number));
            while index.wants_merge((count - number) as usize) {
                assert_eq!(index.merge(&supply), Step::Done);
            }
            index.tidy(&supply);
        }
        assert!(
            index.segments() <= 2 && at_most > 2,
            "segments came back: {at_most} to {}",
            index.segments()
        );
        assert_eq!(
            supply.given.lock().unwrap().len() + index.segments(),
            supply.next.into_inner() as usize
        );
    }

    #[test]
    fn slots_are_well_used_at_every_count() {
        let (index, supply) = index(256);
        for number in 0..60_000u64 {
            let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            insert(&index, spread, &supply);
            while index.wants_split(number as usize) {
                index.split(&Numbers, &supply);
            }
            if number > 20_000 && number % 1000 == 0 {
                let bytes = index.segments() * (1 << 13);
                assert!(
                    bytes as u64 <= number * 15,
                    "{bytes} bytes for {number} items"
                );
            }
        }
    }

    /// Items of which nobody can tell the hash.
    struct Panicking;

    impl Keys for Panicking {
        fn hash_of(&self, _item: Addr) -> KeyHash {
            panic!("asked for a hash")
        }
    }

    #[test]
    fn the_index_grows_after_a_panic_in_a_split() {
        let (index, supply) = index(64);
        (0..2000).for_each(|number| insert(&index, number, &supply));
        let split = std::panic::AssertUnwindSafe(|| index.split(&Panicking, &supply));
        assert!(std::panic::catch_unwind(split).is_err());
        assert_eq!(index.split(&Numbers, &supply), Step::Done);
        assert!((0..2000).all(|number| contains(&index, number)));
    }

    #[test]
    fn a_walk_by_cursor_passes_every_bucket_of_any_count() {
        for buckets in 1..200 {
            let (mut cursor, mut seen) = (Some(0), vec![0; buckets]);
            while let Some(at) = cursor {
                seen[bucket_of(KeyHash(u64::reverse_bits(at)), buckets)] += 1;
                cursor = next_cursor(at, buckets);
            }
            assert!(seen.iter().all(|&times| times == 1), "{buckets}: {seen:?}");
        }
    }
}

#[cfg(loom)]
mod interleaved {
    use super::*;
    use loom::thread;

    /// Four lines a segment: enough for a bucket, its sibling and overflow.
    fn index() -> (Arc<Index>, Arc<Counting>) {
        let lines = Lines::with(4, 1);
        (
            Arc::new(Index::new(lines, SegmentId(0), 4)),
            Arc::new(Counting::new(4)),
        )
    }

    fn explore(test: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(test);
    }

    #[test]
    fn a_reader_never_misses_while_a_bucket_splits() {
        explore(|| {
            let (index, supply) = index();
            insert(&index, 2, &*supply);
            insert(&index, 3, &*supply);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(contains(&index, 3) && !contains(&index, 5)))
            };
            assert_eq!(index.split(&Numbers, &*supply), Step::Done);
            reader.join().unwrap();
            assert!(contains(&index, 2) && contains(&index, 3));
        });
    }

    #[test]
    fn a_reader_never_misses_while_buckets_merge() {
        explore(|| {
            let (index, supply) = index();
            index.split(&Numbers, &*supply);
            insert(&index, 3, &*supply);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || assert!(contains(&index, 3)))
            };
            assert_eq!(index.merge(&*supply), Step::Done);
            reader.join().unwrap();
            assert!(contains(&index, 3));
        });
    }

    #[test]
    fn a_split_and_a_writer_lose_nothing() {
        explore(|| {
            let (index, supply) = index();
            insert(&index, 3, &*supply);
            let writer = {
                let (index, supply) = (Arc::clone(&index), Arc::clone(&supply));
                thread::spawn(move || {
                    insert(&index, 5, &*supply);
                    assert!(remove(&index, 3));
                })
            };
            index.split(&Numbers, &*supply);
            writer.join().unwrap();
            assert!(contains(&index, 5) && !contains(&index, 3));
        });
    }

    /// A mover and a writer both want to replace the same item: exactly one may.
    #[test]
    fn of_mover_and_writer_one_wins() {
        explore(|| {
            let (index, supply) = index();
            insert(&index, 3, &*supply);
            let replace = |index: &Index, copy: u64| {
                let mut bucket = index.lock(hash_of(3));
                let place = bucket.find(hash_of(3), |item| item == item_of(3));
                place
                    .map(|place| bucket.replace(place, Entry::new(hash_of(3), 0, item_of(copy))))
                    .is_some()
            };
            let mover = {
                let index = Arc::clone(&index);
                thread::spawn(move || replace(&index, 103))
            };
            let is_written = replace(&index, 203);
            let is_moved = mover.join().unwrap();
            assert!(is_written != is_moved, "both or none replaced the item");
            let now = if is_moved { 103 } else { 203 };
            assert!(
                index
                    .find(hash_of(3), |item| item == item_of(now))
                    .is_some()
            );
        });
    }

    #[test]
    fn a_noted_use_never_brings_a_removed_item_back() {
        explore(|| {
            let (index, supply) = index();
            insert(&index, 3, &*supply);
            let reader = {
                let index = Arc::clone(&index);
                thread::spawn(move || {
                    if let Some(hit) = index.find(hash_of(3), |item| item == item_of(3)) {
                        hit.note_use();
                    }
                })
            };
            assert!(remove(&index, 3));
            reader.join().unwrap();
            assert!(!contains(&index, 3));
        });
    }
}
