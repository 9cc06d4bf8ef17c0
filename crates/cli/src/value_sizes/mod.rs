//! Sizes of values that were counted somewhere: on a running server, in a histogram, in a table of clusters.

mod clusters;
pub(crate) mod histogram;
pub(crate) mod server;

use std::path::{Path, PathBuf};

use glasscache_lab::load::{KEY_BYTES, Size};
use glasscache_sim::slabs::classes::head_bytes;

use crate::access;
use crate::output::{Exit, Failure};

/// The longest value of a load test; most servers refuse longer ones.
pub(crate) const VALUE_BYTES_MAX: u32 = 1_000_000;

/// Where sizes were counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SizeSource {
    /// A running server, by its `stats`.
    Stats(String),
    /// A CSV file of sizes and counts.
    Histogram(PathBuf),
    /// A CSV file of clusters with their mean value sizes.
    Clusters(PathBuf),
}

impl SizeSource {
    /// Reads `stats:SERVER`, `histogram:FILE` or `clusters:FILE`.
    pub(crate) fn parse(text: &str) -> Option<SizeSource> {
        let (kind, location) = text.split_once(':')?;
        match kind {
            _ if location.is_empty() => None,
            "stats" => Some(SizeSource::Stats(location.to_owned())),
            "histogram" => Some(SizeSource::Histogram(location.into())),
            "clusters" => Some(SizeSource::Clusters(location.into())),
            _ => None,
        }
    }

    /// The file that is read, if one is.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            SizeSource::Stats(_) => None,
            SizeSource::Histogram(path) | SizeSource::Clusters(path) => Some(path),
        }
    }

    /// Reads the sizes, so that items with the generator's keys are as large as those that were counted.
    pub(crate) fn read(&self, access: &access::Args) -> Result<Size, Failure> {
        let (counts, is_item_bytes) = match self {
            SizeSource::Stats(address) => {
                let sizes = server::read(address, access)?;
                for note in sizes.notes.iter().filter(|_| !sizes.is_glasscache) {
                    eprintln!("note: {note}");
                }
                (sizes.counts, true)
            }
            SizeSource::Histogram(path) => {
                let histogram =
                    histogram::read(path)?.ok_or_else(|| not_a_histogram_failure(path))?;
                (histogram.counts, histogram.is_item_bytes)
            }
            SizeSource::Clusters(path) => (clusters::read(path)?, false),
        };
        let overhead_bytes =
            if is_item_bytes { head_bytes(KEY_BYTES as u32, false) + 2 } else { 0 };
        let value_counts: Vec<(u32, u64)> = counts
            .into_iter()
            .map(|(bytes, count)| (bytes.saturating_sub(overhead_bytes), count))
            .collect();
        cut_to_limit(&value_counts)
    }
}

/// Sizes with those above the longest value cut to it, and a note on stderr that says how many.
fn cut_to_limit(counts: &[(u32, u64)]) -> Result<Size, Failure> {
    let total_count: u64 = counts.iter().map(|(_, count)| count).sum();
    if total_count == 0 {
        return Err(Failure::new(Exit::BadData, "the sizes have no counts (--size)"));
    }
    let is_long = |bytes: u32| bytes > VALUE_BYTES_MAX;
    let long_count: u64 =
        counts.iter().filter(|(bytes, _)| is_long(*bytes)).map(|(_, count)| count).sum();
    if long_count > 0 {
        let percent = 100.0 * long_count as f64 / total_count as f64;
        eprintln!(
            "note: {percent:.2} % of the sizes are above {VALUE_BYTES_MAX} bytes and are cut to that"
        );
    }
    let cut_counts = counts.iter().map(|&(bytes, count)| (bytes.min(VALUE_BYTES_MAX), count));
    Ok(Size::from_counts(&cut_counts.collect::<Vec<_>>()))
}

fn not_a_histogram_failure(path: &Path) -> Failure {
    let message = format!("{}: the header is not that of a histogram of sizes", path.display());
    Failure::new(Exit::BadData, message)
        .with_hint("the first line is `size,count` or `item_bytes,count`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_a_kind_and_an_address() {
        let stats = SizeSource::parse("stats:127.0.0.1:11211");
        assert_eq!(stats, Some(SizeSource::Stats("127.0.0.1:11211".to_owned())));
        let histogram = SizeSource::parse("histogram:a.csv");
        assert_eq!(histogram, Some(SizeSource::Histogram("a.csv".into())));
        assert_eq!(SizeSource::parse("histogram:"), None);
        assert_eq!(SizeSource::parse("lognormal:1:2"), None);
    }

    #[test]
    fn sizes_above_the_longest_value_are_cut_and_no_counts_are_refused() {
        let size = cut_to_limit(&[(5_000_000, 1), (10, 3)]).unwrap();
        assert_eq!(size, Size::FromTable([10, 10, 10, 1_000_000].into()));
        assert!(cut_to_limit(&[(10, 0)]).is_err());
    }
}
