//! What a request log looks like before anything is simulated: items per request, and how much of its time the cache takes.

use super::StrategyFile;
use super::cost::CostModel;
use super::prepare::PreparedLog;
use super::replay_file::run_file;
use crate::trace::log::RequestLog;

/// Requests with a number of items within a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestsBySize {
    /// The fewest items.
    pub items_from: usize,
    /// The most items.
    pub items_to: usize,
    /// How many requests.
    pub requests: u64,
}

/// How many requests read no item, one, two or three, four to seven, and so on; up to the largest request.
pub fn items_histogram(log: &RequestLog) -> Vec<RequestsBySize> {
    let mut requests_by_class: Vec<u64> = Vec::new();
    for request in 0..log.requests.len() {
        let item_count = log.requests.items_of(request).len();
        let size_class = (usize::BITS - item_count.leading_zeros()) as usize;
        if requests_by_class.len() <= size_class {
            requests_by_class.resize(size_class + 1, 0);
        }
        requests_by_class[size_class] += 1;
    }
    let row = |(size_class, &requests): (usize, &u64)| RequestsBySize {
        items_from: (1 << size_class) >> 1,
        items_to: (1 << size_class) - 1,
        requests,
    };
    requests_by_class.iter().enumerate().map(row).collect()
}

/// The share of the time of all requests that they wait for the cache without any strategy, by the costs of a latency
/// table; `None` if the log does not have the requests' own time.
pub fn cache_time_share(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    base_us: &[u32],
) -> Option<f64> {
    let base_ns_sum: u64 = base_us.iter().map(|&us| u64::from(us) * 1000).sum();
    let request_stats = run_file(prepared, cost, &StrategyFile::default());
    let added_ns_sum: u64 = request_stats.iter().map(|stats| stats.added_ns).sum();
    (base_ns_sum > 0).then(|| added_ns_sum as f64 / (base_ns_sum + added_ns_sum) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::log::{Items, NONE, Requests};

    /// Requests with this many different items, each of which has 1 ms of its own.
    fn log_of_requests(item_counts: &[usize]) -> RequestLog {
        let most_items = item_counts.iter().copied().max().unwrap_or(0);
        let request_count = item_counts.len();
        let mut requests = Requests {
            numbers: (0..request_count as u64).collect(),
            times_us: (0..request_count as u64).collect(),
            instances: vec![0; request_count],
            base_times_us: vec![1000; request_count],
            pages: vec![NONE; request_count],
            routes: vec![NONE; request_count],
            starts: vec![0],
            ..Requests::default()
        };
        for &item_count in item_counts {
            requests.items.extend(0..item_count as u32);
            requests.starts.push(requests.items.len());
        }
        RequestLog {
            items: Items {
                keys: (0..most_items).map(|item| item.to_string()).collect(),
                parents: vec![NONE; most_items],
                sizes: vec![1; most_items],
                ..Items::default()
            },
            requests,
            truncated_after: None,
        }
    }

    #[test]
    fn a_histogram_of_items_doubles_its_classes_and_ends_with_the_largest_request() {
        let rows = items_histogram(&log_of_requests(&[0, 1, 1, 2, 3, 9]));
        let row =
            |items_from, items_to, requests| RequestsBySize { items_from, items_to, requests };
        let expected = [row(0, 0, 1), row(1, 1, 2), row(2, 3, 2), row(4, 7, 0), row(8, 15, 1)];
        assert_eq!(rows, expected);
        assert!(items_histogram(&log_of_requests(&[])).is_empty());
    }

    #[test]
    fn the_share_of_the_cache_is_its_time_over_the_whole_time_of_the_requests() {
        let log = log_of_requests(&[1, 3]);
        let cost = CostModel::new(&[(1.0, 500.0)], &[(1.0, 500.0)]).unwrap();
        let prepared = PreparedLog::new(&log, |_| true);
        let base_times_us = &log.requests.base_times_us;
        // Four calls of half a millisecond, and two requests of one.
        assert_eq!(cache_time_share(&prepared, &cost, base_times_us), Some(0.5));
        assert_eq!(cache_time_share(&prepared, &cost, &[0, 0]), None);
    }
}
