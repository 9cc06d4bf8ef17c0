//! An event, and its form in a ring: three words, and those of the key where it is reported.

use crate::request::{KeyHash, Seconds};

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A read found an item.
    GetHit,
    /// A read found none.
    GetMiss,
    /// An item was stored.
    Set,
    /// An item was removed by a client.
    Delete,
    /// An item has another expiry.
    Touch,
    /// A client has filled a miss, in a time that was measured.
    Fill,
}

impl EventKind {
    const ALL: [EventKind; 6] = [
        EventKind::GetHit,
        EventKind::GetMiss,
        EventKind::Set,
        EventKind::Delete,
        EventKind::Touch,
        EventKind::Fill,
    ];

    /// Whether it is a read.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, EventKind::GetHit | EventKind::GetMiss)
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event<'k> {
    pub(crate) hash: KeyHash,
    pub(crate) kind: EventKind,
    /// How many requests it stands for, if it is one of all requests; 0 if its key is sampled.
    pub(crate) requests: u16,
    pub(crate) key_bytes: u8,
    /// Bytes of the value that was found or stored; of a fill, its microseconds.
    pub(crate) value_bytes: u32,
    /// The second at which the item expires; 0 never.
    pub(crate) expires_at: u32,
    pub(crate) at: Seconds,
    /// The key, if the event is one of all requests.
    pub(crate) key: &'k [u8],
}

/// Words before the key.
pub(super) const HEAD_WORDS: usize = 3;

/// Words of a key of this many bytes.
pub(super) fn key_words(key_bytes: usize) -> usize {
    key_bytes.div_ceil(size_of::<u64>())
}

impl<'k> Event<'k> {
    /// The words before the key.
    pub(super) fn to_head(self) -> [u64; HEAD_WORDS] {
        let second = u64::from(self.kind as u8)
            | u64::from(self.key_bytes) << 8
            | u64::from(self.requests) << 16
            | u64::from(self.value_bytes) << 32;
        [self.hash.0, second, u64::from(self.expires_at) << 32 | u64::from(self.at.0)]
    }

    /// The event with these words before its key.
    pub(super) fn from_head([hash, second, third]: [u64; HEAD_WORDS], key: &'k [u8]) -> Self {
        let kind = EventKind::ALL.get(second as usize & 0xff).copied();
        Event {
            hash: KeyHash(hash),
            kind: kind.unwrap_or(EventKind::Touch),
            requests: (second >> 16) as u16,
            key_bytes: (second >> 8) as u8,
            value_bytes: (second >> 32) as u32,
            expires_at: (third >> 32) as u32,
            at: Seconds(third as u32),
            key,
        }
    }

    /// Bytes of the key that follow the words.
    pub(super) fn following_key_bytes([_, second, _]: [u64; HEAD_WORDS]) -> usize {
        if (second >> 16) as u16 == 0 { 0 } else { usize::from((second >> 8) as u8) }
    }
}
