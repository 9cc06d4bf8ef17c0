//! SLRU against the misses that libCacheSim 0.3.5 (the Python package, four segments) counts on short traces.
//!
//! Loops that nearly fit show where a new object enters while upper segments have room: that alone moved the miss
//! ratio by up to 0.7.

use super::{Requests, prepare, replay};
use glasscache_sim::policy::PolicyKind;
use glasscache_sim::trace::intern::Mode;

/// The misses at capacities of 1 to 40 objects.
type Misses = [u64; 40];

const LOOP_MISSES: Misses = [
    900, 900, 900, 813, 813, 813, 813, 726, 726, 726, 726, 639, 639, 639, 639, 552, 552, 552, 552,
    465, 465, 465, 465, 378, 378, 378, 378, 291, 291, 204, 204, 30, 30, 30, 30, 30, 30, 30, 30, 30,
];
const TWO_LOOPS_MISSES: Misses = [
    1600, 1600, 1600, 1483, 1483, 1483, 1483, 1366, 1366, 1366, 1366, 1249, 1249, 1249, 1249, 1132,
    1132, 1132, 1132, 835, 835, 835, 835, 714, 714, 714, 714, 593, 593, 593, 593, 472, 472, 472,
    472, 585, 585, 585, 585, 495,
];
const LOOP_WITH_NOISE_MISSES: Misses = [
    2000, 2000, 2000, 1839, 1835, 1835, 1838, 1677, 1681, 1684, 1680, 1532, 1528, 1552, 1533, 1335,
    1351, 1347, 1341, 1171, 1173, 1168, 1162, 1035, 1028, 1018, 1018, 873, 826, 828, 786, 642, 570,
    533, 512, 392, 376, 374, 365, 346,
];
const SKEWED_MISSES: Misses = [
    2000, 2000, 2000, 1640, 1594, 1557, 1511, 1337, 1327, 1286, 1280, 1146, 1092, 1072, 1047, 921,
    902, 871, 859, 749, 726, 707, 695, 601, 590, 582, 569, 465, 448, 444, 435, 367, 348, 341, 333,
    275, 266, 262, 260, 213,
];
/// The misses at capacities of 20, 30, ... bytes.
const SKEWED_IN_BYTES_MISSES: Misses = [
    1455, 1374, 1306, 1217, 1142, 1072, 972, 941, 842, 766, 710, 657, 592, 550, 482, 449, 387, 354,
    306, 274, 253, 228, 192, 170, 142, 130, 111, 90, 74, 63, 61, 60, 59, 58, 58, 58, 58, 58, 58,
    58,
];

/// Numbers below 2^31 from Knuth's linear congruential generator.
fn random_numbers(count: usize) -> Vec<u64> {
    let mut state = 9_u64;
    let next_number = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..count).map(next_number).collect()
}

/// Requests for `keys` with sizes from 1 to 10 bytes.
fn with_sizes(keys: impl Iterator<Item = u64>) -> Requests {
    keys.map(|key| (key, (key * 7 % 10 + 1) as u32)).collect()
}

fn skewed_requests() -> Requests {
    with_sizes(
        random_numbers(2000)
            .into_iter()
            .map(|random_number| (random_number % 60) * (random_number / 60 % 60) / 60),
    )
}

fn misses_by_capacity(
    requests: &Requests,
    mode: Mode,
    capacities: impl Iterator<Item = u64>,
) -> Vec<u64> {
    let trace = prepare(requests, mode);
    capacities.map(|capacity| replay(PolicyKind::Slru, capacity, &trace).misses).collect()
}

#[test]
fn misses_equal_libcachesim_at_every_size() {
    let key_of_two_loops = |index: u64| match (index / 200) % 2 {
        0 => index % 20,
        _ => 100 + index % 25,
    };
    let key_with_noise = |(index, random_number): (usize, u64)| match random_number % 5 {
        0 => random_number / 5 % 200,
        _ => index as u64 % 30,
    };
    let loop_with_noise = random_numbers(2000).into_iter().enumerate().map(key_with_noise);
    for (name, requests, expected_misses) in [
        ("loop", with_sizes((0..900).map(|index| index % 30)), LOOP_MISSES),
        ("two loops", with_sizes((0..1600).map(key_of_two_loops)), TWO_LOOPS_MISSES),
        ("loop with noise", with_sizes(loop_with_noise), LOOP_WITH_NOISE_MISSES),
        ("skewed", skewed_requests(), SKEWED_MISSES),
    ] {
        assert_eq!(misses_by_capacity(&requests, Mode::Objects, 1..=40), expected_misses, "{name}");
    }
}

#[test]
fn misses_in_bytes_equal_libcachesim_at_every_size() {
    let capacities = (20..420).step_by(10);
    assert_eq!(
        misses_by_capacity(&skewed_requests(), Mode::Bytes, capacities),
        SKEWED_IN_BYTES_MISSES
    );
}
