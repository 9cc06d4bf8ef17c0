//! What the keys with one prefix do, from one in some of all requests.

use std::collections::HashMap;

use super::report::PrefixUse;
use crate::sampling::{Event, EventKind};

/// Prefixes that are counted at most; then those with fewest requests are forgotten.
const PREFIXES_MAX: usize = 48;

/// Longer prefixes are cut.
const PREFIX_BYTES_MAX: usize = 48;

/// Two counts make the hour: the running one and the last.
const PART_S: u32 = 1800;

/// TTLs are counted by their number of bits.
const TTL_BITS_MAX: usize = 24;

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    requests: u64,
    hits: u64,
    sets: u64,
    bytes: u64,
    set_bytes: u64,
    sets_without_ttl: u64,
    sets_by_ttl_bits: [u32; TTL_BITS_MAX + 1],
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        for (sum, added) in [
            (&mut self.requests, other.requests),
            (&mut self.hits, other.hits),
            (&mut self.sets, other.sets),
            (&mut self.bytes, other.bytes),
            (&mut self.set_bytes, other.set_bytes),
            (&mut self.sets_without_ttl, other.sets_without_ttl),
        ] {
            *sum += added;
        }
        let by_ttl = self.sets_by_ttl_bits.iter_mut().zip(other.sets_by_ttl_bits);
        by_ttl.for_each(|(sum, added)| *sum = sum.saturating_add(added));
    }

    fn count(&mut self, event: &Event<'_>) {
        let weight = u64::from(event.requests);
        match event.kind {
            EventKind::GetHit => {
                self.requests += weight;
                self.hits += weight;
                self.bytes += weight * u64::from(event.value_bytes);
            }
            EventKind::GetMiss => self.requests += weight,
            EventKind::Set => {
                self.sets += weight;
                let item_bytes = event.value_bytes + u32::from(event.key_bytes);
                self.set_bytes += weight * u64::from(item_bytes);
                let ttl_s = event.expires_at.saturating_sub(event.at.0);
                let ttl_bits = ((u32::BITS - ttl_s.leading_zeros()) as usize).min(TTL_BITS_MAX);
                if event.expires_at == 0 {
                    self.sets_without_ttl += weight;
                } else if let Some(sets) = self.sets_by_ttl_bits.get_mut(ttl_bits) {
                    *sets = sets.saturating_add(u32::from(event.requests));
                }
            }
            EventKind::Delete | EventKind::Touch | EventKind::Fill => {}
        }
    }

    fn ttl_s_median(&self) -> u32 {
        let with_ttl: u64 = self.sets_by_ttl_bits.iter().map(|sets| u64::from(*sets)).sum();
        let mut sets_below = 0;
        let median = self.sets_by_ttl_bits.iter().position(|sets| {
            sets_below += u64::from(*sets);
            sets_below * 2 >= with_ttl.max(1)
        });
        // The middle of the powers of two between which it is.
        median.map_or(0, |bits| (3_u64 << bits.max(1) >> 2) as u32)
    }

    fn report(&self, prefix: &[u8]) -> PrefixUse {
        let part = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        PrefixUse {
            prefix: prefix.to_vec(),
            requests: self.requests,
            hits: self.hits,
            sets: self.sets,
            bytes: self.bytes,
            hit_ratio: part(self.hits, self.requests),
            item_bytes_mean: self.set_bytes / self.sets.max(1),
            no_ttl_share: part(self.sets_without_ttl, self.sets),
            ttl_s_median: self.ttl_s_median(),
        }
    }
}

/// The prefixes.
#[derive(Debug, Clone, Default)]
pub(super) struct Prefixes {
    delimiter: u8,
    running: HashMap<Box<[u8]>, Counts>,
    last: HashMap<Box<[u8]>, Counts>,
    running_since: u32,
}

impl Prefixes {
    pub(super) fn new(delimiter: u8) -> Self {
        Prefixes { delimiter, ..Prefixes::default() }
    }

