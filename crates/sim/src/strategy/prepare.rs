//! What all strategies share, done once: repeats are dropped, requests grouped by process, uses counted.
//!
//! A repeated use of an item within one request is free under every strategy, so only the first use
//! is kept, and each use of what no process may keep, which is fetched each time. Processes share nothing, so they are replayed one after the other, which keeps one local
//! cache in memory (and in the processor's cache) instead of one a process.

use std::time::Duration;

use glasscache_strategy::never_kept::NeverRules;

use super::item_lifetimes::ItemLifetimes;
use super::tree::Tree;
use crate::trace::log::{Items, NONE, RequestLog};

/// A request log made ready for replay.
#[derive(Debug)]
pub struct PreparedLog<'a> {
    /// The items of the log.
    pub items: &'a Items,
    /// The children of each item.
    pub tree: Tree,
    /// Each kept request's index in the log, in file order.
    pub log_indexes: Vec<u32>,
    /// Latency of each kept request with everything local, in nanoseconds.
    pub base_ns: Vec<u64>,
    /// Item uses including repeats: the unit of speed figures.
    pub accesses: u64,
    /// When each kept request arrived, in microseconds.
    pub(super) times_us: Vec<u64>,
    /// How long a process may serve a value that it keeps, in microseconds; `None`: for ever.
    pub(super) near_ttl_us: Option<u64>,
    /// When items with a TTL were on the servers.
    pub(super) lifetimes: ItemLifetimes,
    /// What no process keeps or fetches ahead of need.
    pub never: NeverRules,
    /// Whether each item is of it.
    is_never_kept: Vec<bool>,
    pub(super) pages: Vec<u32>,
    /// How long the values that each kept request read took to decode, in microseconds, [`NONE`] where unknown; empty if
    /// no call of the log is known.
    decode_times_us: Vec<u32>,
    pub(super) requests_by_instance: Vec<Vec<u32>>,
    item_starts: Vec<usize>,
    items_of_requests: Vec<u32>,
    /// Where each call of the kept requests ends in `items_of_requests`, and where the calls of each request begin in that
    /// list; empty if the log has no call of several keys, where each item is a call.
    call_ends: Vec<usize>,
    call_starts: Vec<usize>,
}

impl<'a> PreparedLog<'a> {
    /// Prepares the requests that `is_kept` (which receives an index into the log) accepts; the others are treated as
    /// never recorded. What the application changes in place is not kept.
    pub fn new(log: &'a RequestLog, is_kept: impl Fn(usize) -> bool) -> Self {
        Self::with_never(log, log.items.never_rules(), is_kept)
    }

    /// As [`Self::new`], of a client that has these rules of what is not kept.
    pub fn with_never(
        log: &'a RequestLog,
        never: NeverRules,
        is_kept: impl Fn(usize) -> bool,
    ) -> Self {
        let requests = &log.requests;
        let is_never_kept = |key: &String| !never.may_keep(key.as_bytes(), || false);
        let mut prepared = Self {
            items: &log.items,
            tree: Tree::new(&log.items.parents),
            log_indexes: Vec::new(),
            base_ns: Vec::new(),
            accesses: 0,
            times_us: Vec::new(),
            near_ttl_us: None,
            lifetimes: ItemLifetimes::default(),
            is_never_kept: log.items.keys.iter().map(is_never_kept).collect(),
            never,
            pages: Vec::new(),
            decode_times_us: Vec::new(),
            requests_by_instance: Vec::new(),
            item_starts: vec![0],
            items_of_requests: Vec::new(),
            call_ends: Vec::new(),
            call_starts: Vec::new(),
        };
        let has_calls = requests.calls.are_known();
        prepared.call_starts.extend(has_calls.then_some(0));
        let mut last_request_of_item = vec![NONE; log.items.len()];
        let mut index_by_instance = vec![NONE; usize::from(u16::MAX) + 1];
        for log_index in (0..requests.len()).filter(|&log_index| is_kept(log_index)) {
            let request = prepared.log_indexes.len() as u32;
            let instance_index = &mut index_by_instance[usize::from(requests.instances[log_index])];
            if *instance_index == NONE {
                *instance_index = prepared.requests_by_instance.len() as u32;
                prepared.requests_by_instance.push(Vec::new());
            }
            prepared.requests_by_instance[*instance_index as usize].push(request);
            prepared.log_indexes.push(log_index as u32);
            prepared.base_ns.push(u64::from(requests.base_times_us[log_index]) * 1000);
            prepared.pages.push(requests.pages[log_index]);
            if has_calls {
                let calls = requests.calls.of(log_index);
                prepared.decode_times_us.push(calls.map_or(NONE, |(_, times)| times.decode_us));
            }
            prepared.times_us.push(requests.times_us[log_index]);
            prepared.add_items(request, requests.calls_of(log_index), &mut last_request_of_item);
        }
        let uses_of = |request: usize| {
            let now_us = prepared.times_us[request];
            prepared.items_of(request).iter().map(move |&item| (now_us, item))
        };
        prepared.lifetimes = ItemLifetimes::new(&log.items, (0..prepared.len()).flat_map(uses_of));
        prepared
    }

