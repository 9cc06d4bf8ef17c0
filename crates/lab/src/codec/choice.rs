//! Which form to use: the time of a call from its parts, the network speed at which compressing pays, the threshold.
//!
//! The time of a call is that of its serialiser, of its compressor, and of the network and the server with this many
//! bytes. The first two are measured value by value, the last by size; a slower network adds a time for each byte. The
//! form with the least time is chosen, and of those that need at most [`TIME_TOLERANCE`] more the one with the fewest
//! bytes.

use serde::Serialize;

use super::call::{CallParts, CallTime, CallTimes, CodecObjective, split_network_and_server};
use super::compressor_name::{SAVING_PERCENT_MIN, read_compressor_name};
use super::costs::{CompressorCosts, SerialiserCosts, is_serialiser_of_client};
use super::in_use::CodecInUse;

/// A form that is slower by no more than this share may be chosen for its bytes: less is within the noise.
pub(super) const TIME_TOLERANCE: f64 = 0.05;

/// Bytes that are more by no more than this share do not decide.
const BYTES_TOLERANCE: f64 = 0.02;

/// Thresholds that are tried.
const THRESHOLDS: [usize; 11] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// A form of the values and its costs.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Candidate {
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
    /// Whether the client can be set to this form.
    #[serde(rename = "in_client")]
    pub is_in_client: bool,
}

/// The chosen form.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Choice {
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

impl Choice {
    /// Whether the other has the same serialiser, compressor and threshold.
    pub(super) fn is_same_form(&self, other: &Self) -> bool {
        let form_of = |choice: &Self| {
            (choice.serialiser.clone(), choice.compressor.clone(), choice.threshold_bytes)
        };
        form_of(self) == form_of(other)
    }

    /// Whether this may be recommended: reading a pickle can run code.
    fn is_recommended(&self) -> bool {
        is_serialiser_of_client(&self.serialiser)
    }
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

pub(super) fn compute_median(mut times_us: Vec<f64>) -> f64 {
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
        is_in_client: is_serialiser_of_client(&serialiser_costs.name)
            && (read_compressor_name(&compressor_costs.name).is_some()
                || compressor_costs.name == "none"),
    }
}

