//! A ring of events from one worker to one reader. Neither waits: an event that does not fit is dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};

use super::event::{Event, HEAD_WORDS, key_words};
use crate::request::KEY_BYTES_MAX;

/// The ring.
pub(super) struct EventRing {
    /// A power of two of words.
    words: Box<[AtomicU64]>,
    /// Words ever written; only the worker writes it.
    written: AtomicU64,
    /// Words ever read; only the reader writes it.
    read: AtomicU64,
    dropped_events: AtomicU64,
}

impl EventRing {
    pub(super) fn new(word_count: usize) -> Self {
        EventRing {
            words: (0..word_count.next_power_of_two()).map(|_| AtomicU64::new(0)).collect(),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            dropped_events: AtomicU64::new(0),
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    fn word(&self, position: u64) -> Option<&AtomicU64> {
        self.words.get(position as usize & (self.words.len() - 1))
    }

    /// Appends an event; only the worker calls this.
    pub(super) fn push(&self, event: &Event<'_>) {
        let word_count = (HEAD_WORDS + key_words(event.key.len())) as u64;
        let written = self.written.load(Ordering::Relaxed);
        // Acquire: the reader has read what is overwritten now.
        let used = written - self.read.load(Ordering::Acquire);
        if used + word_count > self.words.len() as u64 {
            // Only the worker changes it: no locked instruction.
            let dropped = self.dropped_events.load(Ordering::Relaxed);
            return self.dropped_events.store(dropped + 1, Ordering::Relaxed);
        }
        let write_word = |position, value| {
            if let Some(word) = self.word(position) {
                word.store(value, Ordering::Relaxed);
            }
        };
        // Two loops: one over a chain of both iterators takes ten times as many instructions.
        for (position, value) in (written..).zip(event.to_head()) {
            write_word(position, value);
        }
        let (whole_words, rest) = event.key.as_chunks::<{ size_of::<u64>() }>();
        let mut position = written + HEAD_WORDS as u64;
        for bytes in whole_words {
            write_word(position, u64::from_le_bytes(*bytes));
            position += 1;
        }
        if !rest.is_empty() {
            let last_word = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            write_word(position, last_word);
        }
        // Release: whoever sees the count sees the words.
        self.written.store(written + word_count, Ordering::Release);
    }

    /// Takes all events, and returns how many were dropped since the last call; one thread at a time calls this.
    pub(super) fn take(&self, visit: &mut impl FnMut(&Event<'_>)) -> u64 {
        let written = self.written.load(Ordering::Acquire);
        let mut position = self.read.load(Ordering::Relaxed);
        let read_word =
            |position| self.word(position).map_or(0, |word| word.load(Ordering::Relaxed));
        let mut key = [0; KEY_BYTES_MAX.next_multiple_of(size_of::<u64>())];
        while position < written {
            let head = std::array::from_fn(|index| read_word(position + index as u64));
            let key_bytes = Event::following_key_bytes(head).min(KEY_BYTES_MAX);
            let first_key_word = position + HEAD_WORDS as u64;
            let (words, _) = key.as_chunks_mut();
            for (word, key_position) in
                words.iter_mut().zip(first_key_word..).take(key_words(key_bytes))
            {
                *word = read_word(key_position).to_le_bytes();
            }
            visit(&Event::from_head(head, key.get(..key_bytes).unwrap_or_default()));
            position = first_key_word + key_words(key_bytes) as u64;
        }
        // Release: the words are read, and may be overwritten.
        self.read.store(position, Ordering::Release);
        self.dropped_events.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{KeyHash, Seconds};
    use crate::sampling::EventKind;

    fn event(number: u64, key: &[u8]) -> Event<'_> {
        Event {
            hash: KeyHash(number),
            kind: EventKind::Set,
            requests: u16::from(!key.is_empty()),
            key_bytes: key.len() as u8,
            value_bytes: number as u32,
            expires_at: 9,
            at: Seconds(7),
            key,
        }
    }

    #[test]
    fn events_come_out_as_they_went_in_and_what_does_not_fit_is_counted() {
        let ring = EventRing::new(64);
        for round in 0..100_u64 {
            let keys = [&b""[..], b"a", b"12345678", &[b'k'; 250]];
            let pushed: Vec<_> = keys.iter().take(3).map(|key| event(round, key)).collect();
            for event in &pushed {
                ring.push(event);
            }
            let mut count = 0;
            let dropped = ring.take(&mut |event| {
                assert_eq!(*event, pushed[count]);
                count += 1;
            });
            assert_eq!((count, dropped), (3, 0));
            ring.push(&event(1, keys[3]));
            ring.push(&event(2, keys[3]));
            let mut taken = 0;
            assert_eq!(ring.take(&mut |event| taken += event.key.len()), 1);
            assert_eq!(taken, 250);
        }
    }
}
