//! When the items of a log were on the servers: a value that a process keeps ends with its item.
//!
//! The log has the TTL with which an item was stored last, and not when. An application that stores what it missed stores
//! it at the first use after it has expired, under every strategy: no process serves an item that has expired.

use std::collections::HashMap;
use std::time::Duration;

use glasscache_strategy::fixed_set::{
    REFRESH_AHEAD_DIVISOR, refresh_interval, shortest_refresh_interval,
};

use crate::trace::log::Items;

/// A second. Servers count whole ones, so an item lives up to one less than its TTL, and a client that reads how
/// many are left takes one off (`compute_expiry` of the client's near cache).
const SECOND_US: u64 = 1_000_000;

/// The stores of the items that have a TTL.
#[derive(Debug, Default)]
pub(super) struct ItemLifetimes {
    ttls_us: Vec<u64>,
    /// The times at which each item was stored; empty if no item has a TTL.
    stored_at_us: Vec<Vec<u64>>,
}

/// What a process may do with an item that it has just fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    /// It keeps it as long as it wants.
    Unbounded,
    /// It keeps it before this time.
    Before(u64),
    /// The servers did not have it, or it ends in a moment.
    Not,
}

impl ItemLifetimes {
    /// The lifetimes of items that are used in this order, each at a time in microseconds.
    pub(super) fn new(items: &Items, uses: impl Iterator<Item = (u64, u32)>) -> Self {
        if items.ttls_s.iter().all(|&ttl_s| ttl_s == 0) {
            return Self::default();
        }
        let ttls_us = (0..items.len() as u32).map(|item| u64::from(items.ttl_s(item)) * 1_000_000);
        let mut lifetimes =
            Self { ttls_us: ttls_us.collect(), stored_at_us: vec![Vec::new(); items.len()] };
        for (now_us, item) in uses {
            let last_stored_us = lifetimes.stored_at_us[item as usize].last();
            let is_stored = last_stored_us
                .is_some_and(|&stored_at_us| now_us < lifetimes.end_us(item, stored_at_us));
            if lifetimes.is_bounded(item) && !is_stored {
                lifetimes.stored_at_us[item as usize].push(now_us);
            }
        }
        lifetimes
    }

    /// Whether no item has a TTL.
    pub(super) fn are_unbounded(&self) -> bool {
        self.stored_at_us.is_empty()
    }

    /// Whether an item has a TTL.
    fn is_bounded(&self, item: u32) -> bool {
        self.ttls_us.get(item as usize).is_some_and(|&ttl_us| ttl_us > 0)
    }

    /// When an item ends that was stored at this time.
    fn end_us(&self, item: u32, stored_at_us: u64) -> u64 {
        (stored_at_us - stored_at_us % SECOND_US).saturating_add(self.ttls_us[item as usize])
    }

    /// When an item was stored last.
    fn last_stored_us(&self, item: u32, now_us: u64) -> Option<u64> {
        let stores = self.stored_at_us.get(item as usize)?;
        let count = stores.partition_point(|&stored_at_us| stored_at_us <= now_us);
        stores.get(count.checked_sub(1)?).copied()
    }

    /// Until when a process serves what it fetches at a time, of an item that was stored before.
    fn kept_until_us(&self, item: u32, stored_at_us: u64, fetched_at_us: u64) -> u64 {
        let left_us = self
            .end_us(item, stored_at_us)
            .saturating_sub(fetched_at_us - fetched_at_us % SECOND_US);
        fetched_at_us.saturating_add(left_us.saturating_sub(SECOND_US))
    }

    /// What a process may do with an item that it fetches now. The read after which an item is stored found none, and what a
    /// process stores it does not keep.
    pub(super) fn keeping(&self, item: u32, now_us: u64) -> Keeping {
        if !self.is_bounded(item) {
            return Keeping::Unbounded;
        }
        let kept_until_us = self
            .last_stored_us(item, now_us)
            .filter(|&stored_at_us| stored_at_us < now_us)
            .map(|stored_at_us| self.kept_until_us(item, stored_at_us, now_us));
        match kept_until_us {
            Some(kept_until_us) if now_us < kept_until_us => Keeping::Before(kept_until_us),
            _ => Keeping::Not,
        }
    }

