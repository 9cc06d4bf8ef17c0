//! Items: hot keys, huge values, TTLs, and values that nobody reads.

use crate::key_sample::SampledItem;
use crate::numbers::{format_bytes, format_count, format_decimal, format_percent};
use crate::{Figures, Finding};

/// Share of the gets from which on one key decides the load of its server.
const HOT_SHARE_MIN: f64 = 0.25;
/// Requests for a key below which its share is chance.
const HOT_REQUESTS_MIN: u64 = 100;
/// Bytes from which on a value delays the requests behind it.
const HUGE_BYTES: u64 = 100_000;
/// Share of the sampled bytes in such values.
const HUGE_SHARE_MIN: f64 = 0.5;
/// Share of the items that were never read.
const UNREAD_SHARE_MIN: f64 = 0.75;
/// Share of the items without TTL.
const WITHOUT_TTL_SHARE_MIN: f64 = 0.9;
/// Share of the items with a TTL that expire together.
const ALIKE_SHARE_MIN: f64 = 0.5;
/// The span in which they expire, as a part of the time that is left to most.
const ALIKE_SPAN_PARTS: u64 = 50;
/// Items below which a sample has no shares.
const SAMPLE_ITEMS_MIN: usize = 100;
/// Values below which a sample has no share of huge ones.
const HUGE_SAMPLE_ITEMS_MIN: usize = 10;

/// One key has a large share of the gets.
pub(super) fn find_hot_key(figures: &Figures) -> Option<Finding> {
    let hottest = figures.hot_keys.first()?;
    let is_hot = hottest.share >= HOT_SHARE_MIN && hottest.requests >= HOT_REQUESTS_MIN;
    is_hot.then(|| Finding {
        id: "one_hot_key",
        sentence: format!(
            "One key, {}, has {} of the gets.",
            hottest.key,
            format_percent(Some(hottest.share))
        ),
        value: hottest.share,
        setting: "in the clients strategy=\"lru:1000\" with near_ttl (a near cache)".to_owned(),
        gain: format!("up to {} fewer gets at this server", format_percent(Some(hottest.share))),
    })
}

/// Values were refused because of their size.
pub(super) fn find_refused_values(figures: &Figures) -> Option<Finding> {
    let refused = figures.now.values_too_large;
    (refused > 0).then(|| Finding {
        id: "values_refused",
        sentence: format!(
            "{} values were refused because they were larger than -I allows.",
            format_count(refused)
        ),
        value: refused as f64,
        setting: "-I, or compression in the client".to_owned(),
        gain: "these values are cached; until then each get of them misses".to_owned(),
    })
}

/// Huge values take most of the memory.
pub(super) fn find_huge_values(figures: &Figures) -> Option<Finding> {
    let sample = figures.key_sample.as_ref()?;
    if sample.len() < HUGE_SAMPLE_ITEMS_MIN {
        return None;
    }
    let is_huge = |item: &&SampledItem| item.bytes >= HUGE_BYTES;
    let huge: Vec<&SampledItem> = sample.items.iter().filter(is_huge).collect();
    let total_bytes: u64 = sample.items.iter().map(|item| item.bytes).sum();
    let huge_bytes: u64 = huge.iter().map(|item| item.bytes).sum();
    let share = huge_bytes as f64 / total_bytes.max(1) as f64;
    let largest_bytes = huge.iter().map(|item| item.bytes).max()?;
    (share >= HUGE_SHARE_MIN).then(|| Finding {
        id: "huge_values",
        sentence: format!(
            "{} of {} sampled values have {} and more (the largest {}) and take {} of the bytes.",
            format_count(huge.len() as u64),
            format_count(sample.len() as u64),
            format_bytes(HUGE_BYTES),
            format_bytes(largest_bytes),
            format_percent(Some(share)),
        ),
        value: share,
        setting: "compression in the client (glasscache codec measures it), or smaller values".to_owned(),
        gain: "short gets no longer wait behind long ones; compressed to a third, the memory holds more items".to_owned(),
    })
}

/// Whether most items are never read, and most sets follow no miss.
pub(super) fn is_flood(figures: &Figures) -> bool {
    find_unread_share(figures).is_some()
}

