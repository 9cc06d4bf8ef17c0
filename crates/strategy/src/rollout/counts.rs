//! Counts of the requests of one group: sums, the distribution of their added time, and blocks of neighbouring
//! requests.
//!
//! Requests that follow one another resemble each other, so an interval must not take them for independent. Blocks of
//! neighbouring requests show how much more the metrics vary than chance explains. Their number is bounded: when it is
//! reached, each block is joined with the next one.

use std::collections::BTreeMap;
use std::time::Duration;

/// Blocks of one group at most; with half of them an interval is still narrow.
const BLOCKS_MAX: usize = 64;

/// Requests of a full block, until blocks are joined.
const FIRST_BLOCK_REQUESTS: u64 = 16;

/// 2 to this power is the number of buckets for each factor of two of the added time: a time differs from the middle of
/// its bucket by 0.8 % at most.
const BUCKET_BITS: u32 = 6;

/// The cost of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCost {
    /// Calls to the servers.
    pub calls: u32,
    /// Keys of these calls.
    pub keys: u32,
    /// Bytes of the values that they brought.
    pub bytes: u64,
    /// Time that its reads waited for them, in nanoseconds.
    pub added_ns: u64,
    /// Time in which its values were decoded, in nanoseconds.
    pub decode_ns: u64,
    /// Whether a key could not be read: then the request counts only as failed, for an outage is not an effect of a
    /// strategy.
    pub has_failed: bool,
}

impl RequestCost {
    /// Adds a time that the request waited for its calls.
    pub fn add_wait(&mut self, time: Duration) {
        self.added_ns = self.added_ns.saturating_add(time.as_nanos() as u64);
    }
}

/// Sums over requests: over neighbouring ones, over one alone, or over all of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// How many requests.
    pub requests: u64,
    /// Their calls.
    pub calls: u64,
    /// Their keys.
    pub keys: u64,
    /// Their added time in nanoseconds.
    pub added_ns: u64,
    /// The time in which their values were decoded, in nanoseconds.
    pub decode_ns: u64,
}

impl Block {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.calls += other.calls;
        self.keys += other.keys;
        self.added_ns += other.added_ns;
        self.decode_ns += other.decode_ns;
    }
}

/// The counts of the requests of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Sums over all requests that did not fail.
    pub sum: Block,
    /// Bytes of the values that their calls brought.
    pub bytes: u64,
    /// Requests that failed, which are counted nowhere else.
    pub failed_requests: u64,
    /// How many requests had an added time of each bucket.
    requests_by_bucket: BTreeMap<u32, u64>,
    blocks: Vec<Block>,
    /// Requests of a full block.
    block_requests: u64,
}

impl GroupCounts {
    /// Counts from what a document has: sums, the middle of each bucket in nanoseconds with its count, and the blocks.
    pub fn from_parts(
        (sum, bytes, failed_requests): (Block, u64, u64),
        added_ns_counts: impl IntoIterator<Item = (u64, u64)>,
        blocks: Vec<Block>,
    ) -> Self {
        let mut requests_by_bucket = BTreeMap::new();
        for (added_ns, count) in added_ns_counts {
            *requests_by_bucket.entry(bucket_of(added_ns)).or_default() += count;
        }
        Self { sum, bytes, failed_requests, requests_by_bucket, blocks, block_requests: 0 }
    }

    /// Adds a request.
    pub fn add(&mut self, cost: &RequestCost) {
        if cost.has_failed {
            self.failed_requests += 1;
            return;
        }
        let request = Block {
            requests: 1,
            calls: cost.calls.into(),
            keys: cost.keys.into(),
            added_ns: cost.added_ns,
            decode_ns: cost.decode_ns,
        };
        self.sum.add(request);
        self.bytes += cost.bytes;
        *self.requests_by_bucket.entry(bucket_of(cost.added_ns)).or_default() += 1;
        self.add_to_block(request);
    }

    fn add_to_block(&mut self, request: Block) {
        let block_requests = self.block_requests.max(FIRST_BLOCK_REQUESTS);
        if let Some(last_block) =
            self.blocks.last_mut().filter(|block| block.requests < block_requests)
        {
            last_block.add(request);
            return;
        }
        if self.blocks.len() == BLOCKS_MAX {
            let joined_pairs = self.blocks.chunks(2).map(|pair| {
                pair.iter().fold(Block::default(), |mut sum, block| {
                    sum.add(*block);
                    sum
                })
            });
            self.blocks = joined_pairs.collect();
            self.block_requests = block_requests * 2;
        }
        self.blocks.push(request);
    }

