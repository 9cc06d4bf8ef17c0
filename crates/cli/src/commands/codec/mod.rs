//! `glasscache codec`: what serialising and compressing values costs, and which codec a client should use.
//!
//! The lab combines what is measured; this module reads the values, runs compressors, serialisers and calls, and
//! prints.

mod calls;
mod compressors;
mod forms;
mod page;
mod prefixes;
mod python;
mod sampling;
mod table;

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glasscache_lab::access::Protocol;
use glasscache_lab::codec::{
    CallTimes, Candidate, Choice, CodecObjective, CompressorCosts, Sample, SampleError, Samples,
    SerialiserCosts, StorageRow, StorageRun, VALUE_BYTES_MAX, choose, evaluate_candidate,
    holds_lines, split_into_blocks, store_and_read_blocks,
};
use glasscache_lab::profile::CallError;
use glasscache_sim::strategy::parse_bytes;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::access::Credentials;
use crate::interrupts::new_stop_flag;
use crate::live_target::{LiveTarget, new_progress_bar};
use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::table::format_count;
use calls::{Caller, MeasuredCalls};
use compressors::{ClientStore, CodecCompressor, STORAGE_COMPRESSORS};
use forms::{CostsWithCompressors, add_dictionary, measure_forms};
use prefixes::PrefixRow;
use python::PythonWorker;

const EXAMPLES: &str = "\
Examples:
  glasscache codec values.jsonl                  each line of JSON is a value
  glasscache codec pages/ --network 100mbit      each file is a value
  glasscache codec dump.xml --pieces 512k        pieces of large files, as split -b cuts them
  glasscache codec --from cache1:11211           values drawn from a server
  glasscache codec values.jsonl --server cache1:11211 --html codec.html";

/// Values that every form is measured with.
const VALUES_MAX: usize = 1000;

/// Bytes of these values.
const VALUES_BYTES_MAX: usize = 2 << 20;

/// Characters at which the prefix of a key ends, unless configured otherwise.
const PREFIX_ENDS: &str = ":/";

/// Measure forms of values, and recommend a codec.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Files or folders: each file is a value, and each line of *.jsonl and *.ndjson
    #[arg(
        id = "samples",
        value_name = "SAMPLES",
        required_unless_present = "from",
        conflicts_with = "from"
    )]
    sample_paths: Vec<PathBuf>,
    /// Draw the values from this server: host:port or unix:PATH
    #[arg(long, value_name = "SERVER")]
    from: Option<String>,
    /// How many values are drawn [default: 1000]
    #[arg(id = "values", long = "values", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    drawn_values: Option<u64>,
    /// Cut files into pieces of this many bytes, such as 512k, as `split -b` does
    #[arg(long, value_name = "BYTES", conflicts_with = "from", value_parser = parse_piece_bytes)]
    pieces: Option<usize>,
    /// Where values are stored and read: host:port or unix:PATH [default: one started here]
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// Speed of the network, such as 100mbit, 10gbit, or as-measured [default: 1gbit for a server on this machine, else
    /// as-measured]
    #[arg(long, value_name = "SPEED", value_parser = parse_network)]
    network: Option<Network>,
    /// Gets for each set
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = parse_reads)]
    reads: f64,
    /// A prefix ends at the first of these characters in a key [default: :/]
    #[arg(long, value_name = "CHARS")]
    prefix_of: Option<String>,
    /// Print every form and prefix, not only the six best
    #[arg(long)]
    all: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of the draw and of the order of reading
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Speed of the network between client and server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Network {
    /// What was measured against the server.
    AsMeasured,
    /// Mbit/s on top of it.
    Mbit(f64),
}

fn parse_network(text: &str) -> Result<Network, String> {
    let units = [("mbit", 1.0), ("gbit", 1000.0)];
    let parse_positive =
        |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    let lower_case = text.to_ascii_lowercase();
    let speed_with_unit = units.into_iter().find_map(|(unit, factor)| {
        let number = parse_positive(lower_case.strip_suffix(unit)?)?;
        Some(Network::Mbit(number * factor))
    });
    if lower_case == "as-measured" {
        return Ok(Network::AsMeasured);
    }
    speed_with_unit.ok_or_else(|| {
        format!("{text:?}: expected a speed such as 100mbit or 1gbit, or as-measured")
    })
}

