//! The life of a segment under loom: sealed, pinned, counted down, swept and held by several threads at once.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::memory::SegmentId;

/// A few segments of 4 KiB, no worker online, so that whatever is retired and not held may be reused at once.
fn new_segments(segment_count: usize) -> Arc<Segments> {
    let arena = Arc::new(Arena::new(segment_count, 12).unwrap());
    let budget = Budget { segments: segment_count, extra_line_segments: 0 };
    Arc::new(Segments::new(arena, 1, budget, 1 << 10, Flushes::new(7, u64::MAX)))
}

/// Opens a segment; returns it and its first address.
fn open_segment(segments: &Segments) -> (SegmentId, Addr) {
    let id = segments.open(0, Queue::Small, Seconds(2)).unwrap();
    (id, segments.arena.segment_start(id))
}

fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

fn spawn_with(
    segments: &Arc<Segments>,
    action: impl Fn(&Segments) + Send + 'static,
) -> thread::JoinHandle<()> {
    let segments = Arc::clone(segments);
    thread::spawn(move || action(&segments))
}

/// The oldest segment that a choice would see.
fn oldest_candidate(segments: &Segments) -> Option<SegmentId> {
    segments.candidates(2, 0).oldest_small.map(|view| view.id)
}

/// The number of segments that are free or wait for readers.
fn reclaimed_count(segments: &Segments) -> usize {
    segments.pools.lock().reusable_count()
}

#[test]
fn the_last_item_removed_while_a_segment_is_sealed_retires_it_once() {
    explore(|| {
        let segments = new_segments(2);
        let (id, addr) = open_segment(&segments);
        segments.count_live(addr, 100);
        segments.count_live(addr, 3_000);
        let remover = spawn_with(&segments, move |segments| segments.count_dead(addr, 3_000));
        segments.count_dead(addr, 100);
        segments.seal(id, 3_100, u32::MAX, None);
        remover.join().unwrap();
        assert_eq!((segments.usage.in_use(), reclaimed_count(&segments)), (0, 1));
        assert_eq!(oldest_candidate(&segments), None);
    });
}

#[test]
fn a_segment_that_is_sealed_while_its_last_pin_ends_becomes_a_candidate() {
    explore(|| {
        let segments = new_segments(2);
        let (id, addr) = open_segment(&segments);
        segments.pin(addr);
        segments.count_live(addr, 3_000);
        let committer = spawn_with(&segments, move |segments| segments.unpin(addr));
        segments.seal(id, 3_000, u32::MAX, None);
        committer.join().unwrap();
        assert_eq!(oldest_candidate(&segments), Some(id));
    });
}

#[test]
fn a_sweep_and_the_removal_of_the_last_item_retire_a_segment_once() {
    explore(|| {
        let segments = new_segments(2);
        let (id, addr) = open_segment(&segments);
        segments.count_live(addr, 3_000);
        segments.seal(id, 3_000, u32::MAX, None);
        let remover = spawn_with(&segments, move |segments| segments.count_dead(addr, 3_000));
        if segments.start_sweep(id) {
            segments.end_sweep(id);
        }
        remover.join().unwrap();
        assert_eq!((segments.usage.in_use(), reclaimed_count(&segments)), (0, 1));
        assert_eq!(oldest_candidate(&segments), None);
    });
}

#[test]
fn a_sweep_that_stops_leaves_the_segment_to_others_unless_it_died_meanwhile() {
    explore(|| {
        let segments = new_segments(2);
        let (id, addr) = open_segment(&segments);
        segments.count_live(addr, 3_000);
        segments.seal(id, 3_000, u32::MAX, None);
        let sweeper = spawn_with(&segments, move |segments| {
            if segments.start_sweep(id) {
                segments.end_sweep(id);
            }
        });
        segments.count_dead(addr, 2_000);
        sweeper.join().unwrap();
        assert_eq!(oldest_candidate(&segments), Some(id));
        assert_eq!(segments.candidates(2, 0).small_bytes, 1_000);
    });
}

#[test]
fn a_held_segment_is_not_reused_before_its_holder_has_read_it() {
    explore(|| {
        let segments = new_segments(1);
        let memory = Arc::new(AtomicU64::new(7));
        let (id, addr) = open_segment(&segments);
        segments.count_live(addr, 3_000);
        assert!(segments.hold(addr));
        segments.seal(id, 3_000, u32::MAX, None);
        segments.count_dead(addr, 3_000);
        let reader = {
            let memory = Arc::clone(&memory);
            spawn_with(&segments, move |segments| {
                assert_eq!(memory.load(Ordering::Relaxed), 7, "read what was reused");
                segments.unhold(addr);
            })
        };
        segments.reclaim_limbo_now();
        if segments.open(0, Queue::Small, Seconds(2)).is_some() {
            memory.store(0, Ordering::Relaxed);
        }
        reader.join().unwrap();
        segments.reclaim_limbo_now();
        assert!(memory.load(Ordering::Relaxed) == 0 || reclaimed_count(&segments) == 1);
    });
}
