//! The costs of serialisers and compressors, value by value, in the process that runs them.

use std::time::Instant;

/// How often each value is packed and unpacked; the median counts.
const REPEATS: usize = 3;

/// A value in the form that is sent: client flags and bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packed {
    /// The client flags, which say how to unpack it.
    pub flags: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A compressor of values.
pub trait Packer {
    /// Its name, such as `zstd 3`.
    fn name(&self) -> &str;

    /// The packed form of `plain`; plain again if packing does not save enough.
    fn pack(&mut self, plain: &[u8]) -> Packed;

    /// The plain form, or `None` if the packed one is damaged.
    fn unpack(&mut self, packed: &Packed) -> Option<Vec<u8>>;
}

/// What a serialiser costs, by value.
#[derive(Debug, Clone, Default)]
pub struct SerialiserCosts {
    /// Its name, such as `json`.
    pub name: String,
    /// Time to write each value, in nanoseconds.
    pub write_ns: Vec<u64>,
    /// Time to read each value, in nanoseconds.
    pub read_ns: Vec<u64>,
    /// The serialised values.
    pub bodies: Vec<Vec<u8>>,
}

impl SerialiserCosts {
    /// Values that need no serialiser: texts and bytes.
    pub fn without_serialiser(bodies: Vec<Vec<u8>>) -> Self {
        Self {
            name: String::new(),
            write_ns: vec![0; bodies.len()],
            read_ns: vec![0; bodies.len()],
            bodies,
        }
    }
}

/// What a compressor costs, by value.
#[derive(Debug, Clone, Default)]
pub struct PackerCosts {
    /// Its name.
    pub name: String,
    /// Packed length of each value.
    pub bytes: Vec<usize>,
    /// Time to pack each value, in nanoseconds.
    pub pack_ns: Vec<u64>,
    /// Time to unpack each value, in nanoseconds.
    pub unpack_ns: Vec<u64>,
    /// Values that were not the same after unpacking.
    pub wrong: u64,
}

/// Packs and unpacks every value, in several passes over all of them: the same value again would be in the CPU's
/// caches, where an application does not have it.
pub fn measure(packer: &mut dyn Packer, values: &[Vec<u8>]) -> PackerCosts {
    let mut costs = PackerCosts {
        name: packer.name().to_owned(),
        ..PackerCosts::default()
    };
    let mut times = vec![([0; REPEATS], [0; REPEATS]); values.len()];
    for repeat in 0..REPEATS {
        costs.bytes.clear();
        for (plain, (pack_times, unpack_times)) in values.iter().zip(&mut times) {
            let begin = Instant::now();
            let packed = packer.pack(plain);
            pack_times[repeat] = begin.elapsed().as_nanos() as u64;
            let begin = Instant::now();
            let unpacked = packer.unpack(&packed);
            unpack_times[repeat] = begin.elapsed().as_nanos() as u64;
            costs.wrong += u64::from(unpacked.as_ref() != Some(plain));
            costs.bytes.push(packed.bytes.len());
        }
    }
    let median = |mut times: [u64; REPEATS]| {
        times.sort_unstable();
        times[REPEATS / 2]
    };
    costs.pack_ns = times
        .iter()
        .map(|(pack_times, _)| median(*pack_times))
        .collect();
    costs.unpack_ns = times
        .iter()
        .map(|(_, unpack_times)| median(*unpack_times))
        .collect();
    costs
}
