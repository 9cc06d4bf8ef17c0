//! The values of a load test's options: rates, popularities, sizes and shares.

use std::path::PathBuf;

use glasscache_lab::load::Size;

use crate::value_sizes::{SizeSource, VALUE_BYTES_MAX};

/// Exponent of Zipf's law where the option gives none.
const ZIPF_EXPONENT: f64 = 0.99;

/// How keys are chosen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PopularityArg {
    /// Each with the same chance.
    Uniform,
    /// By Zipf's law, with its exponent.
    Zipf(f64),
    /// In the order of a trace.
    Trace(PathBuf),
}

/// Sizes of values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SizeArg {
    /// A fixed size or a statistical distribution.
    Distribution(Size),
    /// The sizes that a server or a file lists.
    FromSource(SizeSource),
    /// The sizes of the trace that gives the keys.
    Trace,
}

/// The mix of a load test.
#[derive(Debug, Clone, Copy)]
pub(super) struct MixArg {
    /// Shares of get, multi-get, set and delete.
    pub(super) shares: [f64; 4],
}

/// The kinds of requests, in the order of [`MixArg::shares`].
const REQUEST_KINDS: [&str; 4] = ["get", "multi-get", "set", "delete"];

fn parse_positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    parse_positive(text).ok_or_else(|| format!("{text:?}: expected a number above 0"))
}

pub(super) fn parse_popularity(text: &str) -> Result<PopularityArg, String> {
    let format_expected =
        || format!("{text:?}: expected uniform, zipf, zipf:EXPONENT or trace:FILE");
    match text.split_once(':') {
        None if text == "uniform" => Ok(PopularityArg::Uniform),
        None if text == "zipf" => Ok(PopularityArg::Zipf(ZIPF_EXPONENT)),
        Some(("zipf", exponent)) => {
            let exponent = parse_positive(exponent).ok_or_else(format_expected)?;
            Ok(PopularityArg::Zipf(exponent))
        }
        Some(("trace", file)) if !file.is_empty() => Ok(PopularityArg::Trace(file.into())),
        _ => Err(format_expected()),
    }
}

pub(super) fn parse_size(text: &str) -> Result<SizeArg, String> {
    let format_expected = || {
        format!(
            "{text:?}: expected bytes, such as 100, lognormal:MEDIAN:SIGMA, stats:SERVER, histogram:FILE, \
             clusters:FILE, or trace"
        )
    };
    if text == "trace" {
        return Ok(SizeArg::Trace);
    }
    if let Some(source) = SizeSource::parse(text) {
        return Ok(SizeArg::FromSource(source));
    }
    if let Some(parameters) = text.strip_prefix("lognormal:") {
        let (median, sigma) = parameters.split_once(':').ok_or_else(format_expected)?;
        let (median, sigma) =
            parse_positive(median).zip(parse_positive(sigma)).ok_or_else(format_expected)?;
        return Ok(SizeArg::Distribution(Size::LogNormal { median, sigma, max: VALUE_BYTES_MAX }));
    }
    let bytes: u32 = text.parse().map_err(|_| format_expected())?;
    let is_valid = bytes <= 1 << 30;
    is_valid.then_some(SizeArg::Distribution(Size::Fixed(bytes))).ok_or_else(format_expected)
}

pub(super) fn parse_mix(text: &str) -> Result<MixArg, String> {
    let format_expected = || {
        format!(
            "{text:?}: expected shares such as get=9,set=1; kinds are {}",
            REQUEST_KINDS.join(", ")
        )
    };
    let mut shares = [0.0; 4];
    for kind_and_share in text.split(',') {
        let (kind, share) = kind_and_share.split_once('=').ok_or_else(format_expected)?;
        let kind_index = REQUEST_KINDS
            .iter()
            .position(|kind_name| *kind_name == kind)
            .ok_or_else(format_expected)?;
        shares[kind_index] = parse_positive(share).ok_or_else(format_expected)?;
    }
    Ok(MixArg { shares })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_parsed_and_an_unknown_kind_is_refused() {
        assert!(
            parse_mix("get=9,set=1")
                .is_ok_and(|mix| mix.shares.map(|share| share as u32) == [9, 0, 1, 0])
        );
        assert!(parse_mix("get=9,put=1").is_err_and(|error| error.contains("multi-get")));
    }

    #[test]
    fn sizes_are_parsed_and_invalid_ones_are_refused() {
        assert_eq!(parse_size("lognormal:230:1.5"), Ok(SizeArg::Distribution(Size::MIX)));
        assert_eq!(parse_size("trace"), Ok(SizeArg::Trace));
        let stats = SizeSource::Stats("cache1:11211".to_owned());
        assert_eq!(parse_size("stats:cache1:11211"), Ok(SizeArg::FromSource(stats)));
        for invalid_text in ["1k", "lognormal:1", "histogram:", "clusters"] {
            assert!(parse_size(invalid_text).is_err(), "{invalid_text}");
        }
    }

    #[test]
    fn popularities_are_parsed_and_invalid_ones_are_refused() {
        assert_eq!(parse_popularity("zipf:0.9"), Ok(PopularityArg::Zipf(0.9)));
        assert_eq!(parse_popularity("trace:a:b.csv"), Ok(PopularityArg::Trace("a:b.csv".into())));
        for invalid_text in ["zipf:0", "normal", "trace:"] {
            assert!(parse_popularity(invalid_text).is_err(), "{invalid_text}");
        }
    }
}
