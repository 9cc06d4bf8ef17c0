//! The measurement of a set of values: calls by size, every form, the choice, key prefixes, storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::call::CodecObjective;
use super::calls::Caller;
use super::choice::{choose, evaluate_candidate};
use super::compressors::{Compressor, STORAGE_COMPRESSORS};
use super::costs::{CompressorCosts, SerialiserCosts, is_serialiser_of_client};
use super::forms::{CostsWithCompressors, add_dictionary, measure_forms};
use super::in_use::CodecInUse;
use super::prefixes::measure_prefixes;
use super::python::PythonValues;
use super::report::build_report;
use super::result::CodecResult;
use super::sample::{Sample, Samples};
use super::storage::{StorageRun, split_into_blocks, store_and_read_blocks};
use super::value_store::ValueStore;
use crate::report::Outcome;
use crate::target::{CallError, Target};

/// Values that every form is measured with.
const VALUES_MAX: usize = 1000;

/// Bytes of these values.
const VALUES_BYTES_MAX: usize = 2 << 20;

/// Progress after the forms and for each row of the storage table, in thousandths.
const PROGRESS_OF_FORMS: usize = 600;
const PROGRESS_OF_STORAGE_ROW: usize = 80;

/// What to measure, and for which network.
#[derive(Debug)]
pub struct Settings {
    /// Speed of the network on top of what was measured against the server; `None`: as measured.
    pub network_mbit: Option<f64>,
    /// Gets for each set.
    pub reads_per_write: f64,
    /// The codec with which every form is compared.
    pub codec_in_use: CodecInUse,
    /// The prefix of a key ends at the first of these.
    pub prefix_ends: Vec<u8>,
    /// Decides which values are measured, their keys, and the order of reading.
    pub seed: u64,
    /// Ends the run when set; what was measured is kept.
    pub stop: Arc<AtomicBool>,
}

/// Measures the values against `target`. Reports its progress in thousandths.
///
/// # Errors
/// A failure before any form was measured.
pub fn run(
    samples: &Samples,
    target: &Target,
    settings: &Settings,
    mut progress: impl FnMut(usize),
) -> Result<Outcome<CallError>, CallError> {
    let measured_samples = samples.draw(VALUES_MAX, VALUES_BYTES_MAX, settings.seed);
    let mut result = CodecResult {
        value_count: samples.values.len(),
        total_bytes: samples.total_bytes(),
        skipped_values: samples.skipped_values,
        is_truncated: samples.is_truncated,
        measured_values: measured_samples.len(),
        server_name: target.describe(),
        network_mbit: settings.network_mbit,
        reads_per_write: settings.reads_per_write,
        expression_in_use: settings.codec_in_use.expression.clone(),
        ..CodecResult::default()
    };
    let ended = measure(samples, &measured_samples, target, (settings, &mut progress), &mut result);
    match ended {
        Err(error) if result.candidates.is_empty() => Err(error),
        ended => Ok(Outcome {
            report: build_report(&result, settings.seed),
            wrong_values: result.wrong_values(),
            is_stopped: settings.stop.load(Ordering::Relaxed),
            error: ended.err(),
        }),
    }
}

fn measure(
    samples: &Samples,
    measured_samples: &[&Sample],
    target: &Target,
    (settings, progress): (&Settings, &mut dyn FnMut(usize)),
    result: &mut CodecResult,
) -> Result<(), CallError> {
    let python = PythonValues::start(measured_samples);
    if let Err(reason) = &python {
        result.left_out.push(format!("Python's serialisers ({reason})"));
    }
    let mut caller = Caller {
        python: python.ok(),
        rust_client: ValueStore::new(target)?,
        key_prefix: format!("glasscache-codec:{:x}:", settings.seed),
    };
    result.client_name = caller.client_name();
    let bytes_max = measured_samples.iter().map(|sample| sample.bytes.len()).max();
    result.call_times = caller.measure_call_times(bytes_max.unwrap_or(0))?;
    let stop = &settings.stop;
    let costs_by_serialiser = measure_forms(
        measured_samples,
        &settings.codec_in_use,
        caller.python.as_mut(),
        (stop, progress),
        result,
    )?;
    recommend(&costs_by_serialiser, measured_samples, settings, &mut caller, result)?;
    if !stop.load(Ordering::Relaxed) {
        result.prefix_rows = measure_prefixes(samples, &settings.prefix_ends, result)?;
        measure_storage(samples, &caller.rust_client, settings, progress, result)?;
    }
    Ok(())
}

