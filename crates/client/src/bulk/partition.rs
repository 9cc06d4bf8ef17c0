//! The partitions of a bulk call: each goes to one server in one request.

use glasscache_protocol::meta::request::WireKey;

use super::Failures;
use super::requests::ServerRequest;
use crate::client::Client;
use crate::engine::BulkResult;
use crate::request::Request;

/// Keys of a partition whose keys have a request each: their replies are received while later requests are sent.
const PARTITION_KEYS_MAX: usize = 10_000;

/// Keys or items of a bulk call that go to one server in one request.
#[derive(Debug)]
pub struct Partition {
    /// The server's slot.
    pub slot: usize,
    /// Indices of its keys or items in the call.
    pub indices: Vec<usize>,
    /// The number of its keys, or the bytes of its values: what its maximum limits.
    weight: usize,
}

impl Partition {
    /// A partition of one key that takes no more.
    pub(super) fn of_single_key(slot: usize, index: usize) -> Self {
        Self { slot, indices: vec![index], weight: usize::MAX }
    }
}

/// A call about many keys or items, partitioned by server.
pub trait Partitioned {
    /// What a request is made of: keys, or items.
    type Entry<'a>: Copy;

    /// The partitions, each of which is a request.
    fn partitions(&self) -> &[Partition];

    /// The request of a partition, by its entries.
    fn request<'a>(&'a self, partition_index: usize, entries: &'a [Self::Entry<'a>])
    -> Request<'a>;

    /// The requests of all partitions, each with the slot of its server.
    fn requests<'a>(
        &'a self,
        entries_by_partition: &'a [Vec<Self::Entry<'a>>],
    ) -> Vec<ServerRequest<'a>> {
        let partitions = self.partitions().iter().zip(entries_by_partition).enumerate();
        partitions
            .map(|(partition_index, (partition, entries))| {
                (partition.slot, [self.request(partition_index, entries)])
            })
            .collect()
    }

    /// The entries of one partition, given the entry at each index of the call.
    fn entries_of<E>(
        &self,
        partition_index: usize,
        entry_at: impl Fn(usize) -> Option<E>,
    ) -> Vec<E> {
        let partition = self.partitions().get(partition_index);
        let indices = partition.into_iter().flat_map(|partition| &partition.indices);
        indices.filter_map(|&index| entry_at(index)).collect()
    }

    /// The entries of each partition.
    fn entries_by_partition<'a>(
        &self,
        call_entries: &[Self::Entry<'a>],
    ) -> Vec<Vec<Self::Entry<'a>>> {
        let entries_of_partition = |partition: &Partition| {
            if partition.indices.len() == call_entries.len() {
                return call_entries.to_vec();
            }
            let mut entries = Vec::with_capacity(partition.indices.len());
            entries.extend(partition.indices.iter().filter_map(|&index| call_entries.get(index)));
            entries
        };
        self.partitions().iter().map(entries_of_partition).collect()
    }

    /// The slots of the partitions.
    fn slots(&self) -> impl Iterator<Item = usize> {
        self.partitions().iter().map(|partition| partition.slot)
    }

    /// The entries without a reply, and why.
    fn failures_without_reply(&self, results: &[BulkResult]) -> Failures {
        let partitions_and_results = self.partitions().iter().zip(results);
        partitions_and_results
            .flat_map(|(partition, bulk_result)| {
                bulk_result.failures_without_reply(&partition.indices)
            })
            .collect()
    }
}

/// Partitions wire keys, which have their namespace.
pub(super) fn partition_keys(client: &Client, keys: &[WireKey<'_>]) -> Vec<Partition> {
    let mut partitions = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let slot = client.slot_of(key.bytes);
        add_to_partition(&mut partitions, index, slot, 1, PARTITION_KEYS_MAX);
    }
    partitions
}

/// Adds an entry to a partition of its slot, or to a new one if that would weigh more than `weight_max`.
pub(super) fn add_to_partition(
    partitions: &mut Vec<Partition>,
    index: usize,
    slot: usize,
    weight: usize,
    weight_max: usize,
) {
    let mut partitions_of_slot =
        partitions.iter_mut().rev().filter(|partition| partition.slot == slot);
    match partitions_of_slot.find(|partition| partition.weight.saturating_add(weight) <= weight_max)
    {
        Some(partition) => {
            partition.indices.push(index);
            partition.weight += weight;
        }
        None => partitions.push(Partition { slot, indices: vec![index], weight }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_entries_of_one_server_up_to_the_maximum_weight() {
        let mut partitions = Vec::new();
        for (index, weight) in [3, 3, 3, 9, 1].into_iter().enumerate() {
            add_to_partition(&mut partitions, index, usize::from(weight == 1), weight, 6);
        }
        let slots_and_indices: Vec<_> = partitions
            .iter()
            .map(|partition| (partition.slot, partition.indices.clone()))
            .collect();
        assert_eq!(slots_and_indices, [(0, vec![0, 1]), (0, vec![2]), (0, vec![3]), (1, vec![4])]);
    }
}
