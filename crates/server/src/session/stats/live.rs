//! `stats curve`, `stats hotkeys` and `stats prefixes`: what the sample of the load shows.
//!
//! The rows of an entry of a list have its number before their names, from 0: `STAT 0:memory_bytes 16777216`.

use glasscache_protocol::{percent, replies};
use glasscache_store::{
    CurvePoint, HotKey, HotKeyOrder, HotKeyWindow, LiveCurve, LiveReport, MemoryAdvice, PrefixUse,
    ResizeForecast,
};

use super::table::Value;
use crate::session::context::Context;
use crate::session::rows::Rows;

/// One statistic of a `T`.
pub(crate) struct Field<T> {
    pub(crate) name: &'static str,
    /// The unit of the value; empty for a plain count or text.
    #[cfg_attr(not(test), expect(dead_code, reason = "written to the reference by a test"))]
    pub(crate) unit: &'static str,
    pub(crate) meaning: &'static str,
    read_value: fn(&T) -> Value,
}

impl<T> Field<T> {
    pub(super) const fn new(
        name: &'static str,
        unit: &'static str,
        meaning: &'static str,
        read_value: fn(&T) -> Value,
    ) -> Self {
        Field { name, unit, meaning, read_value }
    }
}

/// Appends the rows of `subject`, with `prefix` before each name.
pub(super) fn write_fields<T>(fields: &[Field<T>], prefix: &str, subject: &T, rows: &mut Rows<'_>) {
    for field in fields {
        rows.write_value(format_args!("{prefix}{}", field.name), (field.read_value)(subject));
    }
}

/// The rows of `subject`.
pub(crate) fn format_fields<T>(fields: &[Field<T>], subject: &T) -> Vec<u8> {
    let mut text = Vec::new();
    write_fields(fields, "", subject, &mut Rows::new(&mut text));
    text
}

/// Appends the rows of each entry of a list, with `prefix` and its number before each name.
pub(super) fn write_entries<T>(
    fields: &[Field<T>],
    prefix: &str,
    entries: &[T],
    rows: &mut Rows<'_>,
) {
    for (number, entry) in entries.iter().enumerate() {
        write_fields(fields, &format!("{prefix}{number}:"), entry, rows);
    }
}

/// A ratio with as many digits as it may be exact to.
pub(super) fn ratio(value: f64) -> Value {
    Value::Text(format!("{value:.6}"))
}

/// A rate a second.
fn rate(value: f64) -> Value {
    Value::Text(format!("{value:.3}"))
}

/// A time in seconds, to a microsecond.
fn seconds(value: f64) -> Value {
    Value::Text(format!("{value:.6}"))
}

/// A key or prefix without blanks and control characters.
pub(super) fn printable(key: &[u8]) -> Value {
    Value::Text(percent::to_printable(key))
}

/// Executes `stats curve`.
pub(super) fn write_curve(context: &Context<'_>, out: &mut Vec<u8>) {
    let report = context.shared.live.report();
    let mut rows = Rows::new(out);
    write_fields(CURVE_FIELDS, "", &report.curve, &mut rows);
    write_fields(SAMPLING_FIELDS, "", &report, &mut rows);
    if let Some(resize) = &report.curve.resize {
        write_fields(RESIZE_FIELDS, "resize:", resize, &mut rows);
    }
    write_entries(POINT_FIELDS, "", &report.curve.rows, &mut rows);
    write_entries(ADVICE_FIELDS, "advice:", &report.curve.advice, &mut rows);
    rows.end();
}

/// Executes `stats hotkeys [1s|1m|1h] [requests|bytes]`.
pub(super) fn write_hot_keys(arguments: &[&[u8]], context: &Context<'_>, out: &mut Vec<u8>) {
    if !context.shared.config.dump_enabled {
        return out.extend_from_slice(replies::HOTKEYS_DISABLED);
    }
    let Some((window, order)) = parse_hot_key_arguments(arguments) else {
        return out.extend_from_slice(replies::HOTKEYS_USAGE);
    };
    let report = context.shared.live.report();
    let mut rows = Rows::new(out);
    write_entries(HOT_KEY_FIELDS, "", report.hot_keys(window, order), &mut rows);
    rows.end();
}

