//! The values in every form: each serialiser with each compressor, and a dictionary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use glasscache_lab::codec::{
    DictionaryPacker, Kind, Objective, PackerCosts, Sample, SerialiserCosts, measure, rank,
};
use indicatif::ProgressBar;

use super::Found;
use super::packers::{CodecPacker, METHODS};
use super::python::{FORMS, Python};
use crate::output::Failure;

/// Level of the dictionary's row.
const DICTIONARY_LEVEL: i32 = 3;

/// A serialiser's costs with those of every compressor.
pub(super) type Form = (SerialiserCosts, Vec<PackerCosts>);

/// Every serialiser with every compressor.
pub(super) fn measure_forms(
    drawn: &[&Sample],
    python: Option<&mut Python>,
    (stop, bar): (&Arc<AtomicBool>, &ProgressBar),
    found: &mut Found,
) -> Result<Vec<Form>, Failure> {
    let serialised = serialise(drawn, python, found);
    let steps = (serialised.len() * METHODS.len()).max(1);
    let mut forms: Vec<Form> = Vec::new();
    for serialiser in serialised {
        let mut packers = Vec::new();
        for row in METHODS {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let done = forms.len() * METHODS.len() + packers.len();
            bar.set_position((600 * done / steps) as u64);
            let costs = measure(&mut CodecPacker::new(row)?, &serialiser.bodies);
            found.wrong += costs.wrong;
            packers.push(costs);
        }
        forms.push((serialiser, packers));
    }
    Ok(forms)
}

/// The values in each serialised form; as they are where all are texts or bytes, or where there is no Python.
fn serialise(
    drawn: &[&Sample],
    python: Option<&mut Python>,
    found: &mut Found,
) -> Vec<SerialiserCosts> {
    let has_objects = drawn.iter().any(|sample| sample.kind == Kind::Object);
    let as_they_are =
        || SerialiserCosts::free(drawn.iter().map(|sample| sample.bytes.clone()).collect());
    let Some(python) = python.filter(|_| has_objects) else {
        return vec![as_they_are()];
    };
    let mut serialised = Vec::new();
    for form in FORMS {
        match python.serialise(form) {
            Ok(costs) => serialised.push(costs),
            Err(left_out) if left_out.is_absent => {
                found.left_out.push(format!("{form} (not installed)"));
            }
            Err(left_out) => found.left_out.push(format!("{form} ({})", left_out.reason)),
        }
    }
    if !serialised.iter().any(|form| form.name.starts_with("Codec")) {
        serialised.insert(0, as_they_are());
    }
    serialised
}

/// The row of a dictionary, trained on one half of the values in the first form and evaluated on the other.
pub(super) fn add_dictionary(
    forms: &[Form],
    drawn: &[&Sample],
    objective: &Objective,
    found: &mut Found,
) {
    let Some((serialiser, _)) = forms.first() else {
        return;
    };
    let half = serialiser.bodies.len() / 2;
    let (trained, rest) = serialiser.bodies.split_at(half);
    let trained: Vec<&[u8]> = trained.iter().map(Vec::as_slice).collect();
    let mut packer = match DictionaryPacker::train(&trained, DICTIONARY_LEVEL) {
        Ok(packer) => packer,
        Err(reason) => {
            found
                .left_out
                .push(format!("a dictionary of zstd ({reason})"));
            return;
        }
    };
    let costs = measure(&mut packer, rest);
    found.wrong += costs.wrong;
    let given = drawn
        .iter()
        .skip(half)
        .map(|sample| sample.bytes.len())
        .sum();
    let half_of = |list: &[u64]| list.get(half..).unwrap_or_default().to_vec();
    let rest = SerialiserCosts {
        name: serialiser.name.clone(),
        write_ns: half_of(&serialiser.write_ns),
        read_ns: half_of(&serialiser.read_ns),
        bodies: rest.to_vec(),
    };
    let row = rank(&rest, &costs, given, &found.wire, objective);
    found.candidates.push(row);
}
