//! The values in every form: each serialiser with each compressor, and a dictionary.

use std::sync::atomic::{AtomicBool, Ordering};

use super::call::CodecObjective;
use super::choice::evaluate_candidate;
use super::compressor_name::read_compressor_name;
use super::compressors::{COMPRESSORS, Compressor};
use super::costs::{CompressorCosts, SerialiserCosts, is_serialiser_of_client};
use super::in_use::CodecInUse;
use super::measure::measure;
use super::python::{PythonValues, SERIALISERS};
use super::result::CodecResult;
use super::sample::{Sample, ValueKind};
use crate::target::CallError;

/// Level of the dictionary's row.
const DICTIONARY_LEVEL: i32 = 3;

/// A serialiser's costs with those of every compressor.
pub(super) type CostsWithCompressors = (SerialiserCosts, Vec<CompressorCosts>);

/// Every serialiser with every compressor, and that of the codec in use.
pub(super) fn measure_forms(
    measured_samples: &[&Sample],
    codec_in_use: &CodecInUse,
    python: Option<&mut PythonValues>,
    (stop, progress): (&AtomicBool, &mut dyn FnMut(usize)),
    result: &mut CodecResult,
) -> Result<Vec<CostsWithCompressors>, CallError> {
    let all_serialiser_costs = serialise(measured_samples, python, result);
    let name_in_use = codec_in_use.compressor_name();
    let in_use = (name_in_use.as_str(), read_compressor_name(&name_in_use));
    let is_listed = COMPRESSORS.iter().any(|(name, _)| *name == name_in_use);
    let compressors: Vec<_> =
        COMPRESSORS.into_iter().chain((!is_listed).then_some(in_use)).collect();
    let measurement_count = (all_serialiser_costs.len() * compressors.len()).max(1);
    let mut costs_by_serialiser: Vec<CostsWithCompressors> = Vec::new();
    for serialiser_costs in all_serialiser_costs {
        let mut compressor_costs = Vec::new();
        for &named_compressor in &compressors {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let measured_count =
                costs_by_serialiser.len() * compressors.len() + compressor_costs.len();
            progress(600 * measured_count / measurement_count);
            let costs = measure(&mut Compressor::new(named_compressor)?, &serialiser_costs.bodies);
            result.compressor_mismatches += costs.wrong_values;
            compressor_costs.push(costs);
        }
        costs_by_serialiser.push((serialiser_costs, compressor_costs));
    }
    Ok(costs_by_serialiser)
}

/// The values in each serialised form; as they are where all are texts or bytes, or where there is no Python.
fn serialise(
    measured_samples: &[&Sample],
    python: Option<&mut PythonValues>,
    result: &mut CodecResult,
) -> Vec<SerialiserCosts> {
    let has_objects = measured_samples.iter().any(|sample| sample.kind == ValueKind::Object);
    let unserialised = || {
        SerialiserCosts::without_serialiser(
            measured_samples.iter().map(|sample| sample.bytes.clone()).collect(),
        )
    };
    let Some(python) = python.filter(|_| has_objects) else {
        return vec![unserialised()];
    };
    let mut all_serialiser_costs = Vec::new();
    for serialiser_name in SERIALISERS {
        match python.serialise(serialiser_name) {
            Ok(costs) => all_serialiser_costs.push(costs),
            Err(failure) if failure.is_not_installed => {
                result.left_out.push(format!("{serialiser_name} (not installed)"));
            }
            Err(failure) => result.left_out.push(format!("{serialiser_name} ({})", failure.reason)),
        }
    }
    if !all_serialiser_costs.iter().any(|costs| is_serialiser_of_client(&costs.name)) {
        all_serialiser_costs.insert(0, unserialised());
    }
    all_serialiser_costs
}

/// The row of a dictionary, trained on one half of the values in the first form and evaluated on the other.
pub(super) fn add_dictionary(
    costs_by_serialiser: &[CostsWithCompressors],
    measured_samples: &[&Sample],
    objective: &CodecObjective,
    result: &mut CodecResult,
) {
    let Some((serialiser_costs, _)) = costs_by_serialiser.first() else {
        return;
    };
    let first_half_len = serialiser_costs.bodies.len() / 2;
    let (training_bodies, held_out_bodies) = serialiser_costs.bodies.split_at(first_half_len);
    let training_bodies: Vec<&[u8]> = training_bodies.iter().map(Vec::as_slice).collect();
    let mut compressor = match Compressor::train(&training_bodies, DICTIONARY_LEVEL) {
        Ok(compressor) => compressor,
        Err(reason) => {
            result.left_out.push(format!("a dictionary of zstd ({reason})"));
            return;
        }
    };
    let costs = measure(&mut compressor, held_out_bodies);
    result.compressor_mismatches += costs.wrong_values;
    let plain_bytes =
        measured_samples.iter().skip(first_half_len).map(|sample| sample.bytes.len()).sum();
    let held_out = |list: &[u64]| list.get(first_half_len..).unwrap_or_default().to_vec();
    let held_out_costs = SerialiserCosts {
        name: serialiser_costs.name.clone(),
        write_ns: held_out(&serialiser_costs.write_ns),
        read_ns: held_out(&serialiser_costs.read_ns),
        bodies: held_out_bodies.to_vec(),
    };
    let dictionary_candidate =
        evaluate_candidate(&held_out_costs, &costs, plain_bytes, &result.call_times, objective);
    result.candidates.push(dictionary_candidate);
}
