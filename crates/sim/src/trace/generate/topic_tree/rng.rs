//! Seeded random numbers of the generator: uniform, normal and log-normal, independent of any library's version.

/// The generator splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug)]
pub(super) struct TopicTreeRandom(u64);

impl TopicTreeRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u32
    }

    /// From 0 to below 1.
    pub(super) fn next_fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True in this share of the cases.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.next_fraction() < probability
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller, 1958).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.next_fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.next_fraction()).cos()
    }

    /// Log-normal with median 1; `sigma` is the deviation of its logarithm.
    pub(super) fn log_normal(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal()).exp()
    }
}
