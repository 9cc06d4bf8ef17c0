//! What a request log's reads go to: the most used items and key prefixes, what never comes back, bytes per day.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::prepare::PreparedLog;
use crate::key_prefix::PrefixGroups;
use crate::trace::log::NONE;

const US_PER_DAY: f64 = 86_400e6;

/// The use of a log's items. An item that a request reads several times counts once for that request.
#[derive(Debug, Clone, PartialEq)]
pub struct LogUsage {
    /// The use of each item that requests read, those of most requests first; ties by key.
    pub by_item: Vec<ItemUsage>,
    /// The use of each prefix of these items' keys, those of most requests first; ties by prefix.
    pub by_prefix: Vec<PrefixUsage>,
    /// Reads of all requests.
    pub reads: u64,
    /// Bytes of these reads, as far as sizes are known.
    pub read_bytes: u64,
}

/// The use of one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemUsage {
    /// Its number in the log.
    pub item: u32,
    /// Requests that read it.
    pub requests: u32,
}

/// The use of all items whose keys have one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixUsage {
    /// The prefix; `None` for keys without one.
    pub prefix: Option<String>,
    /// How many different items requests read.
    pub item_count: u64,
    /// The bytes of these items, as far as they are known.
    pub bytes: u64,
    /// Reads of them.
    pub reads: u64,
    /// Requests that read at least one of them.
    pub requests: u64,
}

impl LogUsage {
    /// Counts the reads of the prepared requests.
    pub fn new(prepared: &PreparedLog<'_>) -> Self {
        let (keys, sizes) = (&prepared.items.keys, &prepared.items.sizes);
        let requests_by_item = prepared.uses(0..prepared.len());
        let read_items = || (0_u32..).zip(&requests_by_item).filter(|&(_, &requests)| requests > 0);
        let mut by_item: Vec<ItemUsage> =
            read_items().map(|(item, &requests)| ItemUsage { item, requests }).collect();
        by_item.sort_by_key(|usage| (Reverse(usage.requests), &keys[usage.item as usize]));
        let bytes_of =
            |(item, &requests): (u32, &u32)| u64::from(requests) * u64::from(sizes[item as usize]);
        Self {
            by_item,
            by_prefix: list_prefix_usages(prepared, &requests_by_item),
            reads: requests_by_item.iter().map(|&requests| u64::from(requests)).sum(),
            read_bytes: read_items().map(bytes_of).sum(),
        }
    }

    /// The share of the read items that only one request reads; `None` if nothing is read.
    pub fn never_repeated_items_share(&self) -> Option<f64> {
        fraction_of(self.count_never_repeated_items(), self.by_item.len() as u64)
    }

    /// The share of the reads that go to items which only one request reads; `None` if nothing is read.
    pub fn never_repeated_reads_share(&self) -> Option<f64> {
        fraction_of(self.count_never_repeated_items(), self.reads)
    }

    fn count_never_repeated_items(&self) -> u64 {
        let has_one_request = |usage: &&ItemUsage| usage.requests == 1;
        self.by_item.iter().filter(has_one_request).count() as u64
    }
}

/// How much `amount` would be in a day, if it came in the time between these two; `None` if there is no time between.
pub fn per_day(amount: u64, first_time_us: u64, last_time_us: u64) -> Option<f64> {
    let span_us = last_time_us.checked_sub(first_time_us)?;
    (span_us > 0).then(|| amount as f64 * US_PER_DAY / span_us as f64)
}