    /// Whether the last refresh of a fixed set brought the value of an item that is still there; until then it is read like
    /// any other key.
    pub(super) fn was_refreshed(&self, item: u32, now_us: u64, near_ttl_us: Option<u64>) -> bool {
        if !self.is_bounded(item) {
            return true;
        }
        let refreshed_at_us = now_us - now_us % refresh_interval_us(near_ttl_us);
        self.last_stored_us(item, now_us).is_some_and(|stored_at_us| {
            stored_at_us <= refreshed_at_us
                && now_us < self.kept_until_us(item, stored_at_us, refreshed_at_us)
        })
    }

    /// How many keys with a TTL the refreshes of a fixed set fetch, from the first to the last of the uses of a process, each
    /// a time in microseconds and the items: what was stored anew and not read since, what the process has kept for
    /// `near_ttl`, and what is about to expire.
    pub(super) fn count_refreshed_keys<'u>(
        &self,
        fixed_items: &[u32],
        uses: impl Iterator<Item = (u64, &'u [u32])>,
        near_ttl_us: Option<u64>,
    ) -> u64 {
        let mut uses_of_item: HashMap<u32, Vec<u64>> = fixed_items
            .iter()
            .filter(|&&item| self.is_bounded(item))
            .map(|&item| (item, Vec::new()))
            .collect();
        if uses_of_item.is_empty() {
            return 0;
        }
        let renewal_us = near_ttl_us.map(|near_ttl_us| {
            refresh_interval(Duration::from_micros(near_ttl_us)).as_micros() as u64
        });
        // The first is a load.
        let mut renewed_at_us: Vec<u64> = Vec::new();
        let (mut first_us, mut last_us) = (None, 0);
        for (now_us, items) in uses {
            first_us.get_or_insert(now_us);
            last_us = now_us;
            if let Some(renewal_us) = renewal_us
                && renewed_at_us.last().is_none_or(|&at_us| now_us >= at_us + renewal_us)
            {
                renewed_at_us.push(now_us);
            }
            for item in items {
                if let Some(times_us) = uses_of_item.get_mut(item) {
                    times_us.push(now_us);
                }
            }
        }
        if !renewed_at_us.is_empty() {
            renewed_at_us.remove(0);
        }
        let measured_us = first_us.unwrap_or(0)..=last_us;
        let interval_us = refresh_interval_us(near_ttl_us);
        let ahead_us = near_ttl_us.unwrap_or(0) / u64::from(REFRESH_AHEAD_DIVISOR);
        let refreshes_of = |(item, times_us): (&u32, &Vec<u64>)| {
            let refreshes_of_store = |&stored_at_us: &u64| {
                let refresh_us = stored_at_us.next_multiple_of(interval_us);
                let ends_at_us = self.end_us(*item, stored_at_us);
                let read_since_us = times_us
                    .get(times_us.partition_point(|&time_us| time_us <= stored_at_us))
                    .filter(|&&time_us| time_us <= refresh_us);
                let is_new = read_since_us.is_none() && refresh_us + SECOND_US < ends_at_us;
                let fetched_at_us = *read_since_us.unwrap_or(&refresh_us);
                let last_refresh_us = ends_at_us - ends_at_us % interval_us;
                let is_ahead = last_refresh_us > refresh_us
                    && (1..ahead_us).contains(&(ends_at_us - last_refresh_us));
                // Each key is due by itself, on average half an interval after one of these times.
                let before = |end_us: u64| renewed_at_us.partition_point(|&at_us| at_us < end_us);
                let due_us = fetched_at_us + renewal_us.unwrap_or(0) / 2;
                let renewals =
                    before(ends_at_us.saturating_sub(SECOND_US)).saturating_sub(before(due_us));
                renewals as u64
                    + u64::from(is_new && measured_us.contains(&refresh_us))
                    + u64::from(is_ahead && measured_us.contains(&last_refresh_us))
            };
            self.stored_at_us[*item as usize].iter().map(refreshes_of_store).sum::<u64>()
        };
        uses_of_item.iter().map(refreshes_of).sum()
    }

    /// How many of these items have no TTL.
    pub(super) fn count_unbounded(&self, items: &[u32]) -> usize {
        items.iter().filter(|&&item| !self.is_bounded(item)).count()
    }
}

