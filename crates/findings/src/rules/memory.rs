//! Memory: too little, too much, or none for a value.

use std::time::Duration;

use crate::counters::Counters;
use crate::curve::Resize;
use crate::numbers::{format_bytes, format_count, format_decimal, format_duration, format_percent};
use crate::rules::items::is_flood;
use crate::{Figures, Finding};

/// Evictions over sets from which on the memory is short.
const EVICTED_SHARE_MIN: f64 = 0.05;
/// Misses over gets from which on evictions matter.
const MISS_RATIO_MIN: f64 = 0.05;
/// Bytes below which a smaller limit saves nothing worth a word.
const GIVEN_BACK_BYTES_MIN: u64 = 100_000_000;
/// Fill below which a memory is too large.
const LOW_FILL: f64 = 0.4;
/// Room above what is used in the smaller limit that is suggested.
const HEADROOM: f64 = 1.5;
/// Seconds in which a memory that fills at the observed rate is not too large.
const FILL_TIME_S: f64 = 86_400.0;

/// Values were refused because there was no memory for them.
pub(super) fn find_no_memory(figures: &Figures) -> Option<Finding> {
    let refused = figures.now.values_without_memory;
    (refused > 0).then(|| Finding {
        id: "no_memory",
        sentence: format!(
            "{} values were refused because there was no memory for them.",
            format_count(refused)
        ),
        value: refused as f64,
        setting: format_memory_setting(figures.now.limit_bytes * 2),
        gain: "sets are stored instead of refused".to_owned(),
    })
}

/// Items are evicted that are missed afterwards: by the curve where it can tell, otherwise by the counters.
pub(super) fn find_too_small(figures: &Figures) -> Option<Finding> {
    let (counted, seconds) = figures.counted();
    if let Some(curve) = figures.curve.as_ref().filter(|curve| !curve.points.is_empty()) {
        if let Some(growth) = curve.best_growth(figures.now.limit_bytes) {
            return Some(find_too_small_by_curve(figures, &growth));
        }
        if curve.is_flat_above(figures.now.limit_bytes) {
            return None;
        }
    }
    let is_short = counted.evictions as f64 >= EVICTED_SHARE_MIN * counted.sets as f64
        && counted.evictions > 0
        && counted.misses() as f64 >= MISS_RATIO_MIN * counted.gets as f64
        && counted.misses() > 0;
    if !is_short || is_flood(figures) {
        return None;
    }
    let misses_per_second = counted.misses() as f64 / seconds;
    let avoidable = counted.misses().min(counted.evictions) as f64 / seconds;
    Some(Finding {
        sentence: format!(
            "{} evicts {} items/s{} and misses {} of the gets.",
            format_bytes(figures.now.limit_bytes),
            format_decimal(counted.evictions as f64 / seconds),
            format_age(figures.eviction_age_s),
            format_percent(Some(miss_ratio(counted))),
        ),
        setting: format_memory_setting(figures.now.limit_bytes * 2),
        gain: format!(
            "avoids at most {} of {} misses/s",
            format_decimal(avoidable),
            format_decimal(misses_per_second)
        ),
        ..new_too_small(figures)
    })
}

fn find_too_small_by_curve(figures: &Figures, growth: &Resize) -> Finding {
    let (counted, seconds) = figures.counted();
    let limit_bytes = figures.now.limit_bytes;
    let misses_per_second = counted.gets as f64 / seconds * growth.miss_ratio_now;
    let added_bytes = growth.memory_bytes - limit_bytes;
    Finding {
        sentence: format!(
            "{} misses {} of the gets; by its own curve {} more ({:+.0} %) miss {}.",
            format_bytes(limit_bytes),
            format_percent(Some(growth.miss_ratio_now)),
            format_bytes(added_bytes),
            100.0 * added_bytes as f64 / limit_bytes as f64,
            format_percent(Some(growth.miss_ratio)),
        ),
        setting: format_memory_setting(growth.memory_bytes),
        gain: format!(
            "avoids {} of {} misses/s ({:.0} % \u{b1} {:.0})",
            format_decimal(misses_per_second * growth.avoided_share()),
            format_decimal(misses_per_second),
            100.0 * growth.avoided_share(),
            100.0 * growth.margin / growth.miss_ratio_now.max(f64::MIN_POSITIVE),
        ),
        ..new_too_small(figures)
    }
}

