//! An endless mix of gets and sets of randomly drawn keys.
//!
//! The window of the plan ends it.

use super::fill_and_read_back::Values;
use super::keys::{Picker, format_key};
use super::random::Rng;
use super::workload::{Batch, KeyResult, NextStep, Workload};

/// Gets and sets of drawn keys.
pub(crate) struct MixedWorkload {
    rng: Rng,
    picker: Picker,
    first_id: u64,
    values: Values,
    /// Share of sets, 0 to 1.
    write_share: f64,
    keys_per_get: usize,
    scratch_ids: Vec<u64>,
}

impl MixedWorkload {
    /// Keys `first_id..` as `picker` draws them; `write_share` of the requests are sets, the rest gets of
    /// `keys_per_get` keys each.
    pub(crate) fn new(
        (first_id, picker): (u64, Picker),
        values: Values,
        (write_share, keys_per_get): (f64, usize),
        seed: u64,
    ) -> Self {
        Self {
            rng: Rng::new(seed),
            picker,
            first_id,
            values,
            write_share,
            keys_per_get: keys_per_get.max(1),
            scratch_ids: Vec::new(),
        }
    }

    fn draw_id(&mut self) -> u64 {
        self.first_id + self.picker.pick(&mut self.rng)
    }
}

impl Workload for MixedWorkload {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        if self.write_share > 0.0 && self.rng.next_fraction() < self.write_share {
            let id = self.draw_id();
            batch.set(self, id, 0);
        } else {
            let mut ids = std::mem::take(&mut self.scratch_ids);
            ids.clear();
            for _ in 0..self.keys_per_get {
                ids.push(self.draw_id());
            }
            batch.get(self, &ids);
            self.scratch_ids = ids;
        }
        NextStep::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.values.of(id)
    }

    fn on_result(&mut self, _connection: usize, _id: u64, _result: KeyResult) {}
}
