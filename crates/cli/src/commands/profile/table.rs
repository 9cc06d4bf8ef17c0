//! The text of a profile: the conclusion first, then percentiles by size and width, then the parts of a get.

use std::fmt::Write;

use glasscache_lab::profile::{CellPercentiles, GetTimes, Percentile, Profile, ProfileMeasurement};
use glasscache_lab::statistics::SteadinessKind;
use glasscache_lab::text::{Table, format_bytes, format_count, format_decimal, wrap};

use crate::live_target::LiveTarget;

/// The percentiles of the narrow table.
const NARROW_PERCENTS: [f64; 4] = [5.0, 50.0, 99.0, 99.9];

/// Everything that the command prints.
pub(super) fn format_profile(targets: &[LiveTarget], profile: &Profile, is_wide: bool) -> String {
    let mut text = wrap(&format_sentence(targets, profile)) + "\n";
    append_tables(&mut text, targets.first(), &profile.measured, is_wide);
    if let Some(other_measured) = &profile.other_measured {
        append_tables(&mut text, targets.get(1), other_measured, is_wide);
    }
    let measured = &profile.measured;
    if let Some(get_times) = measured.get_times {
        let _ = write!(
            text,
            "\nMean time of a get of {}, in us:\n{}",
            format_bytes(get_times.bytes as u64),
            format_parts(&get_times)
        );
    }
    let mut notes = Vec::new();
    if !measured.refused.is_empty() {
        notes.push(format!(
            "The server refused to store {} of the sizes; they are left out.",
            measured.refused.len()
        ));
    }
    if measured.wrong_values > 0 {
        notes.push(format!("{} values were absent or WRONG.", format_count(measured.wrong_values)));
    }
    notes.push(
        "us is the time of a call in the client. After the median: its interval (95 %). \
         >= marks percentiles with too few samples for an upper bound."
            .to_owned(),
    );
    let _ = write!(text, "\n{}", wrap(&notes.join(" ")));
    text
}

/// The conclusion in one or two sentences.
pub(super) fn format_sentence(targets: &[LiveTarget], profile: &Profile) -> String {
    let measured = &profile.measured;
    let target_name = targets.first().map_or("", |target| target.name.as_str());
    let typical_cell = measured
        .get_times
        .and_then(|get_times| {
            measured.by_size.iter().find(|cell| cell.bytes == Some(get_times.bytes))
        })
        .or(measured.by_size.first())
        .or(measured.by_width.first());
    let Some(typical_cell) = typical_cell else {
        return format!("Nothing was measured on {target_name}.");
    };
    let format_at_percentile = |percent: f64| {
        let found_percentile = typical_cell
            .percentiles
            .iter()
            .find(|percentile| (percentile.percent - percent).abs() < 1e-9);
        found_percentile.map_or_else(|| "-".to_owned(), format_percentile)
    };
    let cell_name = match (typical_cell.bytes, typical_cell.keys) {
        (Some(size), _) => format!("A get of {}", format_bytes(size as u64)),
        (_, Some(1)) => "A multi-get of 1 key".to_owned(),
        (_, keys) => format!("A multi-get of {} keys", keys.unwrap_or(0)),
    };
    let mut sentence = format!(
        "{cell_name} from {target_name} takes {} us, at p99 {} us",
        format_at_percentile(50.0),
        format_at_percentile(99.0)
    );
    if let Some((part_name, share)) = measured.get_times.as_ref().and_then(find_largest_part) {
        let _ =
            write!(sentence, "; {:.0} % of the time is spent in the {part_name}", share * 100.0);
    }
    sentence.push('.');
    if let (Some(ratio), Some(other_target)) = (&profile.ratios, targets.get(1)) {
        let _ = write!(
            sentence,
            " Beside {}: {:.2} times its median ({:.2} to {:.2}), {:.2} times its p99 ({:.2} to {:.2}).",
            other_target.name,
            ratio.p50.value,
            ratio.p50.low,
            ratio.p50.high,
            ratio.p99.value,
            ratio.p99.low,
            ratio.p99.high
        );
    }
    let calls_before_change = format_count(measured.steadiness.after_operations.unwrap_or(0));
    let steadiness_text = match measured.steadiness.kind {
        SteadinessKind::Flat => "The run was steady.".to_owned(),
        SteadinessKind::WarmUp => format!("The first {calls_before_change} calls were a warm-up."),
        SteadinessKind::SlowDown => format!("It became slower after {calls_before_change} calls."),
        SteadinessKind::None => {
            "It never reached a steady state: repeat it on a quieter machine.".to_owned()
        }
    };
    format!("{sentence} {steadiness_text}")
}

