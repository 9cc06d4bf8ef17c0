//! Bulk reads: one text `get` line a server, and a request of its own for each key that is sent as base64.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Failures;
use super::partition::{Partition, Partitioned, add_to_partition};
use super::requests::{BulkReply, CallWithError};
use crate::client::{Budget, Client};
use crate::engine::interpret::refusal_to_error;
use crate::engine::uncertain::OwnedKey;
use crate::error::Error;
use crate::pipeline::FoundValue;
use crate::request::Request;

/// Keys in one `get` line: memcached's own limit of a line is far above, a proxy's may not be.
const LINE_KEYS_MAX: usize = 10_000;

/// A bulk read, partitioned by server.
#[derive(Debug)]
pub struct BulkRead {
    partitions: Vec<Partition>,
    /// Keys that are sent as base64, by the index of their partition.
    base64_keys: BTreeMap<usize, OwnedKey>,
    namespace: Vec<u8>,
    cas: bool,
}

/// Bytes of the values that a bulk read has received, and how long decoding them took.
#[derive(Debug, Default)]
pub(crate) struct ReadTotals {
    pub(crate) value_bytes: u64,
    pub(crate) decoding_time: Duration,
}

impl BulkRead {
    /// Partitions keys without their namespace; `cas` requests their CAS uniques.
    pub fn new(client: &Client, keys: &[&[u8]], cas: bool) -> Result<Self, Error> {
        let (encoder, only_slot) = (client.keys(), client.only_slot());
        let mut bulk_read = Self {
            partitions: Vec::new(),
            base64_keys: BTreeMap::new(),
            namespace: encoder.namespace.to_vec(),
            cas,
        };
        let mut scratch = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let wire_key = encoder.wire_key(key, &mut scratch)?;
            let slot = only_slot.unwrap_or_else(|| client.slot_of(wire_key.bytes));
            if wire_key.is_base64 {
                bulk_read.base64_keys.insert(bulk_read.partitions.len(), wire_key.into());
                bulk_read.partitions.push(Partition::of_single_key(slot, index));
            } else {
                add_to_partition(&mut bulk_read.partitions, index, slot, 1, LINE_KEYS_MAX);
            }
        }
        Ok(bulk_read)
    }

    /// As [`Self::for_each_value`]; also adds the bytes, and the time that `handle_value` takes, to `totals`.
    pub(crate) fn add_reply(
        &self,
        reply: BulkReply<'_>,
        totals: &mut ReadTotals,
        handle_value: impl FnMut(usize, &FoundValue, &[u8]),
    ) -> Result<(), Error> {
        let began_at = Instant::now();
        totals.value_bytes += self.for_each_value(reply, handle_value)?;
        totals.decoding_time += began_at.elapsed();
        Ok(())
    }

    /// Passes the values of a reply with the indices of their keys to `handle_value`; returns how many bytes they have.
    pub fn for_each_value(
        &self,
        reply: BulkReply<'_>,
        mut handle_value: impl FnMut(usize, &FoundValue, &[u8]),
    ) -> Result<u64, Error> {
        let pipeline = reply.pipeline;
        refusal_to_error(reply.parsed, reply.server)?;
        let partition = self.partitions.get(reply.request_index).ok_or(Error::Closed)?;
        let mut value_bytes = 0;
        for found in pipeline.found_values() {
            value_bytes += found.value_bytes as u64;
            if let Some(&index) = partition.indices.get(found.key_index) {
                handle_value(index, found, pipeline.body(found));
            }
        }
        Ok(value_bytes)
    }
}

impl Partitioned for BulkRead {
    type Entry<'a> = &'a [u8];

    fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    fn request<'a>(&'a self, partition_index: usize, keys: &'a [&'a [u8]]) -> Request<'a> {
        let (prefix, cas) = (&self.namespace, self.cas);
        match self.base64_keys.get(&partition_index) {
            Some(key) => Request::Get { key: key.wire_key(), cas },
            None => Request::GetMany { prefix, keys, cas },
        }
    }
}

impl Client {
    /// Reads many keys, without their namespace, from all their servers at once.
    ///
    /// `receive` drives the calls with [`receive_first_replies`](crate::call::receive_first_replies) and waits in
    /// its own way; `handle_value` then gets each value with the index of its key, its CAS unique only if `cas`.
    /// Returns the keys without a reply, and why.
    pub fn read_many(
        &self,
        keys: &[&[u8]],
        cas: bool,
        budget: &Budget<'_>,
        mut receive: impl FnMut(&mut [CallWithError<'_>]) -> Result<(), Error>,
        mut handle_value: impl FnMut(usize, &FoundValue, &[u8]),
    ) -> Result<Failures, Error> {
        let recorded_call = budget.begin_read(keys.iter().map(|key| Cow::Borrowed(*key)));
        let bulk_read = BulkRead::new(self, keys, cas)?;
        let entries_by_partition = bulk_read.entries_by_partition(keys);
        let mut totals = ReadTotals::default();
        let requests = bulk_read.requests(&entries_by_partition);
        let results = self.request_many_with(&requests, budget, &mut receive, &mut |reply| {
            bulk_read.add_reply(reply, &mut totals, |index, found, body| {
                recorded_call.set_size(index, body.len());
                handle_value(index, found, body);
            })
        })?;
        self.count_bulk(keys.len(), totals.value_bytes, budget, totals.decoding_time);
        Ok(bulk_read.failures_without_reply(&results))
    }
}
