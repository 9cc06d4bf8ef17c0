//! The latencies of a run as files that other tools read: `HdrHistogram`'s log of intervals and its table of
//! percentiles.

use std::fmt::Write;
use std::io;
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError};

use super::result::LoadMeasurement;
use crate::load::SecondHistogram;

/// Unit of the column of the longest latency in the log: milliseconds, as in the logs of other tools.
const NS_PER_MS: f64 = 1e6;

/// Latencies of each second in nanoseconds, in version 1.3 of the log's form: compressed V2 histograms.
pub(super) fn format_interval_log(
    started: SystemTime,
    seconds: &[SecondHistogram],
) -> io::Result<Vec<u8>> {
    let mut log = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Histogram log format version 1.3]")
        .add_comment("[Latencies in nanoseconds]")
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(NS_PER_MS);
    let mut writer = builder.begin_log_with(&mut log, &mut serializer)?;
    for second in seconds {
        let since_start = Duration::from_secs(second.at_s);
        let result =
            writer.write_histogram(&second.histogram, since_start, Duration::from_secs(1), None);
        result.map_err(|error| match error {
            IntervalLogWriterError::IoError(error) => error,
            IntervalLogWriterError::SerializeError(error) => io::Error::other(error.to_string()),
        })?;
    }
    Ok(log)
}

/// The distribution of the latency from the intended time: one line for each percentile, in microseconds, as the
/// plotters of `HdrHistogram` read it.
pub(super) fn format_percentile_table(measured: &LoadMeasurement) -> String {
    let tally = &measured.tally;
    let histogram = tally.from_intended.as_ref().unwrap_or(&tally.from_send);
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let mut cumulative_count = 0;
    for step in histogram.iter_quantiles(5) {
        cumulative_count += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let value_us = step.value_iterated_to() as f64 / 1e3;
        let _ = write!(text, "{value_us:12.3} {quantile:14.12} {cumulative_count:10}");
        if quantile < 1.0 {
            let _ = write!(text, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        text.push('\n');
    }
    let (mean_us, deviation_us) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
    let (max_us, total_count) = (histogram.max() as f64 / 1e3, histogram.len());
    let _ = writeln!(text, "#[Mean    = {mean_us:12.3}, StdDeviation   = {deviation_us:12.3}]");
    let _ = writeln!(text, "#[Max     = {max_us:12.3}, Total count    = {total_count:12}]");
    text
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::load::LatenciesBySecond;

    #[test]
    fn a_reader_of_the_log_finds_each_second_with_its_latencies() {
        let mut recorded = LatenciesBySecond::default();
        for (now_ms, latency_us) in [(200, 10), (900, 30), (3_100, 5_000)] {
            recorded.record(now_ms * 1_000_000, latency_us * 1_000);
        }
        let seconds = recorded.seconds();
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let log = format_interval_log(started, &seconds).unwrap();
        let text = String::from_utf8_lossy(&log);
        assert!(text.contains("#[StartTime: 1000.000 "), "{text}");
        assert!(text.contains("#[BaseTime: 1000.000 "), "{text}");
        let mut deserializer = Deserializer::new();
        let (mut seconds_and_counts, mut longest_ms) = (Vec::new(), Vec::new());
        for entry in IntervalLogIterator::new(&log) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                let histogram: Histogram<u64> = decode_histogram(&mut deserializer, &interval);
                seconds_and_counts.push((interval.start_timestamp().as_secs(), histogram.len()));
                longest_ms.push(interval.max());
                assert_eq!(interval.duration(), Duration::from_secs(1));
                assert!(seconds.iter().any(|second| second.histogram == histogram));
            }
        }
        assert_eq!(seconds_and_counts, [(0, 2), (3, 1)]);
        assert!((longest_ms[1] - 5.0).abs() < 0.01, "{longest_ms:?}");
    }

    fn decode_histogram(
        deserializer: &mut Deserializer,
        interval: &hdrhistogram::serialization::interval_log::IntervalLogHistogram,
    ) -> Histogram<u64> {
        let bytes = decode_base64(interval.encoded_histogram());
        deserializer.deserialize(&mut bytes.as_slice()).unwrap()
    }

    fn decode_base64(text: &str) -> Vec<u8> {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut bytes, mut bits, mut pending_bits) = (Vec::new(), 0_u32, 0);
        for byte in text.bytes().filter(|&byte| byte != b'=') {
            let digit = digits.iter().position(|&alphabet_digit| alphabet_digit == byte).unwrap();
            (bits, pending_bits) = (bits << 6 | digit as u32, pending_bits + 6);
            if pending_bits >= 8 {
                pending_bits -= 8;
                bytes.push((bits >> pending_bits) as u8);
            }
        }
        bytes
    }
}
