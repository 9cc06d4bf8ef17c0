//! What the recommended compression saves by key prefix.

use glasscache_lab::codec::{Packer, Samples};
use serde::Serialize;

use super::Found;
use super::packers::{CodecPacker, METHODS};
use crate::output::Failure;

/// Values of a prefix that are compressed; the rest is taken to be like them.
const VALUES_MAX: usize = 200;

/// The values whose keys begin alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PrefixRow {
    /// The prefix with its end; empty for keys without one.
    pub(super) prefix: String,
    /// Its values.
    pub(super) values: usize,
    /// Their bytes as they were given.
    pub(super) bytes: u64,
    /// Compressed bytes over those before, with the recommended compressor and threshold.
    pub(super) ratio: f64,
}

/// A row for each prefix, that with the most bytes first; none where no value has a key or all have one prefix.
pub(super) fn rows(
    samples: &Samples,
    delimiters: &[u8],
    found: &Found,
) -> Result<Vec<PrefixRow>, Failure> {
    let groups = samples.by_prefix(delimiters);
    let Some(choice) = found.recommended.as_ref().filter(|_| groups.len() > 1) else {
        return Ok(Vec::new());
    };
    let row = METHODS.iter().find(|(name, _)| *name == choice.compressor);
    let row = row.copied().unwrap_or(("none", None));
    let threshold = choice.threshold_bytes.unwrap_or(usize::MAX);
    let mut packer = CodecPacker::with_threshold(row, threshold, 10)?;
    let mut rows: Vec<PrefixRow> = groups
        .into_iter()
        .map(|(prefix, indices)| {
            let values: Vec<&[u8]> = indices
                .iter()
                .filter_map(|&index| Some(&samples.values.get(index)?.bytes[..]))
                .collect();
            let packed = values.iter().take(VALUES_MAX);
            let (mut before, mut after) = (0, 0);
            for value in packed {
                before += value.len();
                after += packer.pack(value).bytes.len();
            }
            PrefixRow {
                prefix,
                values: values.len(),
                bytes: values.iter().map(|value| value.len() as u64).sum(),
                ratio: after as f64 / before.max(1) as f64,
            }
        })
        .collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.prefix.cmp(&b.prefix)));
    Ok(rows)
}