fn fraction_of(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The use of each prefix.
fn list_prefix_usages(prepared: &PreparedLog<'_>, requests_by_item: &[u32]) -> Vec<PrefixUsage> {
    let (keys, sizes) = (&prepared.items.keys, &prepared.items.sizes);
    let read_keys = keys.iter().zip(requests_by_item).filter(|&(_, &requests)| requests > 0);
    let groups = PrefixGroups::of_keys(read_keys.map(|(key, _)| key.as_str()));
    let mut index_of_prefix: HashMap<Option<&str>, usize> = HashMap::new();
    let mut prefix_usages: Vec<PrefixUsage> = Vec::new();
    let mut prefix_index_of_item = vec![NONE; keys.len()];
    for (item, (key, &requests)) in keys.iter().zip(requests_by_item).enumerate() {
        if requests == 0 {
            continue;
        }
        let prefix = groups.prefix_of(key);
        let prefix_index = *index_of_prefix.entry(prefix).or_insert_with(|| {
            prefix_usages.push(PrefixUsage {
                prefix: prefix.map(str::to_owned),
                item_count: 0,
                bytes: 0,
                reads: 0,
                requests: 0,
            });
            prefix_usages.len() - 1
        });
        prefix_index_of_item[item] = prefix_index as u32;
        let usage = &mut prefix_usages[prefix_index];
        usage.item_count += 1;
        usage.bytes += u64::from(sizes[item]);
        usage.reads += u64::from(requests);
    }
    let mut last_request_of_prefix = vec![usize::MAX; prefix_usages.len()];
    for request in 0..prepared.len() {
        for &item in prepared.items_of(request) {
            let prefix_index = prefix_index_of_item[item as usize] as usize;
            if last_request_of_prefix[prefix_index] != request {
                last_request_of_prefix[prefix_index] = request;
                prefix_usages[prefix_index].requests += 1;
            }
        }
    }
    prefix_usages.sort_by(|a, b| {
        let by_requests = b.requests.cmp(&a.requests);
        by_requests.then_with(|| a.prefix.cmp(&b.prefix))
    });
    prefix_usages
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::log::{Items, RequestLog, Requests};

    /// Requests that read these keys, in order; an item has as many bytes as its key.
    fn log_of_requests(requests: &[&[&str]]) -> RequestLog {
        let mut log = RequestLog {
            items: Items::default(),
            requests: Requests { starts: vec![0], ..Requests::default() },
            truncated_after: None,
        };
        for (number, keys) in requests.iter().enumerate() {
            for key in *keys {
                let known_item = log.items.keys.iter().position(|listed_key| listed_key == key);
                let item = known_item.unwrap_or_else(|| {
                    log.items.keys.push((*key).to_owned());
                    log.items.parents.push(NONE);
                    log.items.sizes.push(key.len() as u32);
                    log.items.keys.len() - 1
                });
                log.requests.items.push(item as u32);
            }
            log.requests.starts.push(log.requests.items.len());
            log.requests.numbers.push(number as u64);
            log.requests.times_us.push(number as u64);
            log.requests.instances.push(0);
            log.requests.base_times_us.push(0);
            log.requests.pages.push(NONE);
            log.requests.routes.push(NONE);
        }
        log
    }

    #[test]
    fn items_and_prefixes_count_the_requests_that_read_them_not_repeats() {
        let log =
            log_of_requests(&[&["u:1", "nav", "u:1", "u:2"], &["nav", "u:1"], &["nav"], &["once"]]);
        let log_usage = LogUsage::new(&PreparedLog::new(&log, |_| true));
        let requests_by_key: Vec<_> = log_usage
            .by_item
            .iter()
            .map(|usage| (log.items.keys[usage.item as usize].as_str(), usage.requests))
            .collect();
        assert_eq!(requests_by_key, [("nav", 3), ("u:1", 2), ("once", 1), ("u:2", 1)]);
        let usage_of =
            |prefix: Option<&str>, [items, bytes, reads, requests]: [u64; 4]| PrefixUsage {
                prefix: prefix.map(str::to_owned),
                item_count: items,
                bytes,
                reads,
                requests,
            };
        let expected = [usage_of(None, [2, 7, 4, 4]), usage_of(Some("u:"), [2, 6, 3, 2])];
        assert_eq!(log_usage.by_prefix, expected);
        assert_eq!((log_usage.reads, log_usage.read_bytes), (7, 22));
    }

    #[test]
    fn keys_of_django_are_grouped_by_what_comes_after_the_version() {
        let log = log_of_requests(&[&[":1:card:1", ":1:card:2", ":1:user:1"], &[":1:nav"]]);
        let usage = LogUsage::new(&PreparedLog::new(&log, |_| true));
        let prefixes = usage.by_prefix.iter().map(|usage| usage.prefix.as_deref());
        assert_eq!(prefixes.collect::<Vec<_>>(), [":1:", ":1:card:", ":1:user:"].map(Some));
    }

    #[test]
    fn what_one_request_reads_is_never_repeated() {
        let log_of_several_requests = log_of_requests(&[&["a", "b", "b"], &["a"], &["a", "c"]]);
        let usage = LogUsage::new(&PreparedLog::new(&log_of_several_requests, |_| true));
        assert_eq!(usage.never_repeated_items_share(), Some(2.0 / 3.0));
        assert_eq!(usage.never_repeated_reads_share(), Some(2.0 / 5.0));
        let log_without_items = log_of_requests(&[&[]]);
        let usage = LogUsage::new(&PreparedLog::new(&log_without_items, |_| true));
        assert_eq!(usage.never_repeated_items_share(), None);
        assert_eq!(usage.never_repeated_reads_share(), None);
    }

    #[test]
    fn an_amount_per_day_needs_time_between_first_and_last() {
        assert_eq!(per_day(10, 0, 43_200_000_000), Some(20.0));
        assert_eq!(per_day(10, 5, 5), None);
        assert_eq!(per_day(10, 6, 5), None);
    }
}
