//! Epochs: how a worker that reuses a segment knows that no other worker still reads it.
//!
//! Quiescent-state reclamation (Hart, `McKenney` and Brown, IPDPS 2006). The clock ticks whenever something is
//! retired; each worker records the tick it saw when it last held nothing. Memory retired at tick t may be reused
//! once every online worker has recorded t or later. A worker that sleeps is offline and delays none.

use crate::sync::{AtomicU64, Ordering, fence};

/// The record of an offline worker.
const OFFLINE: u64 = 0;
/// Marks a record that no worker has taken.
const UNREGISTERED: u64 = u64::MAX;

/// The record of one worker, on a line of its own: it is written once per iteration of the event loop.
#[repr(align(64))]
struct WorkerRecord(AtomicU64);

/// The clock and the records.
pub(crate) struct Epochs {
    clock: AtomicU64,
    records: Box<[WorkerRecord]>,
}

impl Epochs {
    /// Records for `worker_count` workers.
    pub(crate) fn new(worker_count: usize) -> Self {
        let unregistered_record = || WorkerRecord(AtomicU64::new(UNREGISTERED));
        Epochs {
            clock: AtomicU64::new(1),
            records: (0..worker_count).map(|_| unregistered_record()).collect(),
        }
    }

    /// Takes a record for a worker, offline at first; `None` if all are taken.
    pub(crate) fn register(&self) -> Option<usize> {
        self.records.iter().position(|record| {
            // AcqRel: the next owner of a record starts after its last owner ended.
            record
                .0
                .compare_exchange(UNREGISTERED, OFFLINE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// Releases a record.
    pub(crate) fn unregister(&self, worker_index: usize) {
        self.record_tick(worker_index, UNREGISTERED);
    }

    /// Records that the worker may read from here on.
    pub(crate) fn set_online(&self, worker_index: usize) {
        self.record_tick(worker_index, self.clock.load(Ordering::Acquire));
        // Pairs with the fence in `safe_tick`: either the reclaimer sees this worker online, or this worker's
        // next loads see everything that was unlinked before.
        fence(Ordering::SeqCst);
    }

    /// Records that the worker holds nothing at this moment and continues to read. Acquire pairs with `retire`: a
    /// worker that records tick t sees everything unlinked before t.
    pub(crate) fn pass(&self, worker_index: usize) {
        self.record_tick(worker_index, self.clock.load(Ordering::Acquire));
    }

    /// Records that the worker holds nothing and sleeps.
    pub(crate) fn set_offline(&self, worker_index: usize) {
        self.record_tick(worker_index, OFFLINE);
    }

    /// Begins a new tick for something that was just unlinked, and returns it.
    pub(crate) fn retire(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last tick at which retired memory may be reused now.
    pub(crate) fn safe_tick(&self) -> u64 {
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release in `record_tick`: the reads of the worker before it passed are complete.
        let ticks = self.records.iter().map(|record| record.0.load(Ordering::Acquire));
        ticks.filter(|&tick| tick != OFFLINE).min().unwrap_or(UNREGISTERED)
    }

    fn record_tick(&self, worker_index: usize, tick: u64) {
        if let Some(record) = self.records.get(worker_index) {
            record.0.store(tick, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_holds_back_what_was_retired_after_it_began() {
        let epochs = Epochs::new(2);
        let (first, second) = (epochs.register().unwrap(), epochs.register().unwrap());
        assert!(epochs.register().is_none());
        epochs.set_online(first);
        epochs.set_online(second);
        let tick = epochs.retire();
        assert!(epochs.safe_tick() < tick);
        epochs.pass(first);
        assert!(epochs.safe_tick() < tick);
        epochs.set_offline(second);
        assert!(epochs.safe_tick() >= tick);
    }
}

#[cfg(all(test, loom))]
mod interleaved {
    use std::sync::Arc;

    use super::*;

    /// A reader that found an item before it was unlinked is waited for; one that came after does not find it.
    #[test]
    fn nothing_is_reused_under_a_reader() {
        loom::model(|| {
            let epochs = Arc::new(Epochs::new(1));
            // The slot names memory that is "freed" by writing 0 to it.
            let slot = Arc::new(AtomicU64::new(1));
            let memory = Arc::new(AtomicU64::new(7));
            let worker = epochs.register().unwrap();
            let reader = {
                let (epochs, slot, memory) =
                    (Arc::clone(&epochs), Arc::clone(&slot), Arc::clone(&memory));
                loom::thread::spawn(move || {
                    epochs.set_online(worker);
                    if slot.load(Ordering::Acquire) == 1 {
                        assert_eq!(memory.load(Ordering::Relaxed), 7, "read what was reused");
                    }
                    epochs.set_offline(worker);
                })
            };
            slot.store(0, Ordering::Release);
            let tick = epochs.retire();
            if epochs.safe_tick() >= tick {
                memory.store(0, Ordering::Relaxed);
            }
            reader.join().unwrap();
        });
    }

    /// The same for a reader that passes instead of sleeping.
    #[test]
    fn memory_is_safe_after_a_pass_and_not_before() {
        loom::model(|| {
            let epochs = Arc::new(Epochs::new(1));
            let slot = Arc::new(AtomicU64::new(1));
            let memory = Arc::new(AtomicU64::new(7));
            let worker = epochs.register().unwrap();
            epochs.set_online(worker);
            let reader = {
                let (epochs, slot, memory) =
                    (Arc::clone(&epochs), Arc::clone(&slot), Arc::clone(&memory));
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        if slot.load(Ordering::Acquire) == 1 {
                            assert_eq!(memory.load(Ordering::Relaxed), 7, "read what was reused");
                        }
                        epochs.pass(worker);
                    }
                })
            };
            slot.store(0, Ordering::Release);
            let tick = epochs.retire();
            if epochs.safe_tick() >= tick {
                memory.store(0, Ordering::Relaxed);
            }
            reader.join().unwrap();
        });
    }
}