fn parse_piece_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| (1..=VALUE_BYTES_MAX).contains(bytes)).ok_or_else(|| {
        format!("{text:?}: expected a number of bytes from 1 to {VALUE_BYTES_MAX}, such as 512k")
    })
}

fn parse_reads(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("{text:?}: expected a number of at least 0"))
}

/// What the command found, as far as it came.
#[derive(Default)]
struct CodecResult {
    value_count: usize,
    total_bytes: usize,
    skipped_values: u64,
    is_truncated: bool,
    measured_values: usize,
    server_name: String,
    client_name: &'static str,
    network_mbit: Option<f64>,
    reads_per_write: f64,
    candidates: Vec<Candidate>,
    baseline: Option<Choice>,
    recommended: Option<Choice>,
    measured_calls: Option<MeasuredCalls>,
    prefix_rows: Vec<PrefixRow>,
    storage_rows: Vec<StorageRow>,
    call_times: CallTimes,
    /// Values that came back as others from a compressor.
    compressor_mismatches: u64,
    left_out: Vec<String>,
    is_stopped: bool,
}

impl CodecResult {
    fn wrong_values(&self) -> u64 {
        let storage_mismatches: u64 = self.storage_rows.iter().map(|row| row.wrong_values).sum();
        self.compressor_mismatches
            + storage_mismatches
            + self.measured_calls.map_or(0, |measured| measured.wrong_values)
    }
}

