//! Bulk reads of a client that runs a strategy: each value with its remaining TTL, which bounds how long it is kept.

use std::time::Duration;

use glasscache_protocol::meta::request::WireKey;

use super::partition::{Partition, Partitioned, add};
use super::requests::BulkReply;
use crate::client::{Budget, Client};
use crate::costs::{Class, Operation};
use crate::engine::interpret::refused;
use crate::error::Error;
use crate::near::{Fetch, Fetched, FetchedBy, NearRead, NearValue};
use crate::observe::RequestSummary;
use crate::pipeline::{FoundValue, MetaReply, Pipeline, Reply};
use crate::request::Request;
use crate::value::MANIFEST_FLAGS;

/// Keys in one request: replies of so many keys are received while the next ones are sent.
const KEYS_MAX: usize = 10_000;

/// A bulk read of wire keys, partitioned by server.
#[derive(Debug)]
pub struct Fetches(Vec<Partition>);

impl Fetches {
    /// Partitions keys.
    pub fn new(client: &Client, keys: &[WireKey<'_>]) -> Self {
        client.watch_servers();
        let mut partitions = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let slot = client.slot_of(key.bytes);
            add(&mut partitions, index, slot, 1, KEYS_MAX);
        }
        Self(partitions)
    }

    /// Takes a reply: one for each key, or from a server that knows no meta commands one for all.
    pub fn take(&self, reply: BulkReply<'_>, fetched: &mut Fetched) -> Result<(), Error> {
        let pipeline = reply.pipeline;
        let partition = self.0.get(reply.request).ok_or(Error::Closed)?;
        if let Reply::Meta(meta) = refused(reply.parsed, reply.server)? {
            if let Some(&index) = partition.indices.get(reply.nth) {
                let found = pipeline.found_values().first();
                let value = found.map(|found| value_of(pipeline, found));
                fetched.note(index, value, kept_ttl(&meta, found));
            }
            return Ok(());
        }
        for &index in &partition.indices {
            fetched.note(index, None, None);
        }
        for found in pipeline.found_values() {
            if let Some(&index) = partition.indices.get(found.key_index) {
                fetched.note(index, Some(value_of(pipeline, found)), None);
            }
        }
        Ok(())
    }
}

fn value_of(pipeline: &Pipeline, found: &FoundValue) -> NearValue {
    NearValue {
        flags: found.flags,
        bytes: pipeline.body(found).into(),
    }
}

/// The remaining TTL of a value that may be kept: one that is stale on the server is about to be replaced, and a manifest
/// would outlive the pieces that it names.
fn kept_ttl(meta: &MetaReply, found: Option<&FoundValue>) -> Option<i64> {
    let is_manifest = found.is_some_and(|found| found.flags == MANIFEST_FLAGS);
    meta.ttl_s
        .filter(|_| !meta.stale && !meta.won && !is_manifest)
}

impl Partitioned for Fetches {
    type Entry<'a> = WireKey<'a>;

    fn partitions(&self) -> &[Partition] {
        &self.0
    }

    fn request<'a>(&'a self, _: usize, keys: &'a [WireKey<'a>]) -> Request<'a> {
        Request::Fetch { keys }
    }
}

impl Client {
    /// Counts a fetch as the read that it is: of one key, or of many.
    pub fn count_fetch(
        &self,
        keys: &[WireKey<'_>],
        fetched: &Fetched,
        budget: &Budget<'_>,
        reading: Duration,
    ) {
        let (key, class) = match keys {
            &[key] => (Some(key), Class::Single(Operation::Read, 0)),
            keys => (None, Class::Bulk(keys.len(), 0)),
        };
        let call = RequestSummary {
            key,
            class,
            found_bytes: fetched.bytes(),
            has_value: fetched.has_value(),
            spent: budget.spent,
        };
        self.count_read(call, budget, reading);
    }

    /// Counts the keys of a read that the process had.
    pub fn count_near_hits(&self, read: &NearRead) {
        let (keys, bytes) = read.hits();
        if keys > 0 && self.options().costs {
            self.costs().count_near(keys, bytes);
        }
    }

    /// Counts a value that the process had.
    pub fn count_near_hit(&self, bytes: usize) {
        if self.options().costs {
            self.costs().count_near(1, bytes);
        }
    }
}

impl Budget<'_> {
    /// What a call that fetches for a read may spend; the read's own costs are counted with its own keys.
    pub(crate) fn of_fetch(&self, fetch: &Fetch) -> Self {
        let deadline = fetch.deadline(self.deadline);
        match fetch.fetched_by() {
            FetchedBy::Items => *self,
            FetchedBy::Load | FetchedBy::Page => Self {
                started: fetch.started_at(),
                deadline,
                ..self.of_next_request()
            },
        }
    }
}
