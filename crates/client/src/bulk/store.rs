//! Bulk writes: quiet sets closed by one `mn`, so that a batch is one round trip and each failure
//! has its key; from what knows no meta, one reply a value.

use std::collections::VecDeque;

use glasscache_protocol::text::request::StoreMode;

use super::Failures;
use super::partition::{Partition, Partitioned, add};
use super::requests::{BulkReply, BulkResult};
use crate::client::Client;
use crate::engine::operation::{Store, stored};
use crate::engine::{Indices, Items, StoreManySteps};
use crate::error::Error;
use crate::outcome::{Outcome, of_code};
use crate::pipeline::Reply;
use crate::request::{Item, Request};

/// Bytes of values that go to one server in one batch; the rest follows after the reply.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A bulk write, partitioned by server.
#[derive(Debug)]
pub struct BulkStore {
    partitions: Vec<Partition>,
    mode: StoreMode,
    exptime: i64,
    /// Values that are not sent at all, for they are longer than this client sends.
    refused: Failures,
    bytes: u64,
}

/// The failures in the replies so far.
#[derive(Debug, Default)]
pub struct Stored {
    failed: VecDeque<(Indices, Error)>,
    /// Partitions in which a value was refused without being named.
    unnamed: Vec<usize>,
}

impl BulkStore {
    /// Partitions items.
    pub fn new(client: &Client, mode: StoreMode, items: &[Item<'_>], exptime: i64) -> Self {
        let limit = client.options().value_bytes_max;
        let mut stores = Self {
            partitions: Vec::new(),
            mode,
            exptime,
            refused: Vec::new(),
            bytes: 0,
        };
        for (index, item) in items.iter().enumerate() {
            let bytes = item.body.len();
            stores.bytes += bytes as u64;
            if let Some(error) = Store::new(mode, *item, exptime, false).refusal(limit) {
                stores.refused.push((index, error));
                continue;
            }
            let slot = client.slot_of(item.key.bytes);
            add(&mut stores.partitions, index, slot, bytes, BATCH_BYTES_MAX);
        }
        stores
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes the failures in a reply: one for all from a server with quiet sets, else one a value.
    pub fn take(&self, reply: BulkReply<'_>, items: &impl Items, store_failures: &mut Stored) {
        let Some(partition) = self.partitions.get(reply.request) else {
            return;
        };
        let Stored { failed, unnamed } = store_failures;
        let mut add_failure = |nth: usize, error: Error| {
            if let Some(&index) = partition.indices.get(nth) {
                failed.push_back(((index, partition.slot), error));
            }
        };
        let not_stored = |outcome| Error::NotStored {
            server: reply.server.to_owned(),
            outcome,
        };
        match reply.parsed {
            Reply::Quiet(failed_replies, refusals) => {
                for (nth, code) in failed_replies {
                    add_failure(nth, not_stored(of_code(code).unwrap_or(Outcome::NotStored)));
                }
                if !refusals.is_empty() {
                    unnamed.push(reply.request);
                }
            }
            parsed => {
                let index = partition.indices.get(reply.nth);
                let Some(item) = index.and_then(|&index| items.item(index)) else {
                    return;
                };
                match stored(parsed, item.key, item.body.len(), reply.server) {
                    Ok(Outcome::Done) => {}
                    Ok(outcome) => add_failure(reply.nth, not_stored(outcome)),
                    Err(error) => add_failure(reply.nth, error),
                }
            }
        }
    }

    /// The steps that remain after the reply to every batch.
    pub fn rest<I: Items>(
        &self,
        items: I,
        results: &[BulkResult],
        stored: Stored,
    ) -> StoreManySteps<I> {
        let mut failed = stored.failed;
        let mut to_retry = VecDeque::new();
        for (partition_index, (partition, bulk_result)) in
            self.partitions.iter().zip(results).enumerate()
        {
            // A value without a form in its server's command set keeps the others of its batch from being sent.
            let is_unsupported = matches!(bulk_result.error, Some(Error::Unsupported { .. }));
            if is_unsupported || stored.unnamed.contains(&partition_index) {
                to_retry.extend(
                    partition
                        .indices
                        .iter()
                        .map(|&index| (index, partition.slot)),
                );
                failed.retain(|((index, _), _)| !partition.indices.contains(index));
            } else {
                let unanswered = bulk_result.unanswered(&partition.indices);
                failed.extend(unanswered.map(|(index, error)| ((index, partition.slot), error)));
            }
        }
        // Their limit is this client's own: no server is queried for it.
        let refused = self.refused.iter().cloned();
        failed.extend(refused.map(|(index, error)| ((index, 0), error)));
        StoreManySteps::new(items, (self.mode, self.exptime), to_retry, failed)
    }
}

impl Partitioned for BulkStore {
    type Entry<'a> = Item<'a>;

    fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    fn request<'a>(&'a self, _: usize, items: &'a [Item<'a>]) -> Request<'a> {
        Request::StoreMany {
            mode: self.mode,
            items,
            exptime: self.exptime,
            quiet: true,
        }
    }
}
