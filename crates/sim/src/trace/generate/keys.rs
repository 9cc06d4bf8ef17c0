//! Key streams drawn from a Zipf distribution, and from the published figures of Twitter's cache clusters.
//!
//! Every stream is a function of its settings and a seed. Keys are hashes of ranks, so neither their order nor their
//! bits reveal their frequency; each key has one size and one TTL, drawn from its hash.

use super::super::{BATCH_ROWS, Batch, Op};
use super::zipf::Zipf;
use crate::random::{Random, mix};

/// The first rank of keys that are used only once, above all ranks that are drawn.
const ONE_HIT_RANK_MIN: u64 = 1 << 48;

/// Spread of sizes, as the standard deviation of their logarithm: between the 0.5 and 1.5 of measured caches.
const SIZE_SIGMA: f64 = 1.0;

/// Parameters of a generated key stream.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyWorkload {
    /// Requests in all.
    pub requests: u64,
    /// Keys that are drawn by rank.
    pub keys: u64,
    /// Exponent of the Zipf distribution over the ranks; 0 draws all equally often.
    pub skew: f64,
    /// Share of the requests that go to keys never used again.
    pub one_hit_share: f64,
    /// Mean bytes of a value, 0 for no sizes.
    pub size_mean: f64,
    /// Share of requests that read; the rest write.
    pub read_share: f64,
    /// Requests a second, which the times follow.
    pub rate: f64,
    /// Seconds to live with the share of keys that have them; empty for no column.
    pub ttls: Vec<(u32, f64)>,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for KeyWorkload {
    /// A million reads of 100,000 keys, Zipf 1.0, without sizes.
    fn default() -> Self {
        Self {
            requests: 1_000_000,
            keys: 100_000,
            skew: 1.0,
            one_hit_share: 0.0,
            size_mean: 0.0,
            read_share: 1.0,
            rate: 100_000.0,
            ttls: Vec::new(),
            seed: 1,
        }
    }
}

/// The requests of a workload, batch by batch.
#[derive(Debug, Clone)]
pub struct KeyGenerator {
    workload: KeyWorkload,
    zipf: Zipf,
    random: Random,
    generated_requests: u64,
}

impl KeyWorkload {
    /// Starts drawing.
    pub fn start(self) -> KeyGenerator {
        let zipf = Zipf::new(self.keys.max(1), self.skew);
        KeyGenerator {
            random: Random::new(mix(self.seed)),
            zipf,
            generated_requests: 0,
            workload: self,
        }
    }

    /// Bytes of a key's value: log-normal with the workload's mean.
    fn value_size(&self, key: u64) -> Option<u32> {
        if self.size_mean <= 0.0 {
            return None;
        }
        let log_mean = self.size_mean.ln() - SIZE_SIGMA * SIZE_SIGMA / 2.0;
        let mut random = Random::new(key ^ self.seed);
        // Box and Muller: a normal number from two uniform ones.
        let radius = (-2.0 * (1.0 - random.next_fraction()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * random.next_fraction()).cos();
        Some((log_mean + SIZE_SIGMA * normal).exp().clamp(1.0, f64::from(u32::MAX)) as u32)
    }

    fn key_ttl(&self, key: u64) -> Option<u32> {
        let share_sum: f64 = self.ttls.iter().map(|&(_, share)| share).sum();
        let mut share_left = Random::new(!key).next_fraction() * share_sum;
        let covers = |&&(_, share): &&(u32, f64)| {
            share_left -= share;
            share_left < 0.0
        };
        self.ttls.iter().find(covers).or(self.ttls.last()).map(|&(ttl, _)| ttl)
    }
}

impl KeyGenerator {
    /// Replaces the rows of `batch` by the next ones and returns how many; 0 is the end. Times are microseconds.
    pub fn read(&mut self, batch: &mut Batch) -> usize {
        batch.clear();
        let row_count = (self.workload.requests - self.generated_requests).min(BATCH_ROWS as u64);
        for _ in 0..row_count {
            let key = self.draw_key();
            let is_read = self.random.next_fraction() < self.workload.read_share;
            batch.key.push(key);
            batch.time.push((self.generated_requests as f64 / self.workload.rate * 1e6) as u64);
            batch.size.push(self.workload.value_size(key));
            batch.op.push(Some(if is_read { Op::Get } else { Op::Set }));
            batch.ttl.push(self.workload.key_ttl(key));
            self.generated_requests += 1;
        }
        row_count as usize
    }

    fn draw_key(&mut self) -> u64 {
        let is_one_hit = self.workload.one_hit_share > 0.0
            && self.random.next_fraction() < self.workload.one_hit_share;
        let rank = if is_one_hit {
            ONE_HIT_RANK_MIN + self.generated_requests
        } else {
            self.zipf.draw(&mut self.random)
        };
        mix(rank ^ mix(self.workload.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all_batches(workload: KeyWorkload) -> Batch {
        let (mut generator, mut batch, mut all_rows) =
            (workload.start(), Batch::default(), Batch::default());
        while generator.read(&mut batch) > 0 {
            all_rows.key.extend(&batch.key);
            all_rows.size.extend(&batch.size);
            all_rows.op.extend(&batch.op);
            all_rows.ttl.extend(&batch.ttl);
        }
        all_rows
    }

    #[test]
    fn streams_depend_on_the_seed_only() {
        let workload_with_seed =
            |seed| KeyWorkload { requests: 20_000, seed, ..KeyWorkload::default() };
        assert_eq!(
            read_all_batches(workload_with_seed(1)),
            read_all_batches(workload_with_seed(1))
        );
        assert_ne!(
            read_all_batches(workload_with_seed(1)).key,
            read_all_batches(workload_with_seed(2)).key
        );
    }

    #[test]
    fn sizes_writes_and_ttls_follow_the_parameters() {
        let workload = KeyWorkload {
            requests: 100_000,
            skew: 0.0,
            size_mean: 300.0,
            read_share: 0.9,
            ttls: vec![(60, 0.25), (600, 0.75)],
            ..KeyWorkload::default()
        };
        let all_rows = read_all_batches(workload);
        let row_count = all_rows.key.len() as f64;
        let size_mean =
            all_rows.size.iter().flatten().map(|&size| f64::from(size)).sum::<f64>() / row_count;
        assert!((size_mean - 300.0).abs() < 15.0, "mean {size_mean}");
        let share_of = |count: usize| count as f64 / row_count;
        let write_share = share_of(all_rows.op.iter().filter(|op| **op == Some(Op::Set)).count());
        assert!((write_share - 0.1).abs() < 0.01, "writes {write_share}");
        let short_ttl_share = share_of(all_rows.ttl.iter().filter(|ttl| **ttl == Some(60)).count());
        assert!((short_ttl_share - 0.25).abs() < 0.01, "short {short_ttl_share}");
    }
}
