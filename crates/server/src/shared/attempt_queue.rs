//! The attempts to log in that wait for the thread that verifies passwords.
//!
//! An attempt is in the queue only as long as its connection waits for it: a peer that submits one and leaves keeps
//! neither memory nor the thread's time. Sources take turns, so that many attempts of one delay its own logins only.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::shared::lock::lock;
use crate::shared::source::Source;

/// A queue of `T`, which threads fill and one thread empties.
#[derive(Debug)]
pub(crate) struct AttemptQueue<T> {
    entries: Mutex<Entries<T>>,
    has_changed: Condvar,
}

#[derive(Debug)]
struct Entries<T> {
    /// The entries of each source, the oldest first.
    by_source: BTreeMap<Source, BTreeMap<u64, Arc<T>>>,
    /// The source whose entry was taken last.
    last_source: Option<Source>,
    last_number: u64,
    has_ended: bool,
}

/// What a wait for the next entry ended with.
#[derive(Debug)]
pub(crate) enum Taken<T> {
    Entry(Arc<T>),
    /// The time was over.
    Nothing,
    /// The queue has ended.
    End,
}

/// An entry as its owner keeps it: when it is dropped the entry leaves the queue.
#[derive(Debug)]
pub(crate) struct Queued<T> {
    entry: Arc<T>,
    position: Option<(Arc<AttemptQueue<T>>, Source, u64)>,
}

impl<T> AttemptQueue<T> {
    pub(crate) fn new() -> Arc<AttemptQueue<T>> {
        Arc::new(AttemptQueue {
            entries: Mutex::new(Entries {
                by_source: BTreeMap::new(),
                last_source: None,
                last_number: 0,
                has_ended: false,
            }),
            has_changed: Condvar::new(),
        })
    }

    /// Queues `entry` behind the others of its source; `None` if the queue has ended.
    pub(crate) fn push(self: &Arc<Self>, source: Source, entry: Arc<T>) -> Option<Queued<T>> {
        let mut entries = lock(&self.entries);
        if entries.has_ended {
            return None;
        }
        entries.last_number += 1;
        let number = entries.last_number;
        entries.by_source.entry(source).or_default().insert(number, Arc::clone(&entry));
        drop(entries);
        self.has_changed.notify_one();
        Some(Queued { entry, position: Some((Arc::clone(self), source, number)) })
    }

    /// Waits until there is an entry, the queue has ended, or `deadline` has come, and takes the oldest entry of the
    /// source whose turn it is.
    pub(crate) fn take(&self, deadline: Option<Instant>) -> Taken<T> {
        let mut entries = lock(&self.entries);
        loop {
            if let Some(entry) = entries.take_next() {
                return Taken::Entry(entry);
            }
            if entries.has_ended {
                return Taken::End;
            }
            let Some(deadline) = deadline else {
                let result = self.has_changed.wait(entries);
                entries = result.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let time_left = deadline.saturating_duration_since(Instant::now());
            if time_left.is_zero() {
                return Taken::Nothing;
            }
            let result = self.has_changed.wait_timeout(entries, time_left);
            (entries, _) = result.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the queue after the entries so far.
    pub(crate) fn end(&self) {
        lock(&self.entries).has_ended = true;
        self.has_changed.notify_one();
    }
}

impl<T> Entries<T> {
    fn take_next(&mut self) -> Option<Arc<T>> {
        let after_last = match self.last_source {
            Some(source) => (Bound::Excluded(source), Bound::Unbounded),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let next_source = self.by_source.range(after_last).next().map(|(source, _)| *source);
        let source = next_source.or_else(|| self.by_source.keys().next().copied())?;
        self.last_source = Some(source);
        let entries_of_source = self.by_source.get_mut(&source)?;
        let (_, entry) = entries_of_source.pop_first()?;
        if entries_of_source.is_empty() {
            self.by_source.remove(&source);
        }
        Some(entry)
    }

    fn remove(&mut self, source: Source, number: u64) {
        if let Some(entries_of_source) = self.by_source.get_mut(&source) {
            entries_of_source.remove(&number);
            if entries_of_source.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }
}

impl<T> Queued<T> {
    /// An entry that never was in a queue.
    pub(crate) fn unqueued(entry: Arc<T>) -> Queued<T> {
        Queued { entry, position: None }
    }
}

impl<T> std::ops::Deref for Queued<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.entry
    }
}

impl<T> Drop for Queued<T> {
    fn drop(&mut self) {
        if let Some((queue, source, number)) = self.position.take() {
            lock(&queue.entries).remove(source, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::shared::connection_info::Peer;

    fn source(number: u8) -> Source {
        Source::of(&Peer::Tcp(([10, 0, 0, number], 1).into()))
    }

    fn push(queue: &Arc<AttemptQueue<u32>>, number: u8, entry: u32) -> Queued<u32> {
        queue.push(source(number), Arc::new(entry)).unwrap()
    }

    fn take(queue: &AttemptQueue<u32>) -> Option<u32> {
        match queue.take(Some(Instant::now())) {
            Taken::Entry(entry) => Some(*entry),
            Taken::Nothing | Taken::End => None,
        }
    }

    #[test]
    fn sources_are_served_in_rotation() {
        let queue = AttemptQueue::new();
        let _queued: Vec<_> = (0..5).map(|entry| push(&queue, 1, entry)).collect();
        let _of_others = [push(&queue, 2, 100), push(&queue, 3, 200), push(&queue, 3, 201)];
        let taken: Vec<_> = std::iter::from_fn(|| take(&queue)).collect();
        assert_eq!(taken, [0, 100, 200, 1, 201, 2, 3, 4]);
    }

    #[test]
    fn after_the_end_the_last_entries_are_taken_and_no_more_are_accepted() {
        let queue = AttemptQueue::new();
        let _queued = push(&queue, 1, 1);
        queue.end();
        assert!(queue.push(source(1), Arc::new(2)).is_none());
        assert!(matches!(queue.take(None), Taken::Entry(_)));
        assert!(matches!(queue.take(None), Taken::End));
    }

    #[test]
    fn a_waiting_thread_is_woken() {
        let queue = AttemptQueue::<u32>::new();
        let pushed_queue = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            std::mem::forget(push(&pushed_queue, 1, 7));
        });
        assert!(matches!(queue.take(None), Taken::Entry(entry) if *entry == 7));
        thread.join().unwrap();
    }

    proptest! {
        /// Whatever is pushed, dropped and taken: only what is still owned is taken, each once.
        #[test]
        fn dropped_entries_are_never_taken(
            steps in proptest::collection::vec((0_u8..3, 0_u8..3), 1..100),
        ) {
            let queue = AttemptQueue::new();
            let mut owned: Vec<Queued<u32>> = Vec::new();
            let mut waiting: Vec<u32> = Vec::new();
            for (entry, (step, number)) in (0..).zip(steps) {
                match step {
                    0 => {
                        owned.push(push(&queue, number, entry));
                        waiting.push(entry);
                    }
                    1 if !owned.is_empty() => {
                        let dropped = owned.remove(usize::from(number) % owned.len());
                        waiting.retain(|waiting_entry| *waiting_entry != *dropped);
                    }
                    _ => {
                        let taken = take(&queue);
                        prop_assert_eq!(taken.is_some(), !waiting.is_empty());
                        if let Some(taken) = taken {
                            prop_assert!(waiting.contains(&taken));
                            waiting.retain(|entry| *entry != taken);
                        }
                    }
                }
            }
            owned.clear();
            prop_assert!(lock(&queue.entries).by_source.is_empty());
        }
    }
}
