//! Bulk reads of a client that runs a strategy: each value with its remaining TTL, which bounds how long it is kept.

use std::time::Duration;

use glasscache_protocol::meta::request::WireKey;

use super::IndexedValue;
use super::partition::{Partition, Partitioned, partition_keys};
use super::requests::BulkReply;
use crate::client::{Budget, Client};
use crate::costs::{CallClass, OperationKind};
use crate::engine::interpret::refusal_to_error;
use crate::error::Error;
use crate::near::{Fetch, FetchReason, FetchedItems, NearRead, NearValue};
use crate::observe::RequestSummary;
use crate::pipeline::{FoundValue, MetaReply, Pipeline, Reply};
use crate::request::Request;
use crate::value::MANIFEST_FLAGS;

/// A bulk read of wire keys, partitioned by server.
#[derive(Debug)]
pub struct BulkReadWithTtls {
    partitions: Vec<Partition>,
}

impl BulkReadWithTtls {
    /// Partitions keys.
    pub fn new(client: &Client, keys: &[WireKey<'_>]) -> Self {
        client.membership.watch();
        Self { partitions: partition_keys(client, keys) }
    }

    /// Adds the items in a reply: one reply for each key, or one for all keys from a server without meta commands.
    pub fn add_reply(&self, reply: BulkReply<'_>, fetched: &mut FetchedItems) -> Result<(), Error> {
        let pipeline = reply.pipeline;
        let partition = self.partitions.get(reply.request_index).ok_or(Error::Closed)?;
        if let Reply::Meta(meta) = refusal_to_error(reply.parsed, reply.server)? {
            if let Some(&index) = partition.indices.get(reply.reply_index) {
                let found = pipeline.found_values().first();
                let value = found.map(|found| near_value_of(pipeline, found));
                fetched.record_item(index, value, cacheable_ttl_s(&meta, found));
            }
            return Ok(());
        }
        fetched.mark_lacking_ttls();
        for &index in &partition.indices {
            fetched.record_item(index, None, None);
        }
        for found in pipeline.found_values() {
            if let Some(&index) = partition.indices.get(found.key_index) {
                fetched.record_item(index, Some(near_value_of(pipeline, found)), None);
            }
        }
        Ok(())
    }
}

/// The values of a read that were found, with the indices of their keys.
pub(crate) fn found_values_with_index(values: Vec<Option<NearValue>>) -> Vec<IndexedValue> {
    let indexed_values = values.into_iter().enumerate();
    indexed_values
        .filter_map(|(index, value)| value.map(|value| (index, value.flags, value.bytes.to_vec())))
        .collect()
}

fn near_value_of(pipeline: &Pipeline, found: &FoundValue) -> NearValue {
    NearValue { flags: found.flags, bytes: pipeline.body(found).into() }
}

/// The remaining TTL of a value that may be kept: one that is stale on the server is about to be replaced, and a
/// manifest would outlive the pieces that it names.
fn cacheable_ttl_s(meta: &MetaReply, found: Option<&FoundValue>) -> Option<i64> {
    let is_manifest = found.is_some_and(|found| found.flags == MANIFEST_FLAGS);
    meta.ttl_s.filter(|_| !meta.stale && !meta.won && !is_manifest)
}

impl Partitioned for BulkReadWithTtls {
    type Entry<'a> = WireKey<'a>;

    fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    fn request<'a>(&'a self, _: usize, keys: &'a [WireKey<'a>]) -> Request<'a> {
        Request::GetWithTtls { keys }
    }
}

impl Client {
    /// Counts a fetch as the read that it is: of one key, or of many.
    pub fn count_fetch(
        &self,
        keys: &[WireKey<'_>],
        fetched: &FetchedItems,
        budget: &Budget<'_>,
        decoding_time: Duration,
    ) {
        let (key, class) = match keys {
            &[key] => (Some(key), CallClass::Single(OperationKind::Read, 0)),
            keys => (None, CallClass::Bulk(keys.len(), 0)),
        };
        let summary = RequestSummary {
            key,
            class,
            found_bytes: fetched.value_bytes(),
            has_value: fetched.has_value(),
            spent: budget.spent,
        };
        self.count_read(summary, budget, decoding_time);
    }

    /// Counts the keys of a read that were served by the process itself.
    pub fn count_near_hits(&self, read: &NearRead) {
        let (hit_count, value_bytes) = read.hit_count_and_bytes();
        if hit_count > 0 && self.options().costs {
            self.costs().count_near(hit_count, value_bytes);
        }
    }

    /// Counts a value that was served by the process itself.
    pub fn count_near_hit(&self, value_bytes: usize) {
        if self.options().costs {
            self.costs().count_near(1, value_bytes);
        }
    }
}

impl Budget<'_> {
    /// What a call that fetches for a read may spend; the read's own costs are counted with its own keys.
    pub(crate) fn for_fetch(&self, fetch: &Fetch) -> Self {
        let deadline = fetch.deadline(self.deadline);
        match fetch.reason() {
            FetchReason::Items => *self,
            FetchReason::Load | FetchReason::Page => {
                Self { started: fetch.started_at(), deadline, ..self.for_next_request() }
            }
        }
    }
}