    /// Bytes of memory, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let entry_bytes = size_of::<(Box<[u8]>, Counts)>() + PREFIX_BYTES_MAX;
        (self.running.capacity() + self.last.capacity()) * entry_bytes
    }

    /// Counts one of all requests.
    pub(super) fn add_request(&mut self, event: &Event<'_>) {
        if event.at.0.saturating_sub(self.running_since) >= PART_S {
            self.last = std::mem::take(&mut self.running);
            self.running_since = event.at.0;
        }
        let end = event.key.iter().position(|byte| *byte == self.delimiter);
        let prefix_bytes = end.map_or(0, |end| end + 1).min(PREFIX_BYTES_MAX);
        let prefix = event.key.get(..prefix_bytes).unwrap_or_default();
        if let Some(counts) = self.running.get_mut(prefix) {
            return counts.count(event);
        }
        if self.running.len() >= PREFIXES_MAX {
            self.forget_rare();
        }
        self.running.entry(prefix.into()).or_default().count(event);
    }

    /// Forgets the half with fewest requests.
    fn forget_rare(&mut self) {
        let mut requests: Vec<u64> =
            self.running.values().map(|counts| counts.requests + counts.sets).collect();
        requests.sort_unstable();
        let median = requests.get(requests.len() / 2).copied().unwrap_or(0);
        self.running.retain(|_, counts| counts.requests + counts.sets > median);
    }

    /// The prefixes, those with most requests first.
    pub(super) fn report(&self) -> Vec<PrefixUse> {
        let mut sums = self.running.clone();
        for (prefix, counts) in &self.last {
            sums.entry(prefix.clone()).or_default().add(counts);
        }
        let mut uses: Vec<PrefixUse> =
            sums.iter().map(|(prefix, counts)| counts.report(prefix)).collect();
        uses.sort_by(|a, b| (b.requests, &a.prefix).cmp(&(a.requests, &b.prefix)));
        uses.truncate(PREFIXES_MAX);
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{KeyHash, Seconds};

    fn event(kind: EventKind, key: &[u8], ttl_s: u32) -> Event<'_> {
        Event {
            hash: KeyHash(1),
            kind,
            requests: 10,
            key_bytes: key.len() as u8,
            value_bytes: 100,
            expires_at: if ttl_s == 0 { 0 } else { 50 + ttl_s },
            at: Seconds(50),
            key,
        }
    }

    #[test]
    fn requests_and_ttls_are_scaled_up_by_prefix() {
        let mut prefixes = Prefixes::new(b':');
        for _ in 0..3 {
            prefixes.add_request(&event(EventKind::GetHit, b"user:1", 0));
        }
        prefixes.add_request(&event(EventKind::GetMiss, b"user:2", 0));
        prefixes.add_request(&event(EventKind::Set, b"user:2", 600));
        prefixes.add_request(&event(EventKind::Set, b"plain", 0));
        let [user, plain] = prefixes.report().try_into().unwrap();
        assert_eq!(
            (&*user.prefix, user.requests, user.hits, user.sets),
            (&b"user:"[..], 40, 30, 10)
        );
        assert_eq!((user.hit_ratio, user.item_bytes_mean, user.ttl_s_median), (0.75, 106, 768));
        assert_eq!((&*plain.prefix, plain.sets, plain.no_ttl_share), (&b""[..], 10, 1.0));
    }

    #[test]
    fn invented_prefixes_do_not_displace_a_busy_one() {
        let mut prefixes = Prefixes::new(b':');
        for number in 0..10_000 {
            prefixes.add_request(&event(EventKind::GetHit, format!("{number}:1").as_bytes(), 0));
            prefixes.add_request(&event(EventKind::GetHit, b"busy:1", 0));
        }
        assert!(prefixes.running.len() <= PREFIXES_MAX);
        assert_eq!(&*prefixes.report()[0].prefix, b"busy:");
    }
}