    fn add_items<'c>(
        &mut self,
        request: u32,
        calls: impl Iterator<Item = &'c [u32]>,
        last_request_of_item: &mut [u32],
    ) {
        for items in calls {
            self.accesses += items.len() as u64;
            let call_start = self.items_of_requests.len();
            for &item in items {
                let is_first_use = last_request_of_item[item as usize] != request;
                let is_fetched_again = || {
                    self.is_never_kept[item as usize]
                        && !self.items_of_requests[call_start..].contains(&item)
                };
                if is_first_use || is_fetched_again() {
                    last_request_of_item[item as usize] = request;
                    self.items_of_requests.push(item);
                }
            }
            let call_end = self.items_of_requests.len();
            if !self.call_starts.is_empty() && call_end > call_start {
                self.call_ends.push(call_end);
            }
        }
        self.item_starts.push(self.items_of_requests.len());
        if !self.call_starts.is_empty() {
            self.call_starts.push(self.call_ends.len());
        }
    }

    /// The items of [`Self::items_of`] that each call of a kept request reads; `None`: each item is a call of its own.
    pub fn calls_of(&self, request: usize) -> Option<impl Iterator<Item = &[u32]>> {
        let range = *self.call_starts.get(request)?..*self.call_starts.get(request + 1)?;
        let mut call_start = self.item_starts[request];
        Some(self.call_ends[range].iter().map(move |&call_end| {
            let items = &self.items_of_requests[call_start..call_end];
            call_start = call_end;
            items
        }))
    }

    /// The same requests, of processes that serve a value of their near cache for this long after they fetched it. The
    /// fixed set is refreshed before that, by calls that are not of requests.
    #[must_use]
    pub fn with_near_ttl(mut self, near_ttl: Option<Duration>) -> Self {
        self.near_ttl_us = near_ttl.map(|near_ttl| near_ttl.as_micros() as u64);
        self
    }

    /// The same requests, of items that stay on the servers as long as they are needed: of a replay, which stores them
    /// without TTLs.
    #[must_use]
    pub fn without_ttls(mut self) -> Self {
        self.lifetimes = ItemLifetimes::default();
        self
    }

    /// How many requests were kept.
    pub fn len(&self) -> usize {
        self.base_ns.len()
    }

    /// Whether no request was kept.
    pub fn is_empty(&self) -> bool {
        self.base_ns.is_empty()
    }

    /// The first request of the second half.
    pub fn second_half_start(&self) -> usize {
        self.len() / 2
    }

    /// How many processes served the requests.
    pub fn instances(&self) -> usize {
        self.requests_by_instance.len()
    }

    /// How long the values that kept requests read took to decode, in nanoseconds, if that is known of each. It is the
    /// same under every strategy: a process keeps bytes, decodes them anew for each read, and does not decode what no
    /// read uses.
    pub fn decode_ns(&self, requests: impl IntoIterator<Item = usize>) -> Option<u64> {
        let decode_ns_of = |request: usize| {
            let decode_us = self.decode_times_us.get(request).filter(|&&us| us != NONE)?;
            Some(u64::from(*decode_us) * 1000)
        };
        requests.into_iter().map(decode_ns_of).sum()
    }

    /// The items of a kept request, each once, in order of first use; what may not be kept for each call that reads it.
    pub fn items_of(&self, request: usize) -> &[u32] {
        &self.items_of_requests[self.item_starts[request]..self.item_starts[request + 1]]
    }

    /// Whether a process may keep an item; of one that the log does not have, it may.
    pub fn may_keep(&self, item: u32) -> bool {
        self.is_never_kept.get(item as usize) != Some(&true)
    }

    /// For each item, how many of the given requests use it.
    pub fn uses(&self, requests: std::ops::Range<usize>) -> Vec<u32> {
        let mut uses_by_item = vec![0; self.items.len()];
        let mut last_request_of_item = vec![usize::MAX; self.items.len()];
        for request in requests {
            for &item in self.items_of(request) {
                let last_request = &mut last_request_of_item[item as usize];
                uses_by_item[item as usize] += u32::from(*last_request != request);
                *last_request = request;
            }
        }
        uses_by_item
    }
}