/// The window and the order, in any order; one minute by requests if nothing else is given.
fn parse_hot_key_arguments(arguments: &[&[u8]]) -> Option<(HotKeyWindow, HotKeyOrder)> {
    let (mut window, mut order) = (None, None);
    for argument in arguments {
        match (HotKeyWindow::parse(argument), HotKeyOrder::parse(argument)) {
            (Some(parsed), _) if window.is_none() => window = Some(parsed),
            (_, Some(parsed)) if order.is_none() => order = Some(parsed),
            _ => return None,
        }
    }
    Some((window.unwrap_or(HotKeyWindow::Minute), order.unwrap_or(HotKeyOrder::Requests)))
}

/// Executes `stats prefixes`.
pub(super) fn write_prefixes(context: &Context<'_>, out: &mut Vec<u8>) {
    if !context.shared.config.dump_enabled {
        return out.extend_from_slice(replies::PREFIXES_DISABLED);
    }
    let mut rows = Rows::new(out);
    write_entries(PREFIX_FIELDS, "", &context.shared.live.report().prefixes, &mut rows);
    rows.end();
}

/// The rows of the whole curve.
#[rustfmt::skip]
pub(crate) static CURVE_FIELDS: &[Field<LiveCurve>] = &[
    Field::new("state", "", "`ok`, or the reason for having no curve: `too_few` (too few items to sample), `warming` (the server was started or flushed, or `keys_per_sample` changed, and half of the memory has not been filled since), `resized` (likewise after a change of the memory limit), `events_lost` (the sampling thread could not keep up)", |c| c.state.name().into()),
    Field::new("memory_bytes", "bytes", "memory limit", |c| c.memory_bytes.into()),
    Field::new("miss_ratio", "", "misses per get in the window", |c| ratio(c.miss_ratio)),
    Field::new("gets_per_second", "1/s", "gets in the window", |c| rate(c.gets_per_second)),
    Field::new("window_s", "s", "the window of the curve", |c| c.window_s.into()),
    Field::new("miss_time_s", "s", "mean time from the lease on a missing item to the value that is stored; absent before 20 were measured", |c| c.miss_time_s.map_or(Value::Absent, seconds)),
    Field::new("working_set_bytes", "bytes", "distinct items requested in the last hour, as they would be stored", |c| c.working_set_bytes.into()),
    Field::new("unlimited_hit_ratio", "", "hits per get if nothing were evicted", |c| ratio(c.unlimited_hit_ratio)),
    Field::new("sampled_items", "", "sampled items that are stored", |c| c.sampled_items.into()),
];

/// The rows about the sampling.
#[rustfmt::skip]
pub(crate) static SAMPLING_FIELDS: &[Field<LiveReport>] = &[
    Field::new("keys_per_sample", "", "one in this many keys is sampled", |r| r.costs.keys_per_sample.into()),
    Field::new("sampled_events", "", "events of sampled keys that were processed", |r| r.costs.events.into()),
    Field::new("dropped_events", "", "events that were lost because the sampling thread could not keep up", |r| r.costs.dropped_events.into()),
    Field::new("sampling_bytes", "bytes", "memory of the sample, outside the memory limit", |r| r.costs.memory_bytes.into()),
    Field::new("sampling_cpu_us", "us", "CPU time of the thread that processes the events", |r| r.costs.cpu_us.into()),
];

/// The rows about the last change of the limit.
#[rustfmt::skip]
pub(crate) static RESIZE_FIELDS: &[Field<ResizeForecast>] = &[
    Field::new("from_bytes", "bytes", "memory limit before the change", |r| r.from_bytes.into()),
    Field::new("memory_bytes", "bytes", "memory limit since", |r| r.memory_bytes.into()),
    Field::new("miss_ratio", "", "misses per get that were expected since", |r| ratio(r.miss_ratio)),
    Field::new("low", "", "lower end of the 95 % interval", |r| ratio(r.low)),
    Field::new("high", "", "upper end of the 95 % interval", |r| ratio(r.high)),
    Field::new("measured", "", "misses per get over at least a minute and 10,000 gets after the memory was filled; absent until then", |r| r.measured.map_or(Value::Absent, ratio)),
    Field::new("forecast", "", "`waiting`, `held` or `broken`: whether `measured` lies in the interval", |r| forecast_name(r).into()),
];

/// Whether a forecast came true.
fn forecast_name(resize: &ResizeForecast) -> &'static str {
    match resize.is_inside() {
        None => "waiting",
        Some(true) => "held",
        Some(false) => "broken",
    }
}

