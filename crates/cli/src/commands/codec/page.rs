//! The page of `codec`: bytes against time of each form, the network speed at which each is fastest, the tables.

use glasscache_lab::codec::{CallParts, Candidate, CodecResult};
use glasscache_lab::text::{format_bytes, format_count, format_decimal};
use glasscache_sim::page::{Chart, Page, Series, Table};

use super::table::{CALL_PARTS, format_sentence};

/// Forms that are drawn over the speed of the network.
const CHART_FORMS_MAX: usize = 5;

/// Builds the page.
pub(super) fn build_page(result: &CodecResult) -> Page {
    Page {
        title: format!("Forms of {} values", format_count(result.value_count as u64)),
        sentence: format_sentence(result),
        charts: vec![build_network_chart(result)],
        tables: vec![
            build_candidates_table(result),
            build_call_parts_table(result),
            build_prefixes_table(result),
            build_storage_table(result),
        ]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect(),
        notes: vec![format!(
            "{}, server {}, {} of {} values measured.",
            result.client_name,
            result.server_name,
            format_count(result.measured_values as u64),
            format_count(result.value_count as u64)
        )],
        ..Page::default()
    }
}

/// The time of a call over the speed of the network, for the best forms.
fn build_network_chart(result: &CodecResult) -> Chart {
    let ns_per_byte = result.network_mbit.map_or(0.0, |mbit| 8e3 / mbit);
    let new_series = |candidate: &Candidate| {
        let mean_bytes = candidate.bytes as f64 / candidate.values.max(1) as f64;
        let points = (0..=40).map(|step| {
            let mbit = 10_f64.powf(1.0 + f64::from(step) / 10.0);
            (mbit, candidate.call_us + mean_bytes * (8e3 / mbit - ns_per_byte) / 1e3)
        });
        Series { label: candidate.codec.clone(), points: points.collect(), ..Series::default() }
    };
    Chart {
        title: "Time of a call by speed of the network".to_owned(),
        x_label: "Mbit/s (logarithmic)".to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        is_x_log: true,
        is_y_log: true,
        series: result.candidates.iter().take(CHART_FORMS_MAX).map(new_series).collect(),
        ..Chart::default()
    }
}

fn build_table(title: &str, header: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        title: title.to_owned(),
        header: header.iter().map(|name| (*name).to_owned()).collect(),
        rows,
    }
}

fn build_candidates_table(result: &CodecResult) -> Table {
    let format_break_even = |mbit: Option<f64>| mbit.map_or_else(|| "-".to_owned(), format_decimal);
    let format_row = |candidate: &Candidate| {
        vec![
            candidate.codec.clone(),
            format_bytes(candidate.bytes),
            format!("{:.3}", candidate.ratio),
            format_decimal(candidate.write_us),
            format_decimal(candidate.read_us),
            format_decimal(candidate.call_us),
            format_break_even(candidate.write_break_even_mbit),
            format_break_even(candidate.read_break_even_mbit),
        ]
    };
    build_table(
        "Forms",
        &[
            "form",
            "bytes",
            "ratio",
            "write us",
            "read us",
            "call us",
            "a set pays below Mbit/s",
            "a get pays below Mbit/s",
        ],
        result.candidates.iter().map(format_row).collect(),
    )
}

fn build_call_parts_table(result: &CodecResult) -> Table {
    let (Some(baseline), Some(recommended_choice)) = (&result.baseline, &result.recommended) else {
        return Table::default();
    };
    let all_parts: [&CallParts; 4] =
        [&baseline.set, &recommended_choice.set, &baseline.get, &recommended_choice.get];
    let rows = CALL_PARTS
        .iter()
        .map(|(name, _, time_of_part)| {
            let times = all_parts.iter().map(|parts| format_decimal(time_of_part(parts)));
            std::iter::once((*name).to_owned()).chain(times).collect()
        })
        .chain([std::iter::once("sum".to_owned())
            .chain(all_parts.iter().map(|parts| format_decimal(parts.total_us())))
            .collect()])
        .collect();
    build_table(
        "What a call costs, us",
        &["part", "set before", "set after", "get before", "get after"],
        rows,
    )
}

fn build_prefixes_table(result: &CodecResult) -> Table {
    let rows = result.prefix_rows.iter().map(|row| {
        vec![
            row.prefix.clone(),
            format_count(row.values as u64),
            format_bytes(row.bytes),
            format!("{:.3}", row.ratio),
        ]
    });
    build_table(
        "With the recommended setting, by key prefix",
        &["key prefix", "values", "bytes", "ratio"],
        rows.collect(),
    )
}

fn build_storage_table(result: &CodecResult) -> Table {
    let rows = result.storage_rows.iter().map(|row| {
        let read_times = row.read_s.iter().map(|seconds| format_decimal(*seconds));
        let cells = [
            row.codec.clone(),
            format_bytes(row.bytes),
            format!("{:.3}", row.ratio),
            format_decimal(row.write_s),
        ];
        cells.into_iter().chain(read_times).collect()
    });
    build_table(
        "All values in blocks of 512 KiB, stored and read three times in random order",
        &["codec", "bytes", "ratio", "write s", "read s", "read s", "read s"],
        rows.collect(),
    )
}