pub(super) fn compute_mean_call_us(set_us: f64, get_us: f64, objective: &CodecObjective) -> f64 {
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

/// What was chosen, and what it is compared with.
#[derive(Debug)]
pub(super) struct Choices {
    /// The codec in use.
    pub(super) in_use: Choice,
    /// The form with the least time, or one that is as fast with fewer bytes.
    pub(super) best: Choice,
    /// Other forms that are as fast as the best, fewest bytes first.
    pub(super) rivals: Vec<Choice>,
}

/// Chooses among these serialisers and compressors; `None` where nothing was measured.
pub(super) fn choose(
    costs_of_forms: &[(&SerialiserCosts, &[CompressorCosts])],
    call_times: &CallTimes,
    objective: &CodecObjective,
    codec_in_use: &CodecInUse,
) -> Option<Choices> {
    let threshold_in_use = codec_in_use.compression.map(|compression| compression.threshold_bytes);
    let mut evaluated_choices = Vec::new();
    for (serialiser_costs, costs_of_compressors) in costs_of_forms {
        let evaluate = |compressor_costs: &CompressorCosts, threshold_bytes| {
            evaluate_choice(
                serialiser_costs,
                compressor_costs,
                threshold_bytes,
                call_times,
                objective,
            )
        };
        let no_compressor_costs =
            CompressorCosts { name: "none".to_owned(), ..CompressorCosts::default() };
        evaluated_choices.push(evaluate(&no_compressor_costs, None));
        for compressor_costs in costs_of_compressors.iter().filter(|costs| costs.name != "none") {
            let thresholds = THRESHOLDS.into_iter().chain(threshold_in_use);
            evaluated_choices
                .extend(thresholds.map(|threshold| evaluate(compressor_costs, Some(threshold))));
        }
    }
    let is_serialiser_in_use = |choice: &Choice| {
        choice.serialiser.is_empty() || choice.serialiser == codec_in_use.serialiser
    };
    let is_in_use = |choice: &&Choice| {
        is_serialiser_in_use(choice)
            && choice.compressor == codec_in_use.compressor_name()
            && choice.threshold_bytes == threshold_in_use
    };
    let in_use = evaluated_choices.iter().find(is_in_use).or(evaluated_choices.first())?.clone();
    evaluated_choices.retain(|choice| choice.is_recommended() || is_in_use(&choice));
    // What is as good as what is used differs from it least; of thresholds the highest compresses fewest in vain.
    let preference = |choice: &Choice| {
        (
            !is_serialiser_in_use(choice),
            choice.compressor != in_use.compressor,
            choice.threshold_bytes != threshold_in_use,
            std::cmp::Reverse(choice.threshold_bytes),
        )
    };
    let best = find_smallest_of_fastest(evaluated_choices.iter(), preference)?.clone();
    let mut rivals: Vec<Choice> = Vec::new();
    for choice in &evaluated_choices {
        let is_of_form = |other: &Choice| {
            (&choice.serialiser, &choice.compressor) == (&other.serialiser, &other.compressor)
        };
        if is_of_form(&best) || rivals.iter().any(is_of_form) {
            continue;
        }
        let of_form = evaluated_choices.iter().filter(|other| is_of_form(other));
        rivals.extend(find_smallest_of_fastest(of_form, preference).cloned());
    }
    rivals.retain(|rival| rival.call_us <= best.call_us * (1.0 + TIME_TOLERANCE));
    rivals.sort_by_key(|rival| rival.bytes);
    Some(Choices { in_use, best, rivals })
}

/// Of the choices that are as fast as the fastest those with the fewest bytes, and of these the preferred one.
fn find_smallest_of_fastest<'c, K: Ord>(
    choices: impl Iterator<Item = &'c Choice> + Clone,
    preference: impl Fn(&Choice) -> K,
) -> Option<&'c Choice> {
    let least_us = choices.clone().map(|choice| choice.call_us).fold(f64::INFINITY, f64::min);
    let fastest = choices.filter(|choice| choice.call_us <= least_us * (1.0 + TIME_TOLERANCE));
    let fewest_bytes = fastest.clone().map(|choice| choice.bytes).min()?;
    let bytes_max = fewest_bytes as f64 * (1.0 + BYTES_TOLERANCE);
    fastest
        .filter(|choice| choice.bytes as f64 <= bytes_max)
        .min_by_key(|choice| preference(choice))
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

    fn choose_from(
        costs_of_forms: &[(&SerialiserCosts, &[CompressorCosts])],
        mbit: f64,
        codec_in_use: &CodecInUse,
    ) -> Choices {
        choose(costs_of_forms, &example_call_times(), &new_objective(mbit), codec_in_use).unwrap()
    }

    #[test]
    fn what_is_as_good_as_the_codec_in_use_is_kept_and_the_others_are_rivals() {
        let costs = |name: &str, us: u64| SerialiserCosts {
            name: name.to_owned(),
            write_ns: vec![us * 1000],
            read_ns: vec![us * 1000],
            bodies: vec![vec![0; 10_000]],
        };
        let (json, msgpack, pickle) =
            (costs("Codec", 50), costs("Codec msgpack", 49), costs("pickle", 1));
        let compressors = [
            new_compressor_costs("zstd 1", &[5000], 10_000),
            new_compressor_costs("zstd 3", &[4950], 10_500),
            new_compressor_costs("lz4", &[6000], 9500),
            new_compressor_costs("zlib 9", &[4000], 900_000),
        ];
        let forms = [&json, &msgpack, &pickle].map(|serialiser| (serialiser, &compressors[..]));
        let choices = choose_from(&forms, 1000.0, &CodecInUse::default());
        let describe = |choice: &Choice| {
            (format!("{}/{}", choice.serialiser, choice.compressor), choice.threshold_bytes)
        };
        assert_eq!(describe(&choices.best), ("Codec/zstd 1".to_owned(), Some(1024)));
        assert_eq!(describe(&choices.in_use), describe(&choices.best));
        let rivals: Vec<String> = choices.rivals.iter().map(|rival| describe(rival).0).collect();
        assert!(rivals.contains(&"Codec msgpack/zstd 3".to_owned()), "{rivals:?}");
        assert!(rivals.iter().all(|rival| !rival.contains("pickle") && !rival.contains("zlib")));
        let in_use = "Codec(objects='pickle', compress=None)".parse().unwrap();
        let choices = choose_from(&forms, 100_000.0, &in_use);
        assert_eq!(describe(&choices.best), ("pickle/none".to_owned(), None), "{choices:?}");
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
        let choose_at =
            |mbit| choose_from(&costs_of_forms, mbit, &"Codec(compress=None)".parse().unwrap());
        let Choices { in_use, best, .. } = choose_at(100.0);
        assert_eq!((in_use.compressor.as_str(), in_use.bytes), ("none", 10_100));
        assert_eq!((best.compressor.as_str(), best.bytes), ("zlib 6", 2_100));
        // The short value would be compressed in vain, so the threshold lies above it.
        assert_eq!(best.threshold_bytes, Some(8192));
        let best = choose_at(100_000.0).best;
        assert_eq!((best.compressor.as_str(), best.threshold_bytes), ("none", None));
    }

    #[test]
    fn the_parts_of_a_call_add_up_to_its_mean_time() {
        let serialiser_costs = SerialiserCosts {
            name: "Codec".to_owned(),
            write_ns: vec![3000],
            read_ns: vec![7000],
            bodies: vec![vec![0; 1000]],
        };
        let costs_of_compressors = [new_compressor_costs("zstd 1", &[100], 1000)];
        let costs_of_forms = [(&serialiser_costs, &costs_of_compressors[..])];
        let codec_in_use = "Codec(compress=None)".parse().unwrap();
        let Choices { in_use, best, .. } = choose_from(&costs_of_forms, 10.0, &codec_in_use);
        assert!((best.get.total_us() - (31.0 + 80.0 + 1.0 + 7.0)).abs() < 1e-9, "{:?}", best.get);
        assert!((best.get_us_p50 - 39.0).abs() < 1e-9);
        assert!((in_use.get_us_p50 - 47.0).abs() < 1e-9);
    }
}
