//! The requests of a load test: a mix of gets, multi-gets, sets and deletes of drawn keys.

use std::collections::VecDeque;
use std::ops::Range;

use super::settings::{Popularity, Traffic};
use crate::load::{Batch, KeyResult, NextStep, Rng, Workload, format_key};

/// Which of the requests of a trace are a thread's: every n-th, from another offset in each round.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadShare {
    pub(super) thread_index: usize,
    pub(super) thread_count: usize,
    /// Index of the round, and how many rounds there are.
    pub(super) round_index: u32,
    pub(super) round_count: u32,
}

/// One thread's requests.
pub(super) struct TrafficRequests {
    traffic: Traffic,
    first_id: u64,
    rng: Rng,
    /// Next request of the trace, and how many this thread moves on.
    position: usize,
    stride: usize,
    /// Keys that were missed and are to be stored, by connection.
    missed_ids: Vec<VecDeque<u64>>,
    scratch_ids: Vec<u64>,
}

impl TrafficRequests {
    pub(super) fn new(
        (traffic, first_id): (Traffic, u64),
        connections: usize,
        share: ThreadShare,
        seed: u64,
    ) -> Self {
        let round_offset = match &traffic.popularity {
            Popularity::Random(_) => 0,
            Popularity::Trace(key_numbers) => {
                let round_count = share.round_count.max(1) as usize;
                key_numbers.len() / round_count * (share.round_index as usize % round_count)
            }
        };
        Self {
            traffic,
            first_id,
            rng: Rng::new(seed),
            position: round_offset + share.thread_index,
            stride: share.thread_count,
            missed_ids: vec![VecDeque::new(); connections],
            scratch_ids: Vec::new(),
        }
    }

    fn next_id(&mut self) -> u64 {
        let key_number = match &self.traffic.popularity {
            Popularity::Random(picker) => picker.pick(&mut self.rng),
            Popularity::Trace(key_numbers) => {
                let key_number = key_numbers.get(self.position % key_numbers.len().max(1));
                self.position += self.stride;
                key_number.copied().map_or(0, u64::from)
            }
        };
        self.first_id + key_number
    }

    fn write_get(&mut self, batch: &mut Batch<'_>, key_count: usize) {
        let mut ids = std::mem::take(&mut self.scratch_ids);
        ids.clear();
        for _ in 0..key_count {
            ids.push(self.next_id());
        }
        batch.get(self, &ids);
        self.scratch_ids = ids;
    }
}

impl Workload for TrafficRequests {
    fn next(&mut self, connection: usize, batch: &mut Batch<'_>) -> NextStep {
        if let Some(id) = self.missed_ids.get_mut(connection).and_then(VecDeque::pop_front) {
            batch.set(self, id, self.traffic.ttl_s);
            return NextStep::Sent;
        }
        let mix = self.traffic.mix;
        if mix.get >= 1.0 - f64::EPSILON && mix.multi_get + mix.set + mix.delete == 0.0 {
            self.write_get(batch, 1);
            return NextStep::Sent;
        }
        let draw = self.rng.next_fraction() * (mix.get + mix.multi_get + mix.set + mix.delete);
        if draw < mix.get {
            self.write_get(batch, 1);
        } else if draw < mix.get + mix.multi_get {
            self.write_get(batch, mix.keys_per_get);
        } else if draw < mix.get + mix.multi_get + mix.set {
            let id = self.next_id();
            batch.set(self, id, self.traffic.ttl_s);
        } else {
            let id = self.next_id();
            batch.delete(self, id);
        }
        NextStep::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.traffic.values.of(id)
    }

    fn on_result(&mut self, connection: usize, id: u64, result: KeyResult) {
        if result == KeyResult::Miss
            && self.traffic.fills_misses
            && let Some(missed_ids) = self.missed_ids.get_mut(connection)
        {
            missed_ids.push_back(id);
        }
    }
}

/// Deletes a range of keys.
pub(super) struct DeleteKeys {
    pub(super) remaining_ids: Range<u64>,
}

impl Workload for DeleteKeys {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        let Some(id) = self.remaining_ids.next() else {
            return NextStep::Finished;
        };
        batch.delete(self, id);
        NextStep::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, _id: u64) -> &[u8] {
        &[]
    }

    fn on_result(&mut self, _connection: usize, _id: u64, _result: KeyResult) {}
}

#[cfg(test)]
mod tests {
    use super::super::settings::Mix;
    use super::*;
    use crate::load::{Size, Values};

    fn new_requests(share: ThreadShare) -> TrafficRequests {
        let traffic = Traffic {
            popularity: Popularity::Trace((0..40).collect()),
            keys: 40,
            values: Values::new(Size::Fixed(1), 1),
            mix: Mix { get: 1.0, multi_get: 0.0, keys_per_get: 1, set: 0.0, delete: 0.0 },
            ttl_s: 0,
            fills_misses: false,
        };
        TrafficRequests::new((traffic, 1 << 32), 1, share, 1)
    }

    #[test]
    fn threads_share_the_requests_of_a_trace_and_begin_again_at_its_end() {
        let share = |thread_index, round_index| ThreadShare {
            thread_index,
            thread_count: 2,
            round_index,
            round_count: 20,
        };
        let ids_of = |share| -> Vec<u64> {
            let mut requests = new_requests(share);
            (0..21).map(|_| requests.next_id() - (1 << 32)).collect()
        };
        assert_eq!(ids_of(share(0, 0))[..3], [0, 2, 4]);
        assert_eq!(ids_of(share(1, 0))[19..], [39, 1]);
        assert_eq!(ids_of(share(0, 3))[..2], [6, 8]);
    }
}
