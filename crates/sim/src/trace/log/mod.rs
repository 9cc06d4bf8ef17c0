//! A request log in memory: what the requests of an application needed, as flat columns.
//!
//! The data is stored by column because a simulation scans two or three of the columns millions of
//! times. Formats and meaning: docs/reference/formats.md, "Request log".

mod calls;
mod check;
mod jsonl;
mod merge;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet_write;

pub use calls::{CallTimes, CallsOfRequest, RecordedCalls};
pub use glasscache_strategy::never_kept::{NeverRules, keys_and_patterns_of};
pub use glasscache_strategy::session_keys::{
    hashed_credential_key, hashed_session_key, is_session_key, name_of_hidden_keys,
    prefix_of_hashed_key,
};

use glasscache_strategy::kept_memory::{fixed_item_bytes, near_item_bytes};

use super::{Format, Source};
use crate::TraceError;
use std::collections::BTreeSet;
use std::io::{BufReader, Write};

/// Marks a missing number in a column: the parent of a root, or a request without page or route.
pub const NONE: u32 = u32::MAX;

/// The items, one entry an item in each column; an item's number is its index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Items {
    /// Keys, unique.
    pub keys: Vec<String>,
    /// The number of the parent, [`NONE`] for a root; parents never form a cycle.
    pub parents: Vec<u32>,
    /// Bytes as stored remotely, 0 where unknown.
    pub sizes: Vec<u32>,
    /// The TTL in seconds with which the application stored each item last, 0 where it has none or none is known;
    /// shorter than the other columns if the last items have none.
    pub ttls_s: Vec<u32>,
    /// Keys that the application changes in place, read or not, and patterns of such keys
    /// ([`glasscache_strategy::never_kept`]); in no file of the items.
    pub changed: BTreeSet<String>,
}

impl Items {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The memory that an item takes in a near cache of a process, in bytes.
    pub fn near_bytes(&self, item: u32) -> u32 {
        let (key_length, value_length) = self.lengths(item);
        u32::try_from(near_item_bytes(key_length, value_length)).unwrap_or(u32::MAX)
    }

    /// The memory that an item takes in the fixed set of a process, in bytes.
    pub fn fixed_bytes(&self, item: u32) -> u32 {
        let (key_length, value_length) = self.lengths(item);
        u32::try_from(fixed_item_bytes(key_length, value_length)).unwrap_or(u32::MAX)
    }

    fn lengths(&self, item: u32) -> (usize, usize) {
        let key_length = self.keys.get(item as usize).map_or(0, String::len);
        (key_length, self.sizes[item as usize] as usize)
    }

    /// The memory that all items take together in a near cache of a process, in bytes.
    pub fn all_near_bytes(&self) -> u64 {
        (0..self.len() as u32).map(|item| u64::from(self.near_bytes(item))).sum()
    }

    /// The TTL of an item in seconds, 0 where it has none or none is known.
    pub fn ttl_s(&self, item: u32) -> u32 {
        self.ttls_s.get(item as usize).copied().unwrap_or(0)
    }

    /// Notes the TTL in seconds with which an item was stored; 0 says nothing.
    pub fn set_ttl_s(&mut self, item: u32, ttl_s: u32) {
        let index = item as usize;
        if ttl_s == 0 {
            return;
        }
        if self.ttls_s.len() <= index {
            self.ttls_s.resize(index + 1, 0);
        }
        self.ttls_s[index] = ttl_s;
    }

    /// What is not kept, by the items that the application changes in place.
    pub fn never_rules(&self) -> NeverRules {
        let changed_keys = self.changed.iter().map(String::as_str);
        let (hidden_keys, changed_keys): (Vec<&str>, Vec<&str>) = changed_keys
            .filter(|key| !is_session_key(key.as_bytes()))
            .partition(|key| prefix_of_hashed_key(key).is_some());
        let hidden_prefixes: BTreeSet<&str> =
            hidden_keys.into_iter().filter_map(prefix_of_hashed_key).collect();
        NeverRules {
            prefixes: hidden_prefixes.into_iter().map(str::to_owned).collect(),
            keys_and_patterns: keys_and_patterns_of(changed_keys.into_iter()),
            ..NeverRules::default()
        }
    }

    /// Names sessions by their hashes, where the recorder did not.
    fn hash_sessions(&mut self) {
        for key in &mut self.keys {
            if let Some(name) = hashed_session_key(key, None) {
                *key = name;
            }
        }
    }
}

