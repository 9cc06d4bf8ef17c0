//! Bulk removals: one reply for each key. Deleting a key that does not exist is not a failure.

use glasscache_protocol::meta::request::WireKey;

use super::partition::{Partition, Partitioned, partition_keys};
use super::requests::BulkReply;
use crate::client::Client;
use crate::engine::interpret::write_outcome_of_reply;
use crate::error::Error;
use crate::request::Request;

/// A bulk removal, partitioned by server.
#[derive(Debug)]
pub struct BulkDelete {
    partitions: Vec<Partition>,
}

impl BulkDelete {
    /// Partitions wire keys, which have their namespace.
    pub fn new(client: &Client, keys: &[WireKey<'_>]) -> Self {
        Self { partitions: partition_keys(client, keys) }
    }

    /// The index of the key that was not removed and why, if a reply is a failure.
    pub fn failure(&self, reply: BulkReply<'_>) -> Option<(usize, Error)> {
        let index = *self.partitions.get(reply.request_index)?.indices.get(reply.reply_index)?;
        Some((index, write_outcome_of_reply(reply.parsed, reply.server).err()?))
    }
}

impl Partitioned for BulkDelete {
    type Entry<'a> = WireKey<'a>;

    fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    fn request<'a>(&'a self, _: usize, keys: &'a [WireKey<'a>]) -> Request<'a> {
        Request::DeleteMany { keys }
    }
}
