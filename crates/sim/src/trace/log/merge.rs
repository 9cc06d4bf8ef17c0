//! Several parts of one log as one: the same key is one item, requests are in the order of their time.

use super::jsonl::intern_route;
use super::{Items, NONE, RecordedCalls, RequestLog, Requests};
use std::collections::HashMap;

/// Joins the parts. An item's parent, size and TTL are those of the last part that knows them, but a parent that would make
/// an item its own ancestor is left out; requests of equal time stay in the order of the parts.
pub(super) fn merge(parts: &[RequestLog]) -> RequestLog {
    let mut merged = MergedLog::default();
    let mut truncated_after = None;
    for part in parts {
        merged.add(part);
        if part.truncated_after.is_some() {
            truncated_after = Some(merged.requests.len() as u64);
        }
    }
    break_cycles(&mut merged.items.parents);
    RequestLog { items: merged.items, requests: sort_by_time(merged.requests), truncated_after }
}

#[derive(Default)]
struct MergedLog {
    items: Items,
    requests: Requests,
    number_by_key: HashMap<String, u32>,
    number_by_route: HashMap<String, u32>,
}

impl MergedLog {
    fn add(&mut self, part: &RequestLog) {
        let merged_items: Vec<u32> =
            part.items.keys.iter().map(|key| self.number_of_key(key)).collect();
        let merged_item_of =
            |part_item: u32| merged_items.get(part_item as usize).copied().unwrap_or(NONE);
        for (row, &merged_item) in merged_items.iter().enumerate() {
            let merged_item = merged_item as usize;
            if part.items.parents[row] != NONE {
                self.items.parents[merged_item] = merged_item_of(part.items.parents[row]);
            }
            if part.items.sizes[row] != 0 {
                self.items.sizes[merged_item] = part.items.sizes[row];
            }
            self.items.set_ttl_s(merged_item as u32, part.items.ttl_s(row as u32));
        }
        self.items.changed.extend(part.items.changed.iter().cloned());
        let (part_requests, requests) = (&part.requests, &mut self.requests);
        if requests.starts.is_empty() {
            requests.starts.push(0);
        }
        for row in 0..part_requests.len() {
            requests.numbers.push(part_requests.numbers[row]);
            requests.times_us.push(part_requests.times_us[row]);
            requests.instances.push(part_requests.instances[row]);
            requests.base_times_us.push(part_requests.base_times_us[row]);
            requests.pages.push(merged_item_of(part_requests.pages[row]));
            let route =
                part_requests.route_names.get(part_requests.routes[row] as usize).map(|name| {
                    intern_route(name, &mut requests.route_names, &mut self.number_by_route)
                });
            requests.routes.push(route.unwrap_or(NONE));
            requests.items.extend(
                part_requests.items_of(row).iter().map(|&part_item| merged_item_of(part_item)),
            );
            requests.starts.push(requests.items.len());
            requests.calls.push(requests.len() - 1, part_requests.calls.of(row));
        }
    }

    /// The number of a key, a new item at its first use.
    fn number_of_key(&mut self, key: &str) -> u32 {
        if let Some(&number) = self.number_by_key.get(key) {
            return number;
        }
        let number = self.items.keys.len() as u32;
        self.number_by_key.insert(key.to_owned(), number);
        self.items.keys.push(key.to_owned());
        self.items.parents.push(NONE);
        self.items.sizes.push(0);
        number
    }
}

/// Removes a parent from each cycle: parts that were recorded at different times, or by different processes, may
/// disagree about which item is the parent.
fn break_cycles(parents: &mut [u32]) {
    let mut last_walk_by_item = vec![0; parents.len()];
    for start in 0..parents.len() {
        let walk = start as u32 + 1;
        let mut item = start;
        while last_walk_by_item[item] == 0 {
            last_walk_by_item[item] = walk;
            let parent = parents[item];
            if parent == NONE {
                break;
            }
            if last_walk_by_item[parent as usize] == walk {
                parents[item] = NONE;
                break;
            }
            item = parent as usize;
        }
    }
}

/// The requests in the order of their time; those of equal time stay in their order.
pub(super) fn sort_by_time(requests: Requests) -> Requests {
    if requests.times_us.is_sorted() {
        return requests;
    }
    let mut row_order: Vec<usize> = (0..requests.len()).collect();
    row_order.sort_by_key(|&row| requests.times_us[row]);
    let mut sorted = Requests {
        numbers: row_order.iter().map(|&row| requests.numbers[row]).collect(),
        times_us: row_order.iter().map(|&row| requests.times_us[row]).collect(),
        instances: row_order.iter().map(|&row| requests.instances[row]).collect(),
        base_times_us: row_order.iter().map(|&row| requests.base_times_us[row]).collect(),
        pages: row_order.iter().map(|&row| requests.pages[row]).collect(),
        routes: row_order.iter().map(|&row| requests.routes[row]).collect(),
        starts: vec![0],
        items: Vec::with_capacity(requests.items.len()),
        route_names: Vec::new(),
        calls: RecordedCalls::default(),
    };
    for &row in &row_order {
        sorted.items.extend(requests.items_of(row));
        sorted.starts.push(sorted.items.len());
        sorted.calls.push(sorted.starts.len() - 2, requests.calls.of(row));
    }
    sorted.route_names = requests.route_names;
    sorted
}
