//! The page of `codec`: bytes against time of each form, the network speed at which each is fastest, the tables.

use glasscache_lab::codec::{CallParts, Candidate};
use glasscache_sim::page::{Chart, Page, Series, Table};

use super::CodecResult;
use super::table::{CALL_PARTS, sentence};
use crate::table::{bytes, count, decimal};

/// Forms that are drawn over the speed of the network.
const CHART_FORMS_MAX: usize = 5;

/// Writes the page.
pub(super) fn page(result: &CodecResult) -> Page {
    Page {
        title: format!("Forms of {} values", count(result.value_count as u64)),
        sentence: sentence(result),
        charts: vec![network_chart(result)],
        tables: vec![
            candidates_table(result),
            call_parts_table(result),
            prefixes_table(result),
            storage_table(result),
        ]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect(),
        notes: vec![format!(
            "{}, server {}, {} of {} values measured.",
            result.client_name,
            result.server_name,
            count(result.measured_values as u64),
            count(result.value_count as u64)
        )],
        ..Page::default()
    }
}

/// The time of a call over the speed of the network, for the best forms.
fn network_chart(result: &CodecResult) -> Chart {
    let ns_per_byte = result.network_mbit.map_or(0.0, |mbit| 8e3 / mbit);
    let series = |row: &Candidate| {
        let mean_bytes = row.bytes as f64 / row.values.max(1) as f64;
        let points = (0..=40).map(|step| {
            let mbit = 10_f64.powf(1.0 + f64::from(step) / 10.0);
            (
                mbit,
                row.call_us + mean_bytes * (8e3 / mbit - ns_per_byte) / 1e3,
            )
        });
        Series {
            label: row.codec.clone(),
            points: points.collect(),
            ..Series::default()
        }
    };
    Chart {
        title: "Time of a call by speed of the network".to_owned(),
        x_label: "Mbit/s (logarithmic)".to_owned(),
        y_label: "microseconds (logarithmic)".to_owned(),
        x_log: true,
        y_log: true,
        series: result
            .candidates
            .iter()
            .take(CHART_FORMS_MAX)
            .map(series)
            .collect(),
        ..Chart::default()
    }
}

fn table(title: &str, header: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        title: title.to_owned(),
        header: header.iter().map(|name| (*name).to_owned()).collect(),
        rows,
    }
}

fn candidates_table(result: &CodecResult) -> Table {
    let break_even = |mbit: Option<f64>| mbit.map_or_else(|| "-".to_owned(), decimal);
    let row = |row: &Candidate| {
        vec![
            row.codec.clone(),
            bytes(row.bytes),
            format!("{:.3}", row.ratio),
            decimal(row.write_us),
            decimal(row.read_us),
            decimal(row.call_us),
            break_even(row.write_break_even_mbit),
            break_even(row.read_break_even_mbit),
        ]
    };
    table(
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
        result.candidates.iter().map(row).collect(),
    )
}

fn call_parts_table(result: &CodecResult) -> Table {
    let (Some(baseline), Some(recommended_choice)) = (&result.baseline, &result.recommended) else {
        return Table::default();
    };
    let parts: [&CallParts; 4] = [
        &baseline.set,
        &recommended_choice.set,
        &baseline.get,
        &recommended_choice.get,
    ];
    let rows = CALL_PARTS
        .iter()
        .map(|(name, _, time_of_part)| {
            let times = parts.iter().map(|parts| decimal(time_of_part(parts)));
            std::iter::once((*name).to_owned()).chain(times).collect()
        })
        .chain([std::iter::once("sum".to_owned())
            .chain(parts.iter().map(|parts| decimal(parts.total_us())))
            .collect()])
        .collect();
    table(
        "What a call costs, us",
        &["part", "set before", "set after", "get before", "get after"],
        rows,
    )
}

fn prefixes_table(result: &CodecResult) -> Table {
    let rows = result.prefix_rows.iter().map(|row| {
        vec![
            row.prefix.clone(),
            count(row.values as u64),
            bytes(row.bytes),
            format!("{:.3}", row.ratio),
        ]
    });
    table(
        "With the recommended setting, by key prefix",
        &["key prefix", "values", "bytes", "ratio"],
        rows.collect(),
    )
}

fn storage_table(result: &CodecResult) -> Table {
    let rows = result.storage_rows.iter().map(|row| {
        let reads = row.read_s.iter().map(|seconds| decimal(*seconds));
        let cells = [
            row.codec.clone(),
            bytes(row.bytes),
            format!("{:.3}", row.ratio),
            decimal(row.write_s),
        ];
        cells.into_iter().chain(reads).collect()
    });
    table(
        "All values in blocks of 512 KiB, stored and read three times in random order",
        &[
            "codec", "bytes", "ratio", "write s", "read s", "read s", "read s",
        ],
        rows.collect(),
    )
}
