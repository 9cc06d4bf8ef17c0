//! The schedule of an open loop: due times that do not depend on the server's replies.
//!
//! Gaps are exponential, as between the arrivals of many independent users. The schedule never waits for a
//! reply: a request sent late is late from the moment it was due (coordinated omission, Tene 2013).

use super::random::Rng;

/// Due times of a Poisson process, in nanoseconds from its start.
#[derive(Debug, Clone)]
pub(crate) struct Arrivals {
    rng: Rng,
    gap_ns_mean: f64,
    due_ns: f64,
}

impl Arrivals {
    /// Arrivals at `rate_per_s` a second on average.
    pub(crate) fn new(rate_per_s: f64, seed: u64) -> Self {
        let mut arrivals = Self { rng: Rng::new(seed), gap_ns_mean: 1e9 / rate_per_s, due_ns: 0.0 };
        arrivals.advance();
        arrivals
    }

    /// When the next request is due.
    pub(crate) const fn due_ns(&self) -> u64 {
        self.due_ns as u64
    }

    /// Advances to the next due time.
    pub(crate) fn advance(&mut self) {
        self.due_ns -= self.gap_ns_mean * (1.0 - self.rng.next_fraction()).ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_a_poisson_process_with_the_given_rate() {
        let mut arrivals = Arrivals::new(10_000.0, 9);
        let (mut previous_due_ns, mut gaps_ns) = (0, Vec::new());
        for _ in 0..50_000 {
            gaps_ns.push((arrivals.due_ns() - previous_due_ns) as f64);
            previous_due_ns = arrivals.due_ns();
            arrivals.advance();
        }
        let mean = gaps_ns.iter().sum::<f64>() / gaps_ns.len() as f64;
        let deviation = (gaps_ns.iter().map(|gap_ns| (gap_ns - mean).powi(2)).sum::<f64>()
            / gaps_ns.len() as f64)
            .sqrt();
        assert!((mean - 100_000.0).abs() < 2_000.0, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.03, "{deviation} {mean}");
    }
}
