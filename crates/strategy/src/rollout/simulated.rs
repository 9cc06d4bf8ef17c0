//! Simulated requests for the tests: their number of calls changes from period to period, and some calls take long.

use super::counts::{GroupCounts, RequestCost};

/// A generator of random numbers (xorshift64*).
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number from 0 to 1.
    pub(super) fn draw_fraction(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Requests of one kind.
#[derive(Clone, Copy)]
pub(super) struct Traffic {
    /// Calls of a request, as a multiple of the typical number.
    calls_factor: f64,
    /// Time of a call, as a multiple of the typical one.
    time_factor: f64,
    /// Calls of a request in this period, as a multiple of those in the calmest one.
    period_factor: f64,
    requests_left_in_period: u32,
}

impl Traffic {
    /// About three calls of about a millisecond.
    pub(super) fn typical() -> Self {
        Self { calls_factor: 1.0, time_factor: 1.0, period_factor: 1.0, requests_left_in_period: 0 }
    }

    pub(super) fn with_calls(self, calls_factor: f64) -> Self {
        Self { calls_factor, ..self }
    }

    pub(super) fn with_time(self, time_factor: f64) -> Self {
        Self { time_factor, ..self }
    }

    pub(super) fn draw_request(&mut self, random: &mut Random) -> RequestCost {
        if self.requests_left_in_period == 0 {
            self.period_factor = 1.0 + random.draw_fraction();
            self.requests_left_in_period = 10;
        }
        self.requests_left_in_period -= 1;
        let calls =
            (random.draw_fraction() * 4.0 * self.period_factor * self.calls_factor).round() as u32;
        // A median of a millisecond, and one of 100 calls above 10 ms.
        let draw_call_ns =
            |random: &mut Random| 1e6 * (-random.draw_fraction().ln() / 0.693).powf(1.2);
        let added_ns: f64 = (0..calls).map(|_| draw_call_ns(random)).sum();
        RequestCost {
            calls,
            keys: calls * 2,
            bytes: u64::from(calls) * 1000,
            added_ns: (added_ns * self.time_factor) as u64,
            decode_ns: u64::from(calls) * 20_000,
            has_failed: false,
        }
    }

    pub(super) fn draw_group(mut self, requests: usize, random: &mut Random) -> GroupCounts {
        let mut group = GroupCounts::default();
        for _ in 0..requests {
            group.add(&self.draw_request(random));
        }
        group
    }
}
