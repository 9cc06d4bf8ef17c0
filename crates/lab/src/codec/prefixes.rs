//! What the recommended compression saves by key prefix.

use super::compressors::Compressor;
use super::result::{CodecResult, PrefixRow};
use super::sample::Samples;
use crate::target::CallError;

/// Values of a prefix that are compressed; the rest is taken to be like them.
const VALUES_MAX: usize = 200;

/// A row for each prefix, the one with the most bytes first; no rows where no value has a key or all have one prefix.
pub(super) fn measure_prefixes(
    samples: &Samples,
    delimiters: &[u8],
    result: &CodecResult,
) -> Result<Vec<PrefixRow>, CallError> {
    let groups = samples.group_by_prefix(delimiters);
    let Some(choice) = result.recommended.as_ref().filter(|_| groups.len() > 1) else {
        return Ok(Vec::new());
    };
    let mut compressor = Compressor::of_choice(choice)?;
    let mut rows: Vec<PrefixRow> = groups
        .into_iter()
        .map(|(prefix, indices)| {
            let values: Vec<&[u8]> = indices
                .iter()
                .filter_map(|&index| Some(&samples.values.get(index)?.bytes[..]))
                .collect();
            let values_to_compress = values.iter().take(VALUES_MAX);
            let (mut bytes_before, mut bytes_after) = (0, 0);
            for value in values_to_compress {
                bytes_before += value.len();
                bytes_after += compressor.compress(value).bytes.len();
            }
            PrefixRow {
                prefix,
                values: values.len(),
                bytes: values.iter().map(|value| value.len() as u64).sum(),
                ratio: bytes_after as f64 / bytes_before.max(1) as f64,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.prefix.cmp(&b.prefix)));
    Ok(rows)
}
