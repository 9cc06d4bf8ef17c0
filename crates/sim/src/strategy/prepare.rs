//! What all strategies share, done once: repeats are dropped, requests grouped by process, uses counted.
//!
//! A repeated use of an item within one request is free under every strategy, so only the first use
//! is kept. Processes share nothing, so they are replayed one after the other, which keeps one local
//! cache in memory (and in the processor's cache) instead of one a process.

use glasscache_strategy::session_keys::is_session_key;

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
    /// Whether each item is a session, which no process keeps or fetches ahead of need.
    pub(super) is_session: Vec<bool>,
    pub(super) pages: Vec<u32>,
    pub(super) requests_by_instance: Vec<Vec<u32>>,
    item_starts: Vec<usize>,
    items_of_requests: Vec<u32>,
}

impl<'a> PreparedLog<'a> {
    /// Prepares the requests that `is_kept` (which receives an index into the log) accepts; the others are treated as
    /// never recorded.
    pub fn new(log: &'a RequestLog, is_kept: impl Fn(usize) -> bool) -> Self {
        let requests = &log.requests;
        let mut prepared = Self {
            items: &log.items,
            tree: Tree::new(&log.items.parents),
            log_indexes: Vec::new(),
            base_ns: Vec::new(),
            accesses: 0,
            is_session: log.items.keys.iter().map(|key| is_session_key(key.as_bytes())).collect(),
            pages: Vec::new(),
            requests_by_instance: Vec::new(),
            item_starts: vec![0],
            items_of_requests: Vec::new(),
        };
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
            prepared.add_items(request, requests.items_of(log_index), &mut last_request_of_item);
        }
        prepared
    }

    fn add_items(&mut self, request: u32, items: &[u32], last_request_of_item: &mut [u32]) {
        self.accesses += items.len() as u64;
        for &item in items {
            if last_request_of_item[item as usize] != request {
                last_request_of_item[item as usize] = request;
                self.items_of_requests.push(item);
            }
        }
        self.item_starts.push(self.items_of_requests.len());
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

    /// The items of a kept request, each once, in order of first use.
    pub fn items_of(&self, request: usize) -> &[u32] {
        &self.items_of_requests[self.item_starts[request]..self.item_starts[request + 1]]
    }

    /// Whether a process may keep an item; of one that the log does not have, it may.
    pub fn may_keep(&self, item: u32) -> bool {
        self.is_session.get(item as usize) != Some(&true)
    }

    /// For each item, how many of the given requests use it.
    pub fn uses(&self, requests: std::ops::Range<usize>) -> Vec<u32> {
        let mut uses_by_item = vec![0; self.items.len()];
        for &item in &self.items_of_requests
            [self.item_starts[requests.start]..self.item_starts[requests.end]]
        {
            uses_by_item[item as usize] += 1;
        }
        uses_by_item
    }
}
