//! Several parts of one log as one: the same key is one item, requests are in the order of their time.

use super::jsonl::route_number;
use super::{Items, NONE, RequestLog, Requests};
use std::collections::HashMap;

/// Joins the parts. An item's parent and size are those of the last part that knows them; requests of equal time stay
/// in the order of the parts.
pub(super) fn merge(parts: &[RequestLog]) -> RequestLog {
    let mut merged = Merged::default();
    let mut truncated_after = None;
    for part in parts {
        merged.add(part);
        if part.truncated_after.is_some() {
            truncated_after = Some(merged.requests.len() as u64);
        }
    }
    RequestLog {
        items: merged.items,
        requests: in_order_of_time(merged.requests),
        truncated_after,
    }
}

#[derive(Default)]
struct Merged {
    items: Items,
    requests: Requests,
    item_of_key: HashMap<String, u32>,
    route_of_name: HashMap<String, u32>,
}

impl Merged {
    fn add(&mut self, part: &RequestLog) {
        let items: Vec<u32> = part.items.keys.iter().map(|key| self.item(key)).collect();
        let item = |number: u32| items.get(number as usize).copied().unwrap_or(NONE);
        for (at, &merged) in items.iter().enumerate() {
            let merged = merged as usize;
            if part.items.parents[at] != NONE {
                self.items.parents[merged] = item(part.items.parents[at]);
            }
            if part.items.sizes[at] != 0 {
                self.items.sizes[merged] = part.items.sizes[at];
            }
        }
        let (rows, requests) = (&part.requests, &mut self.requests);
        if requests.starts.is_empty() {
            requests.starts.push(0);
        }
        for at in 0..rows.len() {
            requests.request.push(rows.request[at]);
            requests.time_us.push(rows.time_us[at]);
            requests.instance.push(rows.instance[at]);
            requests.base_us.push(rows.base_us[at]);
            requests.page.push(item(rows.page[at]));
            let route = rows
                .routes
                .get(rows.route[at] as usize)
                .map(|name| route_number(name, &mut requests.routes, &mut self.route_of_name));
            requests.route.push(route.unwrap_or(NONE));
            requests
                .items
                .extend(rows.items_of(at).iter().map(|&number| item(number)));
            requests.starts.push(requests.items.len());
        }
    }

    /// The number of a key, a new item at its first use.
    fn item(&mut self, key: &str) -> u32 {
        if let Some(&number) = self.item_of_key.get(key) {
            return number;
        }
        let number = self.items.keys.len() as u32;
        self.item_of_key.insert(key.to_owned(), number);
        self.items.keys.push(key.to_owned());
        self.items.parents.push(NONE);
        self.items.sizes.push(0);
        number
    }
}

fn in_order_of_time(requests: Requests) -> Requests {
    if requests.time_us.is_sorted() {
        return requests;
    }
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&at| requests.time_us[at]);
    let mut sorted = Requests {
        request: order.iter().map(|&at| requests.request[at]).collect(),
        time_us: order.iter().map(|&at| requests.time_us[at]).collect(),
        instance: order.iter().map(|&at| requests.instance[at]).collect(),
        base_us: order.iter().map(|&at| requests.base_us[at]).collect(),
        page: order.iter().map(|&at| requests.page[at]).collect(),
        route: order.iter().map(|&at| requests.route[at]).collect(),
        starts: vec![0],
        items: Vec::with_capacity(requests.items.len()),
        routes: Vec::new(),
    };
    for &at in &order {
        sorted.items.extend(requests.items_of(at));
        sorted.starts.push(sorted.items.len());
    }
    sorted.routes = requests.routes;
    sorted
}