impl Args {
    /// Measures, prints and writes the page.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        // clap does not require what conflicts with another argument that is given.
        if self.drawn_values.is_some() && self.from.is_none() {
            return Err(Failure::usage("--values: how many are drawn from a server needs --from"));
        }
        let cuts_nothing = self.sample_paths.iter().all(|path| holds_lines(path));
        if self.pieces.is_some() && cuts_nothing {
            return Err(Failure::usage(
                "--pieces has no effect: each line of a *.jsonl or *.ndjson file is a value; leave it out",
            ));
        }
        let stop = new_stop_flag()?;
        let samples = self.read_samples()?;
        if samples.values.is_empty() {
            return Err(self.no_values_failure(cuts_nothing));
        }
        let has_keys = samples.values.iter().any(|sample| sample.key.is_some());
        if self.prefix_of.is_some() && !has_keys {
            return Err(Failure::usage(
                "--prefix-of has no effect: lines of a file have no keys; leave it out",
            ));
        }
        let target =
            LiveTarget::open(self.server.as_deref(), &Credentials::default(), Protocol::Text)?;
        let mut result = self.new_result(&samples, &target);
        let bar = new_progress_bar();
        let outcome = self.measure(&samples, &target, (&stop, &bar), &mut result);
        bar.finish_and_clear();
        result.is_stopped = stop.load(Ordering::Relaxed);
        if outcome.is_ok() || !result.candidates.is_empty() {
            self.print(out, &result)?;
        }
        outcome?;
        if result.is_stopped {
            return Err(Failure::stopped());
        }
        if let Some(path) = &self.html {
            let inputs: Vec<_> = self.sample_paths.iter().map(PathBuf::as_path).collect();
            page_file::write(path, page::build_page(&result), &inputs)?;
            eprintln!("page written to {}", path.display());
        }
        Ok(match result.wrong_values() {
            0 => Exit::Success,
            _ => Exit::Finding,
        })
    }

    fn no_values_failure(&self, has_only_lines: bool) -> Failure {
        let long_file = self.sample_paths.iter().find_map(|path| {
            let bytes = path.metadata().ok().filter(Metadata::is_file)?.len();
            (bytes > VALUE_BYTES_MAX as u64 && !holds_lines(path)).then_some((path, bytes))
        });
        let reason = match long_file {
            Some((path, bytes)) => {
                format!("{} has {} bytes", path.display(), format_count(bytes))
            }
            None => "every one is empty or too long".to_owned(),
        };
        let value_bytes_max = format_count(VALUE_BYTES_MAX as u64);
        let message = format!(
            "no values to measure: {reason}, and servers refuse values of more than {value_bytes_max} by default"
        );
        let failure = Failure::new(Exit::BadData, message);
        if has_only_lines {
            return failure;
        }
        failure.with_hint("--pieces 512k cuts files into pieces of that size, as split -b does")
    }

    fn read_samples(&self) -> Result<Samples, Failure> {
        if let Some(server) = &self.from {
            let count = self.drawn_values.unwrap_or(1000) as usize;
            return sampling::draw(server, count, self.seed);
        }
        Samples::read(&self.sample_paths, self.pieces).map_err(|error| {
            let exit = match &error {
                SampleError::Open { .. } => Exit::Unreachable,
                SampleError::Line { .. } => Exit::BadData,
            };
            Failure::new(exit, error.to_string())
        })
    }

    fn new_result(&self, samples: &Samples, target: &LiveTarget) -> CodecResult {
        let default_network =
            if target.is_local() { Network::Mbit(1000.0) } else { Network::AsMeasured };
        CodecResult {
            value_count: samples.values.len(),
            total_bytes: samples.total_bytes(),
            skipped_values: samples.skipped_values,
            is_truncated: samples.is_truncated,
            server_name: target.describe(),
            network_mbit: match self.network.unwrap_or(default_network) {
                Network::AsMeasured => None,
                Network::Mbit(mbit) => Some(mbit),
            },
            reads_per_write: self.reads,
            ..CodecResult::default()
        }
    }

    fn measure(
        &self,
        samples: &Samples,
        target: &LiveTarget,
        (stop, bar): (&Arc<AtomicBool>, &ProgressBar),
        result: &mut CodecResult,
    ) -> Result<(), Failure> {
        let is_stopped = || stop.load(Ordering::Relaxed);
        let measured_samples = samples.draw(VALUES_MAX, VALUES_BYTES_MAX, self.seed);
        result.measured_values = measured_samples.len();
        let python = PythonWorker::start(&measured_samples);
        if let Err(reason) = &python {
            result.left_out.push(format!("Python's serialisers ({reason})"));
        }
        let mut caller = Caller {
            python: python.ok(),
            rust_client: ClientStore::new(target)?,
            target,
            key_prefix: format!("glasscache-codec:{:x}:", self.seed),
        };
        result.client_name = caller.client_name();
        let bytes_max = measured_samples.iter().map(|sample| sample.bytes.len()).max();
        let call_times = caller.measure_call_times(bytes_max.unwrap_or(0));
        result.call_times = call_times.map_err(|error| failure(&error))?;
        let costs_by_serialiser =
            measure_forms(&measured_samples, caller.python.as_mut(), (stop, bar), result)?;
        self.recommend(&costs_by_serialiser, &measured_samples, &mut caller, result)?;
        if !is_stopped() {
            let prefix_ends = self.prefix_of.as_deref().unwrap_or(PREFIX_ENDS);
            result.prefix_rows =
                prefixes::measure_prefixes(samples, prefix_ends.as_bytes(), result)?;
            self.measure_storage(samples, &mut caller.rust_client, (stop, bar), result)?;
        }
        Ok(())
    }

    /// Ranks the forms, chooses one and measures it.
    fn recommend(
        &self,
        costs_by_serialiser: &[CostsWithCompressors],
        measured_samples: &[&Sample],
        caller: &mut Caller<'_>,
        result: &mut CodecResult,
    ) -> Result<(), Failure> {
        let objective = CodecObjective {
            ns_per_byte: result.network_mbit.map_or(0.0, |mbit| 8e3 / mbit),
            reads_per_write: self.reads,
        };
        let plain_bytes: usize = measured_samples.iter().map(|sample| sample.bytes.len()).sum();
        for (serialiser_costs, compressor_costs) in costs_by_serialiser {
            result.candidates.extend(compressor_costs.iter().map(|costs| {
                evaluate_candidate(
                    serialiser_costs,
                    costs,
                    plain_bytes,
                    &result.call_times,
                    &objective,
                )
            }));
        }
        add_dictionary(costs_by_serialiser, measured_samples, &objective, result);
        result.candidates.sort_by(|a, b| a.call_us.total_cmp(&b.call_us));
        let eligible_costs: Vec<(&SerialiserCosts, &[CompressorCosts])> = costs_by_serialiser
            .iter()
            .filter(|(serialiser_costs, _)| {
                serialiser_costs.name.is_empty() || serialiser_costs.name.starts_with("Codec")
            })
            .map(|(serialiser_costs, compressor_costs)| {
                (serialiser_costs, compressor_costs.as_slice())
            })
            .collect();
        if let Some((baseline, recommended)) =
            choose(&eligible_costs, &result.call_times, &objective)
        {
            result.measured_calls = Some(caller.measure(&recommended, measured_samples)?);
            (result.baseline, result.recommended) = (Some(baseline), Some(recommended));
        }
        Ok(())
    }

    /// The storage table.
    fn measure_storage(
        &self,
        samples: &Samples,
        store: &mut ClientStore<'_>,
        (stop, bar): (&Arc<AtomicBool>, &ProgressBar),
        result: &mut CodecResult,
    ) -> Result<(), Failure> {
        let values = samples.values.iter();
        let all_contents: Vec<u8> =
            values.flat_map(|sample| sample.bytes.iter().copied()).collect();
        let blocks = split_into_blocks(&all_contents);
        for (compressor_index, named_compressor) in STORAGE_COMPRESSORS.into_iter().enumerate() {
            let (compressor_name, _) = named_compressor;
            bar.set_position(600 + 80 * compressor_index as u64);
            let run = StorageRun {
                blocks: &blocks,
                key_prefix: format!("glasscache-codec:{:x}:{compressor_name}:", self.seed),
                seed: self.seed,
                stop,
            };
            let stored_row =
                store_and_read_blocks(&run, &mut CodecCompressor::new(named_compressor)?, store);
            let Some(stored_row) = stored_row.map_err(|error| failure(&error))? else {
                return Ok(());
            };
            result.storage_rows.push(stored_row);
        }
        Ok(())
    }

    fn print(&self, out: &Output, result: &CodecResult) -> Result<(), Failure> {
        if out.is_json() {
            out.set_result(&self.to_document(result));
            return Ok(());
        }
        out.print_line(table::format_result(result, self.all).trim_end())
    }

    fn to_document(&self, result: &CodecResult) -> Value {
        let recommended = result.recommended.as_ref().map(|choice| {
            let mut document = json!(choice);
            document["codec"] = json!(calls::format_codec_expression(choice));
            document["arguments"] = json!(calls::list_codec_arguments(choice));
            document["measured"] = json!(result.measured_calls);
            document
        });
        json!({
            "sentence": table::format_sentence(result),
            "values": result.value_count,
            "bytes": result.total_bytes,
            "skipped": result.skipped_values,
            "measured_values": result.measured_values,
            "server": result.server_name,
            "client": result.client_name,
            "network_mbit": result.network_mbit,
            "reads_per_write": result.reads_per_write,
            "candidates": result.candidates,
            "recommended": recommended,
            "before": result.baseline,
            "rows": result.storage_rows,
            "by_prefix": result.prefix_rows,
            "wire": result.call_times,
            "wrong_values": result.wrong_values(),
            "left_out": result.left_out,
            "seed": self.seed,
        })
    }
}

fn failure(error: &CallError) -> Failure {
    let exit = match error {
        CallError::Unreachable(_) => Exit::Unreachable,
        CallError::BadData(_) => Exit::BadData,
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_bytes_that_a_server_takes() {
        assert_eq!(parse_piece_bytes("512k"), Ok(512 << 10));
        assert_eq!(parse_piece_bytes("1000000"), Ok(1_000_000));
        for invalid_text in ["", "0", "1m", "x", "-1"] {
            assert!(parse_piece_bytes(invalid_text).is_err(), "{invalid_text}");
        }
    }

    #[test]
    fn reads_speeds_of_networks() {
        assert_eq!(parse_network("100mbit"), Ok(Network::Mbit(100.0)));
        assert_eq!(parse_network("2.5Gbit"), Ok(Network::Mbit(2500.0)));
        assert_eq!(parse_network("as-measured"), Ok(Network::AsMeasured));
        for invalid_text in ["", "100", "0gbit", "-1mbit", "gbit", "infgbit"] {
            assert!(parse_network(invalid_text).is_err(), "{invalid_text}");
        }
    }
}
