//! Which form to use: the time of a call from its parts, the network speed at which compressing pays, the threshold.
//!
//! The time of a call is that of its serialiser, of its compressor, and of the network and the server with this many
//! bytes. The first two are measured value by value, the last by size; a slower network adds a time for each byte. The
//! form with the least time is chosen, and of those that need at most [`TIME_TOLERANCE`] more the one with the fewest
//! bytes.

use serde::Serialize;

use super::call::{CallParts, CallTime, CallTimes, CodecObjective, split_network_and_server};
use super::costs::{CompressorCosts, SerialiserCosts};

/// A form that is slower by no more than this share may be chosen for its bytes: less is within the noise.
const TIME_TOLERANCE: f64 = 0.02;

/// Thresholds that are tried.
const THRESHOLDS: [usize; 11] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// What compression must save for the compressed form to be used, in per cent: the client's default.
const SAVING_PERCENT_MIN: usize = 10;

/// A form of the values and its costs.
#[derive(Debug, Clone, Serialize)]
pub struct Candidate {
    /// Serialiser and compressor.
    pub codec: String,
    /// Values that were measured.
    pub values: usize,
    /// Their bytes in this form.
    pub bytes: u64,
    /// These bytes over those of the values as they were given.
    pub ratio: f64,
    /// Mean time to serialise and compress a value.
    pub write_us: f64,
    /// Mean time to decompress and deserialise a value.
    pub read_us: f64,
    /// Compressing makes a set faster on networks below this speed, in Mbit/s; null if it never does or there is no
    /// compression.
    #[serde(rename = "write_pays_below_mbit")]
    pub write_break_even_mbit: Option<f64>,
    /// The same for a get.
    #[serde(rename = "read_pays_below_mbit")]
    pub read_break_even_mbit: Option<f64>,
    /// Mean time of a call, by the shares of sets and gets.
    pub call_us: f64,
}

/// The chosen form.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// The serialiser; empty where values need none.
    pub serialiser: String,
    /// The compressor.
    pub(crate) compressor: String,
    /// Values shorter than this are not compressed; null if none is compressed.
    pub threshold_bytes: Option<usize>,
    /// Bytes of the measured values in this form.
    pub bytes: u64,
    /// Mean time of a call.
    pub call_us: f64,
    /// A set by part.
    pub set: CallParts,
    /// A get by part.
    pub get: CallParts,
    /// The median time of a set against the measured server, without a slower network.
    pub set_us_p50: f64,
    /// The median time of a get.
    pub get_us_p50: f64,
}

/// The form of one value: its stored bytes and the time its compressor takes each way.
fn compute_stored_form(
    plain_bytes: usize,
    compressor_costs: &CompressorCosts,
    value_index: usize,
    threshold_bytes: Option<usize>,
) -> (usize, f64, f64) {
    let time_us = |times_ns: &[u64]| times_ns.get(value_index).copied().unwrap_or(0) as f64 / 1e3;
    let compressed_bytes =
        compressor_costs.compressed_bytes.get(value_index).copied().unwrap_or(plain_bytes);
    match threshold_bytes {
        Some(threshold_bytes) if plain_bytes >= threshold_bytes => {
            if compressed_bytes > plain_bytes - plain_bytes * SAVING_PERCENT_MIN / 100 {
                (plain_bytes, time_us(&compressor_costs.compress_ns), 0.0)
            } else {
                (
                    compressed_bytes,
                    time_us(&compressor_costs.compress_ns),
                    time_us(&compressor_costs.decompress_ns),
                )
            }
        }
        _ => (plain_bytes, 0.0, 0.0),
    }
}

fn compute_mean_us(times_ns: &[u64]) -> f64 {
    times_ns.iter().sum::<u64>() as f64 / 1e3 / times_ns.len().max(1) as f64
}

fn compute_median(mut times_us: Vec<f64>) -> f64 {
    times_us.sort_unstable_by(f64::total_cmp);
    times_us.get(times_us.len() / 2).copied().unwrap_or(0.0)
}

