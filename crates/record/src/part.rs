//! A part of the log while it is in memory: finished requests as the columns of a request log.

use std::collections::HashMap;

use glasscache_sim::TraceError;
use glasscache_sim::trace::log::{
    CallTimes, Items, NONE, RequestLog, Requests, hashed_credential_key, hashed_session_key,
    name_of_hidden_keys, prefix_of_hashed_key,
};
use sha2::{Digest, Sha256};

use crate::finished::{FinishedRequest, Parent};
use crate::key_numbers::KeyNumbers;
use crate::options::Options;

/// Requests that are not written yet, with their items numbered in the order of first use.
#[derive(Default)]
pub(crate) struct LogPart {
    items: Items,
    /// Whether the parent of each item was named for a read.
    has_named_parent: Vec<bool>,
    requests: Requests,
    /// The keys of the items, as the application names them.
    keys: KeyNumbers,
    /// Whether the log names any key otherwise than the application.
    has_names_of_its_own: bool,
    route_by_name: HashMap<Box<[u8]>, u32>,
    /// The bytes of the requests as they were submitted.
    footprint_bytes: usize,
    writes: u64,
}

impl LogPart {
    /// How many requests it holds.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The bytes of its requests as they were submitted.
    pub(crate) fn footprint_bytes(&self) -> usize {
        self.footprint_bytes
    }

    /// Calls that wrote, in all requests.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// Appends a finished request.
    pub(crate) fn add(&mut self, request: &FinishedRequest<'_>, instance: u16, options: &Options) {
        let numbers = request.numbers;
        self.footprint_bytes += request.footprint_bytes();
        self.writes += u64::from(numbers.writes);
        if self.requests.starts.is_empty() {
            self.requests.starts.push(0);
        }
        self.requests.items.reserve(request.read_count());
        for (key, parent, value_bytes) in request.reads() {
            let item = match self.keys.find(key) {
                Some(item) if parent.is_none() => item,
                _ => self.intern_item(key, parent, options),
            };
            if value_bytes != 0 {
                self.items.sizes[item as usize] = value_bytes;
            }
            self.requests.items.push(item);
        }
        for key in request.changed_keys() {
            self.items.changed.insert(logged_key(key, options));
        }
        // What is never read has no item.
        for (key, ttl_s) in request.ttls() {
            if let Some(item) = self.keys.find(key) {
                self.items.set_ttl_s(item, ttl_s);
            }
        }
        let page = request.page.map_or(NONE, |key| self.intern_item(key, None, options));
        let route = request.route.map_or(NONE, |name| self.intern_route(name));
        let requests = &mut self.requests;
        requests.starts.push(requests.items.len());
        requests.numbers.push(numbers.number);
        requests.times_us.push(numbers.time_us);
        requests.instances.push(instance);
        let base_us = if options.has_base { numbers.base_us } else { 0 };
        requests.base_times_us.push(base_us);
        requests.pages.push(page);
        requests.routes.push(route);
        let times = CallTimes {
            wait_us: numbers.wait_us.min(NONE - 1),
            decode_us: numbers.decode_us,
            writes: numbers.writes,
        };
        requests.calls.push(requests.len() - 1, Some((request.keys_of_calls, times)));
    }

    /// Everything as one log, its requests in the order of their time. `name` appears in errors.
    pub(crate) fn into_log(self, name: &str) -> Result<RequestLog, TraceError> {
        let log = RequestLog { items: self.items, requests: self.requests, truncated_after: None };
        if self.has_names_of_its_own {
            // Two keys may have one name, which is one item.
            return RequestLog::merge(&[log], name);
        }
        log.sorted_by_time(name)
    }

    /// The number of a key. It gets the parent that was named for the first of its reads that has one, else the first
    /// that a rule or pattern gives; a parent that would make the key its own ancestor is left out.
    fn intern_item(&mut self, key: &[u8], parent: Option<Parent<'_>>, options: &Options) -> u32 {
        let item = match self.keys.find(key) {
            Some(item) if parent.is_none() => return item,
            Some(item) => item,
            None => self.new_item(key, options),
        };
        let is_named = parent.is_some_and(|parent| parent.is_named);
        let has_parent = self.items.parents[item as usize] != NONE;
        if self.has_named_parent[item as usize] || (has_parent && !is_named) {
            return item;
        }
        let by_pattern = || {
            let key = std::str::from_utf8(key).ok()?;
            options.parents.parent_of(key).map(str::as_bytes)
        };
        if let Some(parent_key) = parent.map(|parent| parent.key).or_else(by_pattern) {
            let parent_item = self.intern_item(parent_key, None, options);
            if !self.has_ancestor(parent_item, item) {
                self.items.parents[item as usize] = parent_item;
                self.has_named_parent[item as usize] = is_named;
            }
        }
        item
    }

    fn new_item(&mut self, key: &[u8], options: &Options) -> u32 {
        let item = self.keys.push(key);
        let name = logged_key(key, options);
        // A client has no use for the hash of a key: what is hidden is not kept.
        if let Some(prefix) = prefix_of_hashed_key(&name).filter(|_| options.salt.is_none()) {
            self.items.changed.insert(name_of_hidden_keys(prefix));
        }
        self.has_names_of_its_own |= name.as_bytes() != key;
        self.items.keys.push(name);
        self.items.parents.push(NONE);
        self.items.sizes.push(0);
        self.has_named_parent.push(false);
        item
    }