fn new_too_small(figures: &Figures) -> Finding {
    let (counted, seconds) = figures.counted();
    Finding {
        id: "too_small",
        sentence: String::new(),
        value: counted.evictions as f64 / seconds,
        setting: String::new(),
        gain: String::new(),
    }
}

/// How long the last evicted item had not been used, as a part of a sentence.
fn format_age(eviction_age_s: Option<u64>) -> String {
    let age = eviction_age_s.map(|seconds| format_duration(Duration::from_secs(seconds.max(1))));
    age.map_or_else(String::new, |age| format!(" after {age} without use"))
}

fn miss_ratio(counted: &Counters) -> f64 {
    counted.misses() as f64 / counted.gets.max(1) as f64
}

/// Memory that brings nothing: by the curve, or because it was never filled and does not fill now.
pub(super) fn find_too_large(figures: &Figures) -> Option<Finding> {
    let now = &figures.now;
    if let Some(curve) = figures.curve.as_ref().filter(|curve| !curve.points.is_empty()) {
        let shrink = curve.best_shrink(now.limit_bytes)?;
        let sentence = format!(
            "By its own curve {} would miss {} of the gets, and {} miss {}.",
            format_bytes(shrink.memory_bytes),
            format_percent(Some(shrink.miss_ratio)),
            format_bytes(now.limit_bytes),
            format_percent(Some(shrink.miss_ratio_now)),
        );
        return new_too_large(figures, shrink.memory_bytes, sentence);
    }
    let needed_bytes = (now.bytes as f64 * HEADROOM) as u64;
    let was_never_full = now.items > 0
        && now.evictions == 0
        && now.fill().is_some_and(|fill| fill < LOW_FILL)
        && !fills_within_a_day(figures);
    let sentence = format!(
        "After {} only {} of {} ({}) are used, and nothing was ever evicted.",
        format_duration(Duration::from_secs(now.uptime_s)),
        format_bytes(now.bytes),
        format_bytes(now.limit_bytes),
        format_percent(now.fill()),
    );
    was_never_full.then(|| new_too_large(figures, needed_bytes, sentence)).flatten()
}

/// The finding, where the smaller limit saves enough.
fn new_too_large(figures: &Figures, smaller_bytes: u64, sentence: String) -> Option<Finding> {
    let given_back = figures.now.limit_bytes.saturating_sub(smaller_bytes);
    (given_back >= GIVEN_BACK_BYTES_MIN).then(|| Finding {
        id: "too_large",
        sentence,
        value: given_back as f64,
        setting: format_memory_setting(smaller_bytes),
        gain: format!("gives back {} at almost the same hit ratio", format_bytes(given_back)),
    })
}

/// Whether the sets of the observed interval would fill the memory within a day.
fn fills_within_a_day(figures: &Figures) -> bool {
    let (now, Some(recent)) = (&figures.now, &figures.recent) else {
        return false;
    };
    let mean_bytes = now.bytes as f64 / now.items.max(1) as f64;
    let set_bytes_per_second = recent.sets as f64 * mean_bytes / figures.seconds.max(0.001);
    let replaces_items = now.sets > 3 * now.items;
    !replaces_items
        && set_bytes_per_second * FILL_TIME_S > now.limit_bytes.saturating_sub(now.bytes) as f64
}

/// The setting for a memory limit, in whole mebibytes.
fn format_memory_setting(bytes: u64) -> String {
    format!("-m {}", bytes.div_ceil(1 << 20).max(1))
}
