//! The page of `codec`: bytes against time of each form, the network speed at which each is fastest, the tables.

use glasscache_lab::codec::{CallParts, Candidate};
use glasscache_sim::page::{Chart, Page, Series, Table};

use super::Found;
use super::table::{PARTS, sentence};
use crate::table::{bytes, count, decimal};

/// Forms that are drawn over the speed of the network.
const DRAWN: usize = 5;

/// Writes the page.
pub(super) fn page(found: &Found) -> String {
    Page {
        title: format!("Forms of {} values", count(found.values as u64)),
        sentence: sentence(found),
        charts: vec![over_network(found)],
        tables: vec![
            candidates(found),
            calls(found),
            prefixes(found),
            storage(found),
        ]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect(),
        notes: vec![format!(
            "glasscache {}, {}, server {}, {} of {} values measured.",
            env!("CARGO_PKG_VERSION"),
            found.client,
            found.server,
            count(found.measured_values as u64),
            count(found.values as u64)
        )],
    }
    .to_html()
}

/// The time of a call over the speed of the network, for the best forms.
fn over_network(found: &Found) -> Chart {
    let ns_per_byte = found.network_mbit.map_or(0.0, |mbit| 8e3 / mbit);
    let series = |row: &Candidate| {
        let mean = row.bytes as f64 / row.values.max(1) as f64;
        let points = (0..=40).map(|step| {
            let mbit = 10_f64.powf(1.0 + f64::from(step) / 10.0);
            (mbit, row.call_us + mean * (8e3 / mbit - ns_per_byte) / 1e3)
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
        series: found.candidates.iter().take(DRAWN).map(series).collect(),
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

fn candidates(found: &Found) -> Table {
    let pays = |mbit: Option<f64>| mbit.map_or_else(|| "-".to_owned(), decimal);
    let row = |row: &Candidate| {
        vec![
            row.codec.clone(),
            bytes(row.bytes),
            format!("{:.3}", row.ratio),
            decimal(row.write_us),
            decimal(row.read_us),
            decimal(row.call_us),
            pays(row.write_pays_below_mbit),
            pays(row.read_pays_below_mbit),
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
        found.candidates.iter().map(row).collect(),
    )
}

fn calls(found: &Found) -> Table {
    let (Some(before), Some(after)) = (&found.before, &found.recommended) else {
        return Table::default();
    };
    let parts: [&CallParts; 4] = [&before.set, &after.set, &before.get, &after.get];
    let rows = PARTS
        .iter()
        .map(|(name, _, part)| {
            let numbers = parts.iter().map(|parts| decimal(part(parts)));
            std::iter::once((*name).to_owned()).chain(numbers).collect()
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

fn prefixes(found: &Found) -> Table {
    let rows = found.prefixes.iter().map(|row| {
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

fn storage(found: &Found) -> Table {
    let rows = found.rows.iter().map(|row| {
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
        "All values in pieces of 512 KiB, stored and read three times in random order",
        &[
            "codec", "bytes", "ratio", "write s", "read s", "read s", "read s",
        ],
        rows.collect(),
    )
}