fn refresh_interval_us(near_ttl_us: Option<u64>) -> u64 {
    let interval = shortest_refresh_interval(near_ttl_us.map(Duration::from_micros));
    (interval.as_micros() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 0 has a TTL of 10 s and is used each second from the first to the 25th; item 1 has none.
    fn lifetimes() -> ItemLifetimes {
        let items = Items { sizes: vec![1, 1], ttls_s: vec![10], ..Items::default() };
        let uses = (1..=25).flat_map(|second| [(second * SECOND_US, 0), (second * SECOND_US, 1)]);
        ItemLifetimes::new(&items, uses)
    }

    #[test]
    fn an_item_is_stored_at_its_first_use_after_it_expired_and_kept_from_the_next_read_on() {
        let lifetimes = lifetimes();
        assert_eq!(
            lifetimes.stored_at_us,
            [vec![SECOND_US, 11 * SECOND_US, 21 * SECOND_US], vec![]]
        );
        let keeping = |second| lifetimes.keeping(0, second * SECOND_US);
        assert_eq!([keeping(0), keeping(1), keeping(11)], [Keeping::Not; 3]);
        assert_eq!([keeping(2), keeping(9)], [Keeping::Before(10 * SECOND_US); 2]);
        assert_eq!(keeping(12), Keeping::Before(20 * SECOND_US));
        assert_eq!(lifetimes.keeping(0, 10 * SECOND_US), Keeping::Not);
        assert_eq!(lifetimes.keeping(1, SECOND_US), Keeping::Unbounded);
        assert!(!lifetimes.are_unbounded());
        assert!(ItemLifetimes::new(&Items::default(), std::iter::empty()).are_unbounded());
    }

    #[test]
    fn a_refresh_brings_an_item_after_its_store() {
        let lifetimes = lifetimes();
        // Refreshes every 3 s: the items stored after 1, 11 and 21 s are fetched after 3, 12 and 21 s, and served until a
        // second before they end.
        let has = |second| lifetimes.was_refreshed(0, second * SECOND_US, Some(6 * SECOND_US));
        let seconds_without: Vec<u64> = (0..=25).filter(|&second| !has(second)).collect();
        assert_eq!(seconds_without, [0, 1, 2, 10, 11, 20]);
        assert!(lifetimes.was_refreshed(1, 0, None));
        assert_eq!(lifetimes.count_unbounded(&[0, 1]), 1);
    }

    #[test]
    fn a_refresh_fetches_what_was_stored_and_not_read_since_and_what_is_about_to_expire() {
        let lifetimes = lifetimes();
        let refreshed_keys = |used_items: &[u32], seconds: &[u64], near_ttl_s: u64| {
            let uses = seconds.iter().map(|second| (second * SECOND_US, used_items));
            lifetimes.count_refreshed_keys(&[0, 1], uses, Some(near_ttl_s * SECOND_US))
        };
        // After 3, 12 and 21 s; that value has been kept for 4 s when the last request comes, before its `near_ttl` is over.
        assert_eq!(refreshed_keys(&[1], &[0, 20, 25], 6), 3);
        assert_eq!(refreshed_keys(&[1], &[4, 20], 6), 1);
        // The process read the first item itself after 2 s.
        assert_eq!(refreshed_keys(&[0], &[1, 2, 20, 25], 6), 2);
        // After 3.5, 14 and 21 s, and after 10.5 s the first item, which ends half a second later.
        assert_eq!(refreshed_keys(&[1], &[0, 20, 25], 7), 4);
    }

    #[test]
    fn what_lives_longer_than_near_ttl_is_refreshed_each_time_that_is_over() {
        let items = Items { sizes: vec![1], ttls_s: vec![1000], ..Items::default() };
        let lifetimes = ItemLifetimes::new(&items, std::iter::once((SECOND_US, 0)));
        let keys_in = |seconds: std::ops::Range<u64>, step| {
            let uses = seconds.step_by(step).map(|second| (second * SECOND_US, &[0_u32][..]));
            lifetimes.count_refreshed_keys(&[0], uses, Some(10 * SECOND_US))
        };
        // Every 9 s until the item ends, or with each request if these are less frequent.
        assert_eq!((keys_in(1..10, 1), keys_in(1..902, 1), keys_in(1..2000, 1)), (0, 100, 110));
        assert!((15..=16).contains(&keys_in(1..902, 60)));
    }
}
