//! A small random number generator: splitmix64, with the same sequence from the same seed on every machine.

/// What the state of splitmix64 grows by (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// A seeded sequence of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn next_u64(&mut self) -> u64 {
        let number = step(self.0);
        self.0 = self.0.wrapping_add(INCREMENT);
        number
    }

    /// A number below `bound`, which is above 0; the bias is below `bound` / 2^32.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next_u64() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// A number from 0 up to, but without, 1.
    pub(crate) fn next_fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The number that splitmix64 gives from a state: 64 random bits for each seed.
#[inline]
pub(crate) fn step(state: u64) -> u64 {
    mix(state.wrapping_add(INCREMENT))
}

/// Mixes the bits of a word so that each input bit changes half of the output bits: the finaliser of splitmix64
/// (Stafford, variant 13).
#[inline]
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