/// The requests in the order of their time, one entry a request in each column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    /// The numbers that the recorder gave.
    pub numbers: Vec<u64>,
    /// Arrival times in microseconds of the recorder's clock.
    pub times_us: Vec<u64>,
    /// Which application process served each request.
    pub instances: Vec<u16>,
    /// Latencies with every item in local memory, in microseconds.
    pub base_times_us: Vec<u32>,
    /// The item that each request's page is about, or [`NONE`].
    pub pages: Vec<u32>,
    /// The kind of each request, an index into `route_names`, or [`NONE`].
    pub routes: Vec<u32>,
    /// The names of the routes.
    pub route_names: Vec<String>,
    /// Where each request's items begin in `items`; one entry more than there are requests.
    pub starts: Vec<usize>,
    /// The items of all requests, one request after the other, with repeats.
    pub items: Vec<u32>,
    /// The calls by which each request read its items.
    pub calls: RecordedCalls,
}

impl Requests {
    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.base_times_us.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.base_times_us.is_empty()
    }

    /// The items that request `index` used, in order, with repeats.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn items_of(&self, index: usize) -> &[u32] {
        &self.items[self.starts[index]..self.starts[index + 1]]
    }
}

/// Items and requests, checked: numbers in range, parents without cycle, times in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestLog {
    /// The items.
    pub items: Items,
    /// The requests.
    pub requests: Requests,
    /// Number of complete requests, if the file ended in the middle of a request.
    pub truncated_after: Option<u64>,
}

impl RequestLog {
    /// Reads the items and the requests of a log; the file names determine the formats and appear in errors.
    ///
    /// A JSONL file of requests that ends within a line is read up to its last complete request, and
    /// `truncated_after` is set.
    ///
    /// # Errors
    /// An unsupported file type, a missing column, a value out of range, a cycle among the parents, times out of
    /// order.
    pub fn read<S: Source>(
        (items_file, items_source): (&str, S),
        (requests_file, requests_source): (&str, S),
    ) -> Result<Self, TraceError> {
        let mut log = match (Format::of(items_file)?, Format::of(requests_file)?) {
            (Format::JsonLines, Format::JsonLines) => jsonl::read(
                (items_file, BufReader::new(items_source)),
                (requests_file, BufReader::new(requests_source)),
            ),
            #[cfg(feature = "parquet")]
            (Format::Parquet, Format::Parquet) => {
                parquet::read((items_file, items_source), (requests_file, requests_source))
            }
            _ => {
                let fault = "a request log is two files of one kind, Parquet or JSON lines";
                Err(TraceError::file(requests_file, fault))
            }
        }?;
        check::check(&log, items_file, requests_file)?;
        log.items.hash_sessions();
        Ok(log)
    }

    /// Joins the parts of one log: the same key is one item, with parent, size and TTL of the last part that knows
    /// them, and the requests are in the order of their time. Of parents that form a cycle only across parts, one is
    /// left out. `name` appears in errors.
    ///
    /// # Errors
    /// Parts that do not pass the checks of [`Self::read`].
    pub fn merge(parts: &[Self], name: &str) -> Result<Self, TraceError> {
        let log = merge::merge(parts);
        check::check(&log, name, name)?;
        Ok(log)
    }

    /// As [`Self::merge`], of one part whose items have keys of their own: without a copy of what is in order.
    ///
    /// # Errors
    /// A part that does not pass the checks of [`Self::read`].
    pub fn sorted_by_time(mut self, name: &str) -> Result<Self, TraceError> {
        self.requests = merge::sort_by_time(self.requests);
        check::check(&self, name, name)?;
        Ok(self)
    }

    /// Writes the log as `items.jsonl` and `requests.jsonl`.
    pub fn write_jsonl(
        &self,
        items_output: &mut impl Write,
        requests_output: &mut impl Write,
    ) -> std::io::Result<()> {
        jsonl::write(self, items_output, requests_output)
    }

    /// Writes the log as `items.parquet` and `requests.parquet`.
    #[cfg(feature = "parquet")]
    pub fn write_parquet(
        &self,
        items_output: impl Write + Send,
        requests_output: impl Write + Send,
    ) -> std::io::Result<()> {
        parquet_write::write(self, items_output, requests_output)
    }
}