/// Ranks the forms, chooses one and measures it.
fn recommend(
    costs_by_serialiser: &[CostsWithCompressors],
    measured_samples: &[&Sample],
    settings: &Settings,
    caller: &mut Caller<'_>,
    result: &mut CodecResult,
) -> Result<(), CallError> {
    let objective = CodecObjective {
        ns_per_byte: settings.network_mbit.map_or(0.0, |mbit| 8e3 / mbit),
        reads_per_write: settings.reads_per_write,
    };
    let plain_bytes: usize = measured_samples.iter().map(|sample| sample.bytes.len()).sum();
    for (serialiser_costs, compressor_costs) in costs_by_serialiser {
        result.candidates.extend(compressor_costs.iter().map(|costs| {
            evaluate_candidate(serialiser_costs, costs, plain_bytes, &result.call_times, &objective)
        }));
    }
    add_dictionary(costs_by_serialiser, measured_samples, &objective, result);
    result.candidates.sort_by(|first, second| {
        let by_time = first.call_us.total_cmp(&second.call_us);
        second.is_in_client.cmp(&first.is_in_client).then(by_time)
    });
    let codec_in_use = &settings.codec_in_use;
    let eligible_costs: Vec<(&SerialiserCosts, &[CompressorCosts])> = costs_by_serialiser
        .iter()
        .filter(|(costs, _)| {
            is_serialiser_of_client(&costs.name) || costs.name == codec_in_use.serialiser
        })
        .map(|(serialiser_costs, compressor_costs)| (serialiser_costs, compressor_costs.as_slice()))
        .collect();
    let Some(choices) = choose(&eligible_costs, &result.call_times, &objective, codec_in_use)
    else {
        return Ok(());
    };
    let other = (!choices.best.is_same_form(&choices.in_use)).then_some(&choices.best);
    let (measured_calls, comparison) =
        caller.compare(&choices.in_use, other, measured_samples, &objective)?;
    let is_better = comparison.as_ref().is_some_and(|comparison| comparison.is_better);
    result.recommended = Some(if is_better { &choices.best } else { &choices.in_use }.clone());
    result.in_use = Some(choices.in_use);
    result.measured_calls = Some(measured_calls);
    result.comparison = comparison;
    result.rivals = choices.rivals;
    Ok(())
}

/// The storage table.
fn measure_storage(
    samples: &Samples,
    store: &ValueStore<'_>,
    settings: &Settings,
    progress: &mut dyn FnMut(usize),
    result: &mut CodecResult,
) -> Result<(), CallError> {
    let values = samples.values.iter();
    let all_contents: Vec<u8> = values.flat_map(|sample| sample.bytes.iter().copied()).collect();
    let blocks = split_into_blocks(&all_contents);
    for (compressor_index, named_compressor) in STORAGE_COMPRESSORS.into_iter().enumerate() {
        let (compressor_name, _) = named_compressor;
        progress(PROGRESS_OF_FORMS + PROGRESS_OF_STORAGE_ROW * compressor_index);
        let run = StorageRun {
            blocks: &blocks,
            key_prefix: format!("glasscache-codec:{:x}:{compressor_name}:", settings.seed),
            seed: settings.seed,
            stop: &settings.stop,
        };
        let mut compressor = Compressor::new(named_compressor)?;
        let Some(stored_row) = store_and_read_blocks(&run, &mut compressor, store)? else {
            return Ok(());
        };
        result.storage_rows.push(stored_row);
    }
    Ok(())
}