/// The share of the items that were never read, where that is a flood of sets.
fn find_unread_share(figures: &Figures) -> Option<f64> {
    let (counted, _) = figures.counted();
    // A program that fills its cache after misses sets about once a miss.
    let is_unrequested =
        counted.sets >= 2 * counted.misses().max(50) && 2 * counted.sets >= counted.gets;
    let sample = figures.key_sample.as_ref();
    let of_sample =
        sample.and_then(|sample| sample.share_of(SAMPLE_ITEMS_MIN, |item| !item.was_read));
    let of_evicted = (counted.evictions as usize >= SAMPLE_ITEMS_MIN)
        .then(|| counted.evicted_unread as f64 / counted.evictions as f64);
    let share = of_sample.into_iter().chain(of_evicted).fold(0.0, f64::max);
    (is_unrequested && share >= UNREAD_SHARE_MIN).then_some(share)
}

/// A flood of sets whose values nobody reads.
pub(super) fn find_never_read_sets(figures: &Figures) -> Option<Finding> {
    let share = find_unread_share(figures)?;
    let (counted, seconds) = figures.counted();
    Some(Finding {
        id: "never_read_sets",
        sentence: format!(
            "{} of the items were never read, while {} sets/s arrive for {} gets/s.",
            format_percent(Some(share)),
            format_decimal(counted.sets as f64 / seconds),
            format_decimal(counted.gets as f64 / seconds),
        ),
        value: share,
        setting: "in the application: store after a miss only (get_or_set), or a short TTL for these keys".to_owned(),
        gain: format!("{} of the sets and of the memory they take", format_percent(Some(share))),
    })
}

/// Most items with a TTL expire at the same time.
pub(super) fn find_ttls_alike(figures: &Figures) -> Option<Finding> {
    let sample = figures.key_sample.as_ref()?;
    let now_s = figures.now.time_unix_s;
    let to_remaining = |item: &SampledItem| item.expires_unix_s?.checked_sub(now_s);
    let mut remaining_s: Vec<u64> = sample.items.iter().filter_map(to_remaining).collect();
    if remaining_s.len() < SAMPLE_ITEMS_MIN.max(sample.len() / 2) {
        return None;
    }
    remaining_s.sort_unstable();
    let median_s = remaining_s[remaining_s.len() / 2];
    let span_s = (median_s / ALIKE_SPAN_PARTS).max(1);
    let most = count_within(&remaining_s, span_s);
    let share = most as f64 / remaining_s.len() as f64;
    // With little time left all are within the shortest span.
    (share >= ALIKE_SHARE_MIN && median_s >= 2 * span_s).then(|| Finding {
        id: "ttls_alike",
        sentence: format!(
            "{} of the items expire within {span_s} s, in {} s: their gets miss in one burst.",
            format_percent(Some(share)),
            format_count(median_s),
        ),
        value: share,
        setting: "in the application: TTLs that differ by a tenth at random".to_owned(),
        gain: format!(
            "the misses spread over {} s instead of {span_s} s",
            format_count((median_s / 5).max(span_s))
        ),
    })
}

/// The most values within one span; `sorted` ascends.
fn count_within(sorted: &[u64], span: u64) -> usize {
    let count_from = |(index, first): (usize, &u64)| {
        sorted[index..].partition_point(|value| value - first <= span)
    };
    sorted.iter().enumerate().map(count_from).max().unwrap_or(0)
}

/// Most items have no TTL.
pub(super) fn find_no_ttls(figures: &Figures) -> Option<Finding> {
    let sample = figures.key_sample.as_ref()?;
    let share = sample.share_of(SAMPLE_ITEMS_MIN, |item| item.expires_unix_s.is_none())?;
    (share >= WITHOUT_TTL_SHARE_MIN).then(|| Finding {
        id: "no_ttls",
        sentence: format!(
            "{} of {} sampled items have no TTL: a value that was not deleted when it changed stays wrong for ever.",
            format_percent(Some(share)),
            format_count(sample.len() as u64),
        ),
        value: share,
        setting: "in the application: ttl= on each set".to_owned(),
        gain: "a bound on how long a wrong value is served, and memory of what nobody reads any more".to_owned(),
    })
}