/// The rows of each size.
#[rustfmt::skip]
pub(crate) static POINT_FIELDS: &[Field<CurvePoint>] = &[
    Field::new("memory_bytes", "bytes", "a memory limit", |p| p.memory_bytes.into()),
    Field::new("miss_ratio", "", "misses per get that are expected there", |p| ratio(p.miss_ratio)),
    Field::new("low", "", "lower end of the 95 % interval", |p| ratio(p.low)),
    Field::new("high", "", "upper end of the 95 % interval", |p| ratio(p.high)),
    Field::new("lru_miss_ratio", "", "the same of LRU, to compare with", |p| ratio(p.lru_miss_ratio)),
];

/// The rows of each advice.
#[rustfmt::skip]
pub(crate) static ADVICE_FIELDS: &[Field<MemoryAdvice>] = &[
    Field::new("memory_bytes", "bytes", "a memory limit", |a| a.memory_bytes.into()),
    Field::new("change_percent", "%", "its distance from the present one", |a| Value::Text(a.change_percent.to_string())),
    Field::new("misses_per_second", "1/s", "misses now", |a| rate(a.misses_per_second)),
    Field::new("avoided_per_second", "1/s", "misses that would be avoided; negative if there would be more", |a| rate(a.avoided_per_second)),
    Field::new("low", "1/s", "lower end of the 95 % interval", |a| rate(a.low)),
    Field::new("high", "1/s", "upper end of the 95 % interval", |a| rate(a.high)),
    Field::new("avoided_backend_s", "s/s", "time a second that clients would spend less on filling misses; absent as long as `miss_time_s` is", |a| a.avoided_backend_s.map_or(Value::Absent, seconds)),
    Field::new("sentence", "", "the same in words", |a| a.sentence.as_str().into()),
];

/// The rows of each hot key.
#[rustfmt::skip]
pub(crate) static HOT_KEY_FIELDS: &[Field<HotKey>] = &[
    Field::new("key", "", "the key; bytes that are not printable are percent-encoded", |k| printable(&k.key)),
    Field::new("requests", "", "gets of it in the window", |k| k.requests.into()),
    Field::new("bytes", "bytes", "bytes of its value that these gets sent", |k| k.bytes.into()),
    Field::new("share", "", "its part of all gets, or of all bytes, 0 to 1", |k| ratio(k.share)),
    Field::new("error", "", "half of the 95 % interval of `share`", |k| ratio(k.error)),
];

/// The rows of each prefix.
#[rustfmt::skip]
pub(crate) static PREFIX_FIELDS: &[Field<PrefixUse>] = &[
    Field::new("prefix", "", "the prefix, as `key` above; empty for keys without one", |p| printable(&p.prefix)),
    Field::new("requests", "", "gets in the last hour, scaled up from the sample as all that follows", |p| p.requests.into()),
    Field::new("hits", "", "gets that hit", |p| p.hits.into()),
    Field::new("sets", "", "items stored", |p| p.sets.into()),
    Field::new("bytes", "bytes", "bytes of values that gets sent", |p| p.bytes.into()),
    Field::new("hit_ratio", "", "hits per get", |p| ratio(p.hit_ratio)),
    Field::new("item_bytes_mean", "bytes", "mean bytes of key and value of what was stored", |p| p.item_bytes_mean.into()),
    Field::new("no_ttl_share", "", "the part of what was stored that never expires", |p| ratio(p.no_ttl_share)),
    Field::new("ttl_s_median", "s", "median TTL of the rest, to a factor of two", |p| p.ttl_s_median.into()),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_key_arguments_come_in_any_order_and_once() {
        let minute = (HotKeyWindow::Minute, HotKeyOrder::Requests);
        assert_eq!(parse_hot_key_arguments(&[]), Some(minute));
        let second = (HotKeyWindow::Second, HotKeyOrder::Bytes);
        assert_eq!(parse_hot_key_arguments(&[b"bytes", b"1s"]), Some(second));
        assert_eq!(parse_hot_key_arguments(&[b"1s", b"bytes"]), Some(second));
        for bad in [&[b"2s".as_slice()][..], &[b"1s", b"1m"], &[b"bytes", b"requests"]] {
            assert_eq!(parse_hot_key_arguments(bad), None);
        }
    }
}
