//! The text of a load test: the conclusion first, then latencies, costs and, with two targets, the ratio.

use std::fmt::Write;

use glasscache_lab::bench::live::{
    Bottleneck, Latencies, LoadMeasurement, Objective, TargetRatios, TriedRate,
};
use glasscache_lab::statistics::SteadinessKind;
use glasscache_lab::text::{Table, format_bytes, format_count, format_decimal, wrap};

/// What the command measured.
pub(super) struct LoadResult {
    pub(super) measured: LoadMeasurement,
    /// What was measured of the other server (`--vs`), and the ratio to it.
    pub(super) other_and_ratio: Option<(LoadMeasurement, TargetRatios)>,
    /// The objective of a search, and the rates that it tried.
    pub(super) objective_and_rates: Option<(Objective, Vec<TriedRate>)>,
    pub(super) is_stopped: bool,
}

/// Everything that the command prints.
pub(super) fn format_result(target_descriptions: &[String], result: &LoadResult) -> String {
    let mut text = wrap(&format_sentence(target_descriptions, result)) + "\n";
    let all_measured = std::iter::once(&result.measured)
        .chain(result.other_and_ratio.as_ref().map(|(other, _)| other));
    for (target_description, measured) in target_descriptions.iter().zip(all_measured) {
        let _ = write!(
            text,
            "\n{}\n{}\n{}",
            wrap(target_description),
            build_latency_table(measured),
            build_cost_table(measured)
        );
    }
    if let Some((_, tried_rates)) = &result.objective_and_rates {
        let mut table = Table::new(&["", "requests/s", "us", ""]);
        for tried_rate in tried_rates {
            let outcome_text = if tried_rate.meets_objective { "holds" } else { "does not hold" };
            table.push_row([
                String::new(),
                format_count(tried_rate.rate as u64),
                format_decimal(tried_rate.latency_us),
                outcome_text.to_owned(),
            ]);
        }
        let _ = write!(text, "\nRates that were tried:\n{table}");
    }
    let _ = write!(text, "\n{}", wrap(&format_notes(result)));
    text
}

/// The conclusion in some sentences.
pub(super) fn format_sentence(target_descriptions: &[String], result: &LoadResult) -> String {
    let measured = &result.measured;
    let description = target_descriptions.first().map_or("", String::as_str);
    let rate = format_count(measured.requests_per_second.round() as u64);
    let latency_us = &measured.latency_us.intended;
    let (p50, p99) = (format_decimal(latency_us.p50), format_decimal(latency_us.p99));
    let mut sentence = match &result.objective_and_rates {
        Some((objective, _)) => format!(
            "{description} serves {rate} requests/s with p{} below {} us (p50 {p50} us, p99 {p99} us).",
            objective.percent,
            format_decimal(objective.latency_us)
        ),
        None => format!("{description} served {rate} requests/s: p50 {p50} us, p99 {p99} us."),
    };
    if let (Some((_, ratio)), Some(other_description)) =
        (&result.other_and_ratio, target_descriptions.get(1))
    {
        let _ = write!(
            sentence,
            " Beside {other_description}: {:.2} times its p50 ({:.2} to {:.2}), {:.2} times its p99 ({:.2} to {:.2}), {:.2} times \
             its rate.",
            ratio.p50.value,
            ratio.p50.low,
            ratio.p50.high,
            ratio.p99.value,
            ratio.p99.low,
            ratio.p99.high,
            ratio.requests_per_second.value
        );
    }
    sentence.push_str(match measured.bottleneck {
        Bottleneck::Server => " The server was the limit.",
        Bottleneck::Generator => {
            " Generator-bound: the generator was the limit, so these figures say little about the server."
        }
        Bottleneck::None => "",
    });
    let operations_before_change = format_count(measured.steadiness.after_operations.unwrap_or(0));
    let steadiness_text = match measured.steadiness.kind {
        SteadinessKind::Flat => String::new(),
        SteadinessKind::WarmUp => {
            format!(" The first {operations_before_change} requests were a warm-up.")
        }
        SteadinessKind::SlowDown => {
            format!(" It became slower after {operations_before_change} requests.")
        }
        SteadinessKind::None => " It never reached a steady state.".to_owned(),
    };
    sentence + &steadiness_text
}

fn build_latency_table(measured: &LoadMeasurement) -> Table {
    let mut table = Table::new(&["latency, us", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
    let mut push_row = |name: &str, percentiles: &Latencies| {
        let cells = [
            percentiles.p50,
            percentiles.p90,
            percentiles.p99,
            percentiles.p99_9,
            percentiles.p99_99,
            percentiles.max,
        ]
        .map(format_decimal);
        table.push_row(std::iter::once(name.to_owned()).chain(cells));
    };
    push_row("from the intended time", &measured.latency_us.intended);
    push_row("from the send time", &measured.latency_us.sent);
    let format_share = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
    };
    let shares = measured.generator_share;
    table.push_row([
        "generator's share".to_owned(),
        format_share(shares.p50),
        String::new(),
        format_share(shares.p99),
        format_share(shares.p99_9),
    ]);
    table
}

fn build_cost_table(measured: &LoadMeasurement) -> Table {
    let mut table = Table::new(&["us of CPU per request", "server", "generator"]);
    let server_cpu = measured.server_cpu_us.map_or_else(|| "-".to_owned(), format_decimal);
    table.push_row([String::new(), server_cpu, format_decimal(measured.generator_cpu_us)]);
    table
}

fn format_notes(result: &LoadResult) -> String {
    let mut notes = Vec::new();
    let measured = &result.measured;
    if measured.wrong_values > 0 {
        let first_wrong_value = measured.first_wrong_value.as_deref().unwrap_or("no description");
        notes.push(format!(
            "{} values were WRONG; the first: {first_wrong_value}.",
            format_count(measured.wrong_values)
        ));
    }
    if measured.compared_bytes < measured.value_bytes {
        notes.push(format!(
            "Of {} of values, {} were compared with what was stored (--check all compares every byte).",
            format_bytes(measured.value_bytes),
            format_bytes(measured.compared_bytes)
        ));
    }
    if measured.misses > 0 {
        let share = measured.misses as f64 / (measured.hits + measured.misses) as f64;
        notes.push(format!("{:.1} % of the keys were missed.", share * 100.0));
    }
    if measured.refused > 0 {
        notes.push(format!("{} writes had no effect.", format_count(measured.refused)));
    }
    if measured.other_cores > 0.2 {
        notes.push(format!("Other processes used {:.1} cores meanwhile.", measured.other_cores));
    }
    notes.push(
        "The generator's share is the time in which a reply was readable but not yet read. The intended time is when \
         a request was due by the schedule, whether or not earlier replies had arrived."
            .to_owned(),
    );
    notes.join(" ")
}
