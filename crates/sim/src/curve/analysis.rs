//! Analysis of a curve: its knee, and whether more memory or a better policy saves more misses.

use super::Curve;

/// The knee of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knee {
    /// Size in objects or bytes.
    pub size: u64,
    /// The miss ratio there.
    pub miss_ratio: f64,
}

/// The effect of more memory compared with that of another policy at the same size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryTradeOff<P> {
    /// The miss ratio now.
    pub miss_ratio: f64,
    /// With a tenth more memory.
    pub miss_ratio_with_more_memory: f64,
    /// The policy with the fewest misses at this size, and its miss ratio.
    pub best: Option<(P, f64)>,
}

impl Curve {
    /// The point furthest below the straight line from the start of the curve to its end (Satopää et al. 2011);
    /// `None` if the curve never falls below that line.
    pub fn knee(&self) -> Option<Knee> {
        let footprint = self.footprint();
        let (first_ratio, last_ratio) = (self.miss_ratio(0), self.miss_ratio(footprint));
        let depth_below_line = |size: u64| {
            first_ratio + (last_ratio - first_ratio) * size as f64 / footprint.max(1) as f64
                - self.miss_ratio(size)
        };
        let sizes = (0..=footprint).step_by(self.step as usize);
        let size = sizes.max_by(|&a, &b| depth_below_line(a).total_cmp(&depth_below_line(b)))?;
        (depth_below_line(size) > 0.0).then(|| Knee { size, miss_ratio: self.miss_ratio(size) })
    }
}

/// Compares a tenth more memory with a better policy at `size`; `other_policies` are miss ratios of other policies there.
pub fn compare_memory_and_policies<P: Copy>(
    lru: &Curve,
    size: u64,
    other_policies: &[(P, f64)],
) -> MemoryTradeOff<P> {
    let best = other_policies
        .iter()
        .copied()
        .min_by(|(_, ratio), (_, other_ratio)| ratio.total_cmp(other_ratio));
    MemoryTradeOff {
        miss_ratio: lru.miss_ratio(size),
        miss_ratio_with_more_memory: lru.miss_ratio(size.saturating_add(size / 10)),
        best,
    }
}
