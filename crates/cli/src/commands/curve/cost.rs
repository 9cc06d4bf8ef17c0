//! The cheapest size: memory has a price over the time of the trace, and each miss makes a request wait.
//!
//! Both are counted in seconds of waiting: `--cost-per-gb` is how much waiting a gigabyte must save over the time of
//! the trace to be worth its price, `--miss-cost-ms` how long a miss takes.

use glasscache_sim::curve::Curve;

use super::Args;

/// Bytes of a gigabyte, as memory is sold.
const GB: f64 = 1e9;

/// What memory and misses cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    per_gb_s: f64,
    miss_s: f64,
}

impl Costs {
    /// The costs of the command line, if they are given.
    pub(super) fn from_args(args: &Args) -> Option<Costs> {
        Some(Costs { per_gb_s: args.cost_per_gb?, miss_s: args.miss_cost_ms? / 1e3 })
    }

    /// What a memory costs together with this many misses.
    pub(super) fn total_seconds(&self, bytes: u64, misses: f64) -> f64 {
        self.per_gb_s * bytes as f64 / GB + self.miss_s * misses
    }

    /// The cheapest size of LRU's curve, with its cost.
    pub(super) fn find_cheapest_size(&self, curve: &Curve, requests: usize) -> Option<(u64, f64)> {
        let cost = |size: &u64| {
            let misses = curve.miss_ratio(*size) * requests as f64;
            self.total_seconds(*size, misses)
        };
        let cheapest = find_cheapest(curve.sizes_by_ratio(COMPARED_SIZE_COUNT), cost)?;
        Some((cheapest, cost(&cheapest)))
    }
}

/// How many sizes of the curve are compared.
const COMPARED_SIZE_COUNT: u32 = 400;

/// The candidate that costs least, the first of several.
pub(super) fn find_cheapest<T>(
    candidates: impl IntoIterator<Item = T>,
    cost: impl Fn(&T) -> f64,
) -> Option<T> {
    let by_cost = |a: &T, b: &T| cost(a).total_cmp(&cost(b));
    candidates.into_iter().min_by(by_cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bought_until_it_costs_more_than_its_misses() {
        let costs = Costs { per_gb_s: 100.0, miss_s: 0.01 };
        // (bytes, misses): the second gigabyte saves 200 s for 100 s, the third 50 s.
        let sizes_and_misses =
            [(1_000_000_000, 30_000.0), (2_000_000_000, 10_000.0), (3_000_000_000, 5_000.0)];
        let best =
            find_cheapest(sizes_and_misses, |&(bytes, misses)| costs.total_seconds(bytes, misses));
        assert_eq!(best.map(|(bytes, _)| bytes), Some(2_000_000_000));
        assert!((costs.total_seconds(2_000_000_000, 10_000.0) - 300.0).abs() < 1e-9);
    }
}