    /// Whether `ancestor` is `item` or above it.
    fn has_ancestor(&self, mut item: u32, ancestor: u32) -> bool {
        while item != NONE && item != ancestor {
            item = self.items.parents[item as usize];
        }
        item == ancestor
    }

    fn intern_route(&mut self, name: &[u8]) -> u32 {
        if let Some(&route) = self.route_by_name.get(name) {
            return route;
        }
        let route = self.requests.route_names.len() as u32;
        self.requests.route_names.push(String::from_utf8_lossy(name).into_owned());
        self.route_by_name.insert(name.into(), route);
        route
    }
}

/// A key as the log names it: its hash if it is a credential or there is a salt, its text, or its bytes with escapes if they are not UTF-8.
fn logged_key(key: &[u8], options: &Options) -> String {
    let salt = options.salt.as_deref();
    let text =
        std::str::from_utf8(key).map_or_else(|_| key.escape_ascii().to_string(), str::to_owned);
    if let Some(name_of_session) = hashed_session_key(&text, salt) {
        return name_of_session;
    }
    let credential_name = || hashed_credential_key(&text, &options.salt_prefixes, salt);
    if let Some(name) = credential_name().filter(|_| salt.is_none()) {
        return name;
    }
    if let Some(salt) = salt {
        let hash: [u8; 32] = Sha256::new().chain_update(salt).chain_update(key).finalize().into();
        let hash_prefix = hash.first_chunk();
        return format!("{:032x}", hash_prefix.map_or(0, |bytes| u128::from_be_bytes(*bytes)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finished::{RequestBatch, UnfinishedRequest};
    use crate::parents::ParentPatterns;

    fn new_parent(key: &str, is_named: bool) -> Parent<'_> {
        let key = key.as_bytes();
        Parent { key, is_named }
    }

    fn parents_of<'i, const N: usize>(items: &'i Items, keys: [&str; N]) -> [Option<&'i str>; N] {
        keys.map(|key| {
            let index = items.keys.iter().position(|item_key| item_key == key).unwrap();
            items.keys.get(items.parents[index] as usize).map(String::as_str)
        })
    }

    #[test]
    fn a_parent_that_would_close_a_cycle_is_left_out() {
        let (mut part, options) = (LogPart::default(), Options::new("log"));
        for (key, parent_key) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "d"), ("e", "a")] {
            part.intern_item(key.as_bytes(), Some(new_parent(parent_key, false)), &options);
        }
        assert_eq!(
            parents_of(&part.items, ["a", "b", "c", "d", "e"]),
            [Some("b"), Some("c"), None, None, Some("a")]
        );
        // A named parent replaces one by a rule, and may not close a cycle either.
        part.intern_item(b"b", Some(new_parent("a", true)), &options);
        part.intern_item(b"e", Some(new_parent("d", true)), &options);
        assert_eq!(parents_of(&part.items, ["b", "e"]), [Some("c"), Some("d")]);
    }

    #[test]
    fn a_named_parent_comes_before_rules_and_patterns_in_any_order_of_reads() {
        let mut options = Options::new("log");
        options.parents = ParentPatterns::parse(["{a}/{b}"]).unwrap();
        let mut part = LogPart::default();
        for (key, given_parent) in [
            ("p/1", None),
            ("p/1", Some(new_parent("named", true))),
            ("p/1", Some(new_parent("later", true))),
            ("p/2", Some(new_parent("named", true))),
            ("p/2", Some(new_parent("rule", false))),
            ("p/2", None),
            ("p/3", Some(new_parent("rule", false))),
            ("p/3", Some(new_parent("named", true))),
            ("p/4", Some(new_parent("rule", false))),
            ("p/5", None),
        ] {
            part.intern_item(key.as_bytes(), given_parent, &options);
        }
        assert_eq!(
            parents_of(&part.items, ["p/1", "p/2", "p/3", "p/4", "p/5", "named"]),
            [Some("named"), Some("named"), Some("named"), Some("rule"), Some("p"), None]
        );
    }

    #[test]
    fn two_keys_of_one_name_are_one_item_of_the_log() {
        for (second_key, names) in [(b"\\xff", &["\\xff"][..]), (b"\\xfe", &["\\xff", "\\xfe"])] {
            let (mut part, options) = (LogPart::default(), Options::new("log"));
            let mut record = UnfinishedRequest::default();
            record.append_call([(b"\xff".as_slice(), None), (second_key, None)].into_iter());
            let mut batch = RequestBatch::default();
            batch.push(&record);
            batch.for_each(|request| part.add(request, 0, &options));
            let log = part.into_log("log").unwrap();
            assert_eq!(log.items.keys, names);
            assert_eq!(log.requests.items, [0, names.len() as u32 - 1]);
        }
    }

    #[test]
    fn keys_are_hashed_with_the_salt_or_escaped() {
        let mut options = Options::new("log");
        assert_eq!(logged_key(b"user:17", &options), "user:17");
        assert_eq!(logged_key(b"\xff\x01k", &options), "\\xff\\x01k");
        options.salt_prefixes = vec!["token:".to_owned()];
        for key in ["token:secret", ":1:token:secret"] {
            let name = logged_key(key.as_bytes(), &options);
            assert!(name.starts_with(key.strip_suffix("secret").unwrap()), "{name}");
            assert!(!name.contains("secret"), "{name}");
        }
        options.salt = Some(b"salt".to_vec());
        let hashed = logged_key(b"user:17", &options);
        assert_eq!(hashed.len(), 32);
        options.salt = Some(b"pepper".to_vec());
        assert_ne!(hashed, logged_key(b"user:17", &options));
    }
}