/// The costs of a form of values that had `input_bytes` bytes.
pub(super) fn evaluate_candidate(
    serialiser_costs: &SerialiserCosts,
    compressor_costs: &CompressorCosts,
    input_bytes: usize,
    call_times: &CallTimes,
    objective: &CodecObjective,
) -> Candidate {
    let plain_bytes: usize = serialiser_costs.bodies.iter().map(Vec::len).sum();
    let total_compressed_bytes: usize = compressor_costs.compressed_bytes.iter().sum();
    let value_count = compressor_costs.compressed_bytes.len();
    let break_even_mbit = |times_ns: &[u64]| {
        let spent_ns: u64 = times_ns.iter().sum();
        let saved_bits = plain_bytes.saturating_sub(total_compressed_bytes) as f64 * 8.0;
        (saved_bits > 0.0 && spent_ns > 0).then(|| saved_bits / (spent_ns as f64 / 1e3))
    };
    let (write_us, read_us) = (
        compute_mean_us(&serialiser_costs.write_ns)
            + compute_mean_us(&compressor_costs.compress_ns),
        compute_mean_us(&serialiser_costs.read_ns)
            + compute_mean_us(&compressor_costs.decompress_ns),
    );
    let mean_network_and_server_us = |times: &[CallTime], is_set: bool| {
        let network_and_server_us = |value_bytes: &usize| {
            split_network_and_server(times, *value_bytes, is_set, objective).total_us()
        };
        compressor_costs.compressed_bytes.iter().map(network_and_server_us).sum::<f64>()
            / value_count.max(1) as f64
    };
    let set_us = write_us + mean_network_and_server_us(&call_times.set, true);
    let get_us = read_us + mean_network_and_server_us(&call_times.get, false);
    let part_names = [serialiser_costs.name.as_str(), compressor_costs.name.as_str()];
    let used_names = part_names.iter().copied().filter(|name| !name.is_empty() && *name != "none");
    let form_name = used_names.collect::<Vec<_>>().join(" + ");
    Candidate {
        codec: if form_name.is_empty() { "none".to_owned() } else { form_name },
        values: value_count,
        bytes: total_compressed_bytes as u64,
        ratio: total_compressed_bytes as f64 / input_bytes.max(1) as f64,
        write_us,
        read_us,
        write_break_even_mbit: break_even_mbit(&compressor_costs.compress_ns),
        read_break_even_mbit: break_even_mbit(&compressor_costs.decompress_ns),
        call_us: compute_mean_call_us(set_us, get_us, objective),
    }
}

fn compute_mean_call_us(set_us: f64, get_us: f64, objective: &CodecObjective) -> f64 {
    (set_us + get_us * objective.reads_per_write) / (1.0 + objective.reads_per_write)
}

/// The costs of one choice.
fn evaluate_choice(
    serialiser_costs: &SerialiserCosts,
    compressor_costs: &CompressorCosts,
    threshold_bytes: Option<usize>,
    call_times: &CallTimes,
    objective: &CodecObjective,
) -> Choice {
    let (mut set, mut get, mut bytes) = (CallParts::default(), CallParts::default(), 0);
    let (mut set_times_us, mut get_times_us) = (Vec::new(), Vec::new());
    let weight = 1.0 / serialiser_costs.bodies.len().max(1) as f64;
    for (value_index, body) in serialiser_costs.bodies.iter().enumerate() {
        let time_us =
            |times_ns: &[u64]| times_ns.get(value_index).copied().unwrap_or(0) as f64 / 1e3;
        let (stored_bytes, compress_us, decompress_us) =
            compute_stored_form(body.len(), compressor_costs, value_index, threshold_bytes);
        let (serialise_us, deserialise_us) =
            (time_us(&serialiser_costs.write_ns), time_us(&serialiser_costs.read_ns));
        bytes += stored_bytes as u64;
        let set_parts = CallParts {
            serialise_us,
            compress_us,
            ..split_network_and_server(&call_times.set, stored_bytes, true, objective)
        };
        let get_parts = CallParts {
            decompress_us,
            deserialise_us,
            ..split_network_and_server(&call_times.get, stored_bytes, false, objective)
        };
        set.add_weighted(set_parts, weight);
        get.add_weighted(get_parts, weight);
        let network_us = objective.ns_per_byte * stored_bytes as f64 / 1e3;
        set_times_us.push(set_parts.total_us() - network_us);
        get_times_us.push(get_parts.total_us() - network_us);
    }
    Choice {
        serialiser: serialiser_costs.name.clone(),
        compressor: compressor_costs.name.clone(),
        threshold_bytes,
        bytes,
        call_us: compute_mean_call_us(set.total_us(), get.total_us(), objective),
        set,
        get,
        set_us_p50: compute_median(set_times_us),
        get_us_p50: compute_median(get_times_us),
    }
}