fn find_largest_part(get_times: &GetTimes) -> Option<(&'static str, f64)> {
    let (name, us) = list_named_parts(get_times)
        .into_iter()
        .max_by(|(_, a_us), (_, b_us)| a_us.total_cmp(b_us))?;
    (get_times.total_us > 0.0).then_some((name, us / get_times.total_us))
}

/// The parts of a get, in the order of its way.
pub(super) fn list_named_parts(get_times: &GetTimes) -> Vec<(&'static str, f64)> {
    let mut parts = vec![("client", get_times.client_us)];
    match get_times.server_us {
        Some(server_us) => parts.extend([("network", get_times.network_us), ("server", server_us)]),
        None => parts.push(("network and server", get_times.network_us)),
    }
    parts.extend([
        ("decompress", get_times.decompress_us),
        ("deserialise", get_times.deserialise_us),
    ]);
    parts
}

fn format_parts(get_times: &GetTimes) -> String {
    let mut table = Table::new(&["", "us", "share"]);
    for (name, us) in list_named_parts(get_times) {
        table.push_row([
            name.to_owned(),
            format_decimal(us),
            format!("{:.0} %", 100.0 * us / get_times.total_us.max(1e-9)),
        ]);
    }
    table.push_row(["total".to_owned(), format_decimal(get_times.total_us), String::new()]);
    table.to_string()
}

fn append_tables(
    text: &mut String,
    target: Option<&LiveTarget>,
    measured: &ProfileMeasurement,
    is_wide: bool,
) {
    let target_description = target.map_or_else(String::new, |target| target.describe());
    for (title, cells) in [("Gets", &measured.by_size), ("Multi-gets", &measured.by_width)] {
        if !cells.is_empty() {
            let _ = write!(
                text,
                "\n{}\n{}",
                wrap(&format!("{title} of {target_description}, us:")),
                build_percentile_table(cells, is_wide)
            );
        }
    }
}

fn build_percentile_table(cells: &[CellPercentiles], is_wide: bool) -> Table {
    let is_displayed = |percentile: &&Percentile| {
        is_wide || NARROW_PERCENTS.iter().any(|percent| (percentile.percent - percent).abs() < 1e-9)
    };
    let is_median = |percentile: &Percentile| (percentile.percent - 50.0).abs() < 1e-9;
    let mut column_titles = vec![String::new()];
    for percentile in
        cells.first().into_iter().flat_map(|cell| &cell.percentiles).filter(is_displayed)
    {
        column_titles.push(format!("p{}", percentile.percent));
        if is_median(percentile) {
            column_titles.push("(95 %)".to_owned());
        }
    }
    column_titles.push("calls".to_owned());
    let mut table = Table::new(&column_titles.iter().map(String::as_str).collect::<Vec<_>>());
    for cell in cells {
        let mut row = vec![match (cell.bytes, cell.keys) {
            (Some(size), _) => format_bytes(size as u64),
            (_, Some(1)) => "1 key".to_owned(),
            (_, keys) => format!("{} keys", keys.unwrap_or(0)),
        }];
        for percentile in cell.percentiles.iter().filter(is_displayed) {
            row.push(format_percentile(percentile));
            if is_median(percentile) {
                let high =
                    percentile.estimate_us.high.map_or_else(|| "?".to_owned(), format_decimal);
                row.push(format!("{}-{high}", format_decimal(percentile.estimate_us.low)));
            }
        }
        row.push(format_count(cell.samples));
        table.push_row(row);
    }
    table
}

fn format_percentile(percentile: &Percentile) -> String {
    match percentile.estimate_us.value {
        Some(us) => format_decimal(us),
        None => format!(">= {}", format_decimal(percentile.estimate_us.low)),
    }
}