    /// Adds the requests of another process.
    pub fn merge(&mut self, other: &Self) {
        self.sum.add(other.sum);
        self.bytes += other.bytes;
        self.failed_requests += other.failed_requests;
        for (bucket, count) in &other.requests_by_bucket {
            *self.requests_by_bucket.entry(*bucket).or_default() += count;
        }
        self.blocks.extend_from_slice(&other.blocks);
    }

    /// The blocks, in the order of the requests.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The added time of each bucket that has any, in nanoseconds, ascending, with the number of its requests.
    pub fn added_ns_counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.requests_by_bucket.iter().map(|(bucket, count)| (bucket_middle(*bucket), *count))
    }
}

/// The bucket of a time: exact below 2^[`BUCKET_BITS`], from there on the first bits of the number.
fn bucket_of(ns: u64) -> u32 {
    let bits = u64::BITS - ns.leading_zeros();
    let shift = bits.saturating_sub(BUCKET_BITS + 1);
    (shift << BUCKET_BITS) + (ns >> shift) as u32
}

/// The middle of a bucket.
fn bucket_middle(bucket: u32) -> u64 {
    let shift = (bucket >> BUCKET_BITS).saturating_sub(1);
    let lowest_ns = u64::from(bucket - (shift << BUCKET_BITS)) << shift;
    lowest_ns + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(calls: u32, added_ns: u64) -> RequestCost {
        let decode_ns = added_ns / 2;
        RequestCost { calls, keys: 2 * calls, bytes: 100, added_ns, decode_ns, has_failed: false }
    }

    #[test]
    fn a_time_differs_from_the_middle_of_its_bucket_by_at_most_a_percent() {
        for ns in (0..200).chain((200..4_000_000_000).step_by(7_654_321)) {
            let middle = bucket_middle(bucket_of(ns));
            assert!(middle.abs_diff(ns) * 100 <= ns, "{ns}: {middle}");
            assert_eq!(bucket_of(middle), bucket_of(ns));
        }
        assert!(bucket_of(u64::MAX) > bucket_of(u64::MAX / 2));
    }

    #[test]
    fn blocks_are_bounded_and_hold_every_request() {
        let mut counts = GroupCounts::default();
        for number in 0..10_000 {
            counts.add(&cost(number % 5, 1000));
        }
        assert!(counts.blocks().len() <= BLOCKS_MAX);
        assert!(counts.blocks().len() >= BLOCKS_MAX / 2);
        let requests: u64 = counts.blocks().iter().map(|block| block.requests).sum();
        let calls: u64 = counts.blocks().iter().map(|block| block.calls).sum();
        assert_eq!((requests, calls), (10_000, counts.sum.calls));
        let full_blocks = &counts.blocks()[..counts.blocks().len() - 1];
        assert!(full_blocks.iter().all(|block| block.requests == full_blocks[0].requests));
    }

    #[test]
    fn a_failed_request_is_counted_only_as_failed() {
        let mut counts = GroupCounts::default();
        counts.add(&RequestCost { has_failed: true, ..cost(7, 1) });
        let expected = GroupCounts { failed_requests: 1, ..GroupCounts::default() };
        assert_eq!(counts, expected);
    }

    #[test]
    fn counts_of_two_processes_are_those_of_all_their_requests() {
        let (mut all, mut merged, mut other): (GroupCounts, GroupCounts, GroupCounts) =
            Default::default();
        for number in 0..100 {
            let request_cost = cost(number, u64::from(number) * 1000);
            all.add(&request_cost);
            let process_counts = if number < 48 { &mut merged } else { &mut other };
            process_counts.add(&request_cost);
        }
        merged.merge(&other);
        assert_eq!(merged.sum, all.sum);
        assert!(merged.added_ns_counts().eq(all.added_ns_counts()));
        let rebuilt = GroupCounts::from_parts(
            (all.sum, all.bytes, 0),
            all.added_ns_counts(),
            all.blocks().to_vec(),
        );
        assert_eq!(rebuilt.requests_by_bucket, all.requests_by_bucket);
        assert_eq!(rebuilt.blocks, all.blocks);
    }
}
