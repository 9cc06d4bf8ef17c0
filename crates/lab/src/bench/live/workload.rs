//! The requests of a load test: a mix of gets, multi-gets, sets and deletes of drawn keys.

use std::collections::VecDeque;
use std::ops::Range;

use super::Traffic;
use crate::load::{Batch, KeyResult, Rng, Step, Workload, key_text};

/// Shares of the kinds of requests; they need not add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Mix {
    /// Gets of one key.
    pub get: f64,
    /// Gets of several keys.
    pub multi_get: f64,
    /// Keys of each of those.
    pub keys_per_get: usize,
    /// Sets.
    pub set: f64,
    /// Deletes.
    pub delete: f64,
}

/// One thread's requests.
pub(super) struct Requests {
    traffic: Traffic,
    first_id: u64,
    rng: Rng,
    /// Keys that were missed and are to be stored, by connection.
    misses: Vec<VecDeque<u64>>,
    ids: Vec<u64>,
}

impl Requests {
    pub(super) fn new(traffic: Traffic, first_id: u64, connections: usize, seed: u64) -> Self {
        Self {
            traffic,
            first_id,
            rng: Rng::new(seed),
            misses: vec![VecDeque::new(); connections],
            ids: Vec::new(),
        }
    }

    fn draw(&mut self) -> u64 {
        self.first_id + self.traffic.picker.pick(&mut self.rng)
    }

    fn get(&mut self, batch: &mut Batch<'_>, keys: usize) {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        for _ in 0..keys {
            ids.push(self.draw());
        }
        batch.get(self, &ids);
        self.ids = ids;
    }
}

impl Workload for Requests {
    fn next(&mut self, connection: usize, batch: &mut Batch<'_>) -> Step {
        if let Some(id) = self
            .misses
            .get_mut(connection)
            .and_then(VecDeque::pop_front)
        {
            batch.set(self, id, self.traffic.ttl_s);
            return Step::Sent;
        }
        let mix = self.traffic.mix;
        if mix.get >= 1.0 - f64::EPSILON && mix.multi_get + mix.set + mix.delete == 0.0 {
            self.get(batch, 1);
            return Step::Sent;
        }
        let draw = self.rng.unit() * (mix.get + mix.multi_get + mix.set + mix.delete);
        if draw < mix.get {
            self.get(batch, 1);
        } else if draw < mix.get + mix.multi_get {
            self.get(batch, mix.keys_per_get);
        } else if draw < mix.get + mix.multi_get + mix.set {
            let id = self.draw();
            batch.set(self, id, self.traffic.ttl_s);
        } else {
            let id = self.draw();
            batch.delete(self, id);
        }
        Step::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&key_text(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.traffic.values.of(id)
    }

    fn done(&mut self, connection: usize, id: u64, result: KeyResult) {
        if result == KeyResult::Miss
            && self.traffic.fills_misses
            && let Some(misses) = self.misses.get_mut(connection)
        {
            misses.push_back(id);
        }
    }
}

/// Deletes a range of keys.
pub(super) struct Remove(pub(super) Range<u64>);

impl Workload for Remove {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> Step {
        let Some(id) = self.0.next() else {
            return Step::Finished;
        };
        batch.delete(self, id);
        Step::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&key_text(id));
    }

    fn value(&self, _id: u64) -> &[u8] {
        &[]
    }

    fn done(&mut self, _connection: usize, _id: u64, _result: KeyResult) {}
}
