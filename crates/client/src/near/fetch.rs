//! A call that a read makes, and what it brings.

use std::time::Instant;

use glasscache_protocol::meta::request::WireKey;

use super::entry::{NearKey, NearValue, wire_key};

/// Why keys are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchReason {
    /// The fixed set is loaded or refreshed.
    Load,
    /// A request about a page begins.
    Page,
    /// Items are read.
    Items,
}

/// One call to be made: these keys, each with its remaining TTL.
#[derive(Debug)]
pub struct Fetch {
    pub(super) keys: Vec<NearKey>,
    pub(super) generations: Vec<Option<u64>>,
    pub(super) started_at: Instant,
    pub(super) reason: FetchReason,
    /// What the process kept of some of the keys when the call began, by their index, to be compared with what it brings.
    pub(super) comparisons: Vec<(usize, NearValue)>,
    /// How many of the keys are fetched for their own sake: those behind them only for the comparison.
    pub(super) needed_keys: usize,
}

/// What a fetch brought so far, by the index of the key.
#[derive(Debug, Default)]
pub struct FetchedItems {
    pub(super) items: Vec<Option<FetchedItem>>,
    pub(super) lacks_ttls: bool,
}

#[derive(Debug)]
pub(super) struct FetchedItem {
    pub(super) value: Option<NearValue>,
    pub(super) ttl_s: Option<i64>,
}

impl Fetch {
    /// The keys as they go on the wire.
    pub fn keys(&self) -> Vec<WireKey<'_>> {
        self.keys.iter().map(wire_key).collect()
    }

    /// When the call begins.
    pub fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Why they are fetched.
    pub fn reason(&self) -> FetchReason {
        self.reason
    }

    /// The call without the keys that it has only for a comparison.
    pub(super) fn without_comparisons(&self) -> Self {
        let needed = |generations: &[Option<u64>]| {
            generations.iter().take(self.needed_keys).copied().collect()
        };
        Self {
            keys: self.keys.iter().take(self.needed_keys).cloned().collect(),
            generations: needed(&self.generations),
            started_at: self.started_at,
            reason: self.reason,
            comparisons: Vec::new(),
            needed_keys: self.needed_keys,
        }
    }

    /// When the call must end if its read must end at `read_deadline`: a call for more than the read keys gets half of the
    /// time.
    pub fn deadline(&self, read_deadline: Instant) -> Instant {
        match self.reason {
            FetchReason::Items => read_deadline,
            FetchReason::Load | FetchReason::Page => {
                self.started_at + read_deadline.saturating_duration_since(self.started_at) / 2
            }
        }
    }
}

impl FetchedItems {
    /// What a call for this many keys brought before its first reply.
    pub fn with_capacity(key_count: usize) -> Self {
        Self { items: Vec::with_capacity(key_count), lacks_ttls: false }
    }

    /// Notes what came for the key at `index`; `ttl_s` as of [`MetaReply`](crate::pipeline::MetaReply), `None` if the
    /// value must not be kept.
    pub fn record_item(&mut self, index: usize, value: Option<NearValue>, ttl_s: Option<i64>) {
        if self.items.len() <= index {
            self.items.resize_with(index + 1, || None);
        }
        if let Some(item) = self.items.get_mut(index) {
            *item = Some(FetchedItem { value, ttl_s });
        }
    }

    /// Notes that a server cannot send the TTLs of its values.
    pub fn mark_lacking_ttls(&mut self) {
        self.lacks_ttls = true;
    }

    /// Bytes of the values.
    pub fn value_bytes(&self) -> usize {
        self.values().map(|value| value.bytes.len()).sum()
    }

    /// Whether there is any value.
    pub fn has_value(&self) -> bool {
        self.values().next().is_some()
    }

    fn values(&self) -> impl Iterator<Item = &NearValue> {
        let items = self.items.iter().flatten();
        items.filter_map(|item| item.value.as_ref())
    }
}

/// Bytes of the values that a call brought.
pub(super) fn value_bytes(items: &[Option<FetchedItem>]) -> usize {
    let values = items.iter().flatten().filter_map(|item| item.value.as_ref());
    values.map(|value| value.bytes.len()).sum()
}
