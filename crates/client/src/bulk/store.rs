//! Bulk writes: quiet sets closed by one `mn`, so that a partition is one round trip and each failure
//! has its key. A server without meta commands sends one reply for each value, and so does any for an append or an add.

use std::collections::VecDeque;

use glasscache_protocol::text::request::StoreMode;

use super::Failures;
use super::partition::{Partition, Partitioned, add_to_partition};
use super::requests::BulkReply;
use crate::client::Client;
use crate::engine::operation::{Store, store_outcome};
use crate::engine::{BulkResult, IndexAndSlot, Items, StoreManySteps};
use crate::error::Error;
use crate::pipeline::Reply;
use crate::request::{Item, Request};
use crate::write_outcome::{WriteOutcome, write_outcome_of_code};

/// Bytes of values that go to one server in one request; the rest follows after the reply.
const PARTITION_BYTES_MAX: usize = 1 << 20;

/// A bulk write, partitioned by server.
#[derive(Debug)]
pub struct BulkStore {
    partitions: Vec<Partition>,
    mode: StoreMode,
    exptime: i64,
    /// The failures of values that are not sent at all, because they are longer than this client sends.
    too_long_failures: Failures,
    value_bytes: u64,
}

/// The failures in the replies so far.
#[derive(Debug, Default)]
pub struct StoreFailures {
    failed_items: VecDeque<(IndexAndSlot, Error)>,
    /// Partitions in which a value was refused without being named.
    partitions_with_unnamed_refusals: Vec<usize>,
}

impl BulkStore {
    /// Partitions items.
    pub fn new(client: &Client, mode: StoreMode, items: &[Item<'_>], exptime: i64) -> Self {
        let limit_bytes = client.options().value_bytes_max;
        let mut bulk_store = Self {
            partitions: Vec::new(),
            mode,
            exptime,
            too_long_failures: Vec::new(),
            value_bytes: 0,
        };
        for (index, item) in items.iter().enumerate() {
            let body_bytes = item.body.len();
            bulk_store.value_bytes += body_bytes as u64;
            if let Some(error) = Store::new(mode, *item, exptime, false).refusal(limit_bytes) {
                bulk_store.too_long_failures.push((index, error));
                continue;
            }
            let slot = client.slot_of(item.key.bytes);
            add_to_partition(
                &mut bulk_store.partitions,
                index,
                slot,
                body_bytes,
                PARTITION_BYTES_MAX,
            );
        }
        bulk_store
    }

    /// Whether values may be stored again after a refusal that does not name its value. Others are not written quietly,
    /// so that each has a reply: a second append would append twice, and a second add would find the first's value.
    fn is_repeatable(&self) -> bool {
        matches!(self.mode, StoreMode::Set | StoreMode::Replace)
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.value_bytes
    }

    /// Adds the failures in a reply: one for all from a server with quiet sets, else one a value.
    pub fn add_reply(
        &self,
        reply: BulkReply<'_>,
        items: &impl Items,
        store_failures: &mut StoreFailures,
    ) {
        let Some(partition) = self.partitions.get(reply.request_index) else {
            return;
        };
        let StoreFailures { failed_items, partitions_with_unnamed_refusals } = store_failures;
        let mut add_failure = |reply_index: usize, error: Error| {
            if let Some(&index) = partition.indices.get(reply_index) {
                failed_items.push_back(((index, partition.slot), error));
            }
        };
        let not_stored_error =
            |outcome| Error::NotStored { server: reply.server.to_owned(), outcome };
        match reply.parsed {
            Reply::Quiet(failed_replies, refusals) => {
                for (reply_index, code) in failed_replies {
                    add_failure(
                        reply_index,
                        not_stored_error(
                            write_outcome_of_code(code).unwrap_or(WriteOutcome::NotStored),
                        ),
                    );
                }
                if !refusals.is_empty() {
                    partitions_with_unnamed_refusals.push(reply.request_index);
                }
            }
            parsed => {
                let index = partition.indices.get(reply.reply_index);
                let Some(item) = index.and_then(|&index| items.item(index)) else {
                    return;
                };
                match store_outcome(parsed, item.key, item.body.len(), reply.server) {
                    Ok(WriteOutcome::Done) => {}
                    Ok(outcome) => add_failure(reply.reply_index, not_stored_error(outcome)),
                    Err(error) => add_failure(reply.reply_index, error),
                }
            }
        }
    }

    /// The steps that remain after the reply to every request.
    pub fn remaining_steps<I: Items>(
        &self,
        items: I,
        results: &[BulkResult],
        store_failures: StoreFailures,
    ) -> StoreManySteps<I> {
        let mut failed_items = store_failures.failed_items;
        let mut items_to_retry = VecDeque::new();
        for (partition_index, (partition, bulk_result)) in
            self.partitions.iter().zip(results).enumerate()
        {
            // A value without a form in its server's command set keeps the others of its partition from being sent.
            let is_unsupported = matches!(bulk_result.error, Some(Error::Unsupported { .. }));
            if is_unsupported
                || store_failures.partitions_with_unnamed_refusals.contains(&partition_index)
            {
                items_to_retry
                    .extend(partition.indices.iter().map(|&index| (index, partition.slot)));
                failed_items.retain(|((index, _), _)| !partition.indices.contains(index));
            } else {
                let without_reply = bulk_result.failures_without_reply(&partition.indices);
                failed_items
                    .extend(without_reply.map(|(index, error)| ((index, partition.slot), error)));
            }
        }
        // This client's own limit refused them: slot 0 stands for no server.
        let too_long_failures = self.too_long_failures.iter().cloned();
        failed_items.extend(too_long_failures.map(|(index, error)| ((index, 0), error)));
        StoreManySteps::new(items, (self.mode, self.exptime), items_to_retry, failed_items)
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
            quiet: self.is_repeatable(),
        }
    }
}