/// The best choice among these serialisers and compressors, and the first serialiser without compression, which is what
/// it is compared with.
pub(super) fn choose(
    costs_of_forms: &[(&SerialiserCosts, &[CompressorCosts])],
    call_times: &CallTimes,
    objective: &CodecObjective,
) -> Option<(Choice, Choice)> {
    let mut evaluated_choices = Vec::new();
    for (serialiser_costs, costs_of_compressors) in costs_of_forms {
        let no_compressor_costs =
            CompressorCosts { name: "none".to_owned(), ..CompressorCosts::default() };
        evaluated_choices.push(evaluate_choice(
            serialiser_costs,
            &no_compressor_costs,
            None,
            call_times,
            objective,
        ));
        for compressor_costs in costs_of_compressors.iter().filter(|costs| costs.name != "none") {
            let with_threshold = |threshold_bytes| {
                evaluate_choice(
                    serialiser_costs,
                    compressor_costs,
                    Some(threshold_bytes),
                    call_times,
                    objective,
                )
            };
            evaluated_choices.extend(THRESHOLDS.map(with_threshold));
        }
    }
    let uncompressed = evaluated_choices.first()?.clone();
    let least_us =
        evaluated_choices.iter().map(|choice| choice.call_us).fold(f64::INFINITY, f64::min);
    let is_close = |choice: &&Choice| choice.call_us <= least_us * (1.0 + TIME_TOLERANCE);
    // Of equal bytes the highest threshold: it compresses fewest values in vain.
    let best = evaluated_choices.iter().filter(is_close).min_by_key(|choice| {
        let threshold = choice.threshold_bytes;
        (choice.bytes, threshold.is_some(), std::cmp::Reverse(threshold))
    })?;
    Some((uncompressed, best.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_call_times() -> CallTimes {
        let call_time = |bytes: usize, us: f64| CallTime { bytes, us, server_us: Some(10.0) };
        CallTimes {
            set: vec![call_time(0, 30.0), call_time(1000, 40.0)],
            get: vec![call_time(0, 30.0), call_time(1000, 40.0)],
        }
    }

    fn new_compressor_costs(name: &str, compressed_bytes: &[usize], ns: u64) -> CompressorCosts {
        CompressorCosts {
            name: name.to_owned(),
            compressed_bytes: compressed_bytes.to_vec(),
            compress_ns: vec![ns; compressed_bytes.len()],
            decompress_ns: vec![ns; compressed_bytes.len()],
            wrong_values: 0,
        }
    }

    fn new_objective(mbit: f64) -> CodecObjective {
        CodecObjective { ns_per_byte: 8e3 / mbit, reads_per_write: 10.0 }
    }

    #[test]
    fn compressing_breaks_even_at_the_speed_at_which_the_saved_bytes_take_its_time() {
        let serialiser_costs = SerialiserCosts::without_serialiser(vec![vec![0; 1000]]);
        let candidate = evaluate_candidate(
            &serialiser_costs,
            &new_compressor_costs("zstd 1", &[500], 4000),
            1000,
            &example_call_times(),
            &new_objective(1000.0),
        );
        // 4,000 bits in 4 us are 1,000 Mbit/s.
        assert_eq!(candidate.read_break_even_mbit, Some(1000.0));
        assert!((candidate.ratio - 0.5).abs() < 1e-9);
        let uncompressed_candidate = evaluate_candidate(
            &serialiser_costs,
            &new_compressor_costs("none", &[1000], 0),
            1000,
            &example_call_times(),
            &new_objective(1000.0),
        );
        assert_eq!(
            (uncompressed_candidate.codec.as_str(), uncompressed_candidate.read_break_even_mbit),
            ("none", None)
        );
    }

    #[test]
    fn a_slow_network_compresses_and_a_fast_one_does_not() {
        let serialiser_costs =
            SerialiserCosts::without_serialiser(vec![vec![0; 10_000], vec![0; 100]]);
        let costs_of_compressors = [new_compressor_costs("zlib 6", &[2_000, 90], 50_000)];
        let costs_of_forms = [(&serialiser_costs, &costs_of_compressors[..])];
        let (uncompressed, best) =
            choose(&costs_of_forms, &example_call_times(), &new_objective(100.0)).unwrap();
        assert_eq!((uncompressed.compressor.as_str(), uncompressed.bytes), ("none", 10_100));
        assert_eq!((best.compressor.as_str(), best.bytes), ("zlib 6", 2_100));
        // The short value would be compressed in vain, so the threshold lies above it.
        assert_eq!(best.threshold_bytes, Some(8192));
        let (_, best) =
            choose(&costs_of_forms, &example_call_times(), &new_objective(100_000.0)).unwrap();
        assert_eq!((best.compressor.as_str(), best.threshold_bytes), ("none", None));
    }

    #[test]
    fn the_parts_of_a_call_add_up_to_its_mean_time() {
        let serialiser_costs = SerialiserCosts {
            name: "json".to_owned(),
            write_ns: vec![3000],
            read_ns: vec![7000],
            bodies: vec![vec![0; 1000]],
        };
        let costs_of_compressors = [new_compressor_costs("zstd 1", &[100], 1000)];
        let (uncompressed, best) = choose(
            &[(&serialiser_costs, &costs_of_compressors[..])],
            &example_call_times(),
            &new_objective(10.0),
        )
        .unwrap();
        assert!((best.get.total_us() - (31.0 + 80.0 + 1.0 + 7.0)).abs() < 1e-9, "{:?}", best.get);
        assert!((best.get_us_p50 - 39.0).abs() < 1e-9);
        assert!((uncompressed.get_us_p50 - 47.0).abs() < 1e-9);
    }
}
