//! The output of a tour: the input, a table of memory and a table of speed.

use std::fmt::Write;

use super::TourFigures;
use super::folder::{FILE_BYTES_MAX, Folder};
use super::stage::{KEYS_PER_GET, PIPELINE_DEPTH, Stage, StageFigures};
use crate::text::{Table, format_bytes, format_count, format_decimal, wrap};

/// What is measured.
pub(super) fn format_intro(folder: &Folder) -> String {
    let (items, size) = (format_count(folder.items() as u64), format_bytes(folder.user_bytes()));
    let article = if folder.is_truncated { "the first" } else { "the" };
    let mut text = wrap(&format!(
        "The tour stores {article} {items} files of {} ({size}) in a server that it starts, over a socket, each under \
         its path as the key, and reads them back one by one, in pipelines of {PIPELINE_DEPTH} and by multi-gets of \
         {KEYS_PER_GET}. Every byte is compared.",
        folder.path.display()
    ));
    if folder.skipped_files > 0 {
        let bound = format_bytes(FILE_BYTES_MAX);
        let skipped = format_count(folder.skipped_files as u64);
        text.push('\n');
        text += &wrap(&format!(
            "{skipped} files were left out: they are larger than {bound}, cannot be read, or have a name that is not a valid key."
        ));
    }
    text
}

/// The tables, and what their columns are.
pub(super) fn format_figures(figures_by_server: &[TourFigures]) -> String {
    let mut memory_table =
        Table::new(&["", "items", "user bytes", "resident bytes", "user per resident byte"]);
    for server_figures in figures_by_server {
        memory_table.push_row([
            format!("{} {}", server_figures.server, server_figures.version),
            format_count(server_figures.items as u64),
            format_bytes(server_figures.user_bytes),
            format_bytes(server_figures.resident_bytes),
            format!("{:.2}", server_figures.density()),
        ]);
    }
    let header = [
        "",
        "",
        "requests/s",
        "keys/s",
        "MB/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "CPU us/req",
        "/key",
    ];
    let mut speed_table = Table::new(&header);
    for stage in Stage::ALL {
        let rows: Vec<(&TourFigures, &StageFigures)> = figures_by_server
            .iter()
            .filter_map(|server_figures| {
                Some((
                    server_figures,
                    server_figures
                        .stages
                        .iter()
                        .find(|stage_figures| stage_figures.stage == stage)?,
                ))
            })
            .collect();
        for (index, (server_figures, stage_figures)) in rows.iter().enumerate() {
            speed_table.push_row(format_stage_row(
                if index == 0 { stage.title() } else { "" },
                &server_figures.server,
                stage_figures,
            ));
        }
        if let [(_, ours), (_, theirs)] = rows.as_slice() {
            speed_table.push_row(format_ratio_row(ours, theirs));
        }
    }
    let mut text = format!("{memory_table}\n{speed_table}\n");
    text += &wrap(
        "Latency is that of a whole request over 8 connections (store: 1), from send to last byte. CPU is what the \
         server's threads used, kernel included; the generator's is not counted.",
    );
    if figures_by_server.iter().all(|server_figures| server_figures.failed() == 0) {
        let checked_values: u64 = figures_by_server
            .iter()
            .flat_map(|server_figures| &server_figures.stages)
            .skip(1)
            .map(|stage_figures| stage_figures.keys)
            .sum();
        let checked_values = format_count(checked_values);
        let sentence =
            format!("All {checked_values} values that were read came back byte for byte.");
        let _ = write!(text, "\n{}", wrap(&sentence));
    }
    text
}

fn format_stage_row(title: &str, server: &str, figures: &StageFigures) -> [String; 10] {
    [
        title.to_owned(),
        server.to_owned(),
        format_count(figures.requests_per_s as u64),
        format_count(figures.keys_per_s as u64),
        format_count((figures.bytes_per_s / 1e6) as u64),
        format_count(figures.latency_us_p50 as u64),
        format_count(figures.latency_us_p99 as u64),
        format_count(figures.latency_us_p999 as u64),
        format_decimal(figures.server_cpu_us),
        format_decimal(figures.server_cpu_us_per_key),
    ]
}

/// The first server's figures over the second's.
fn format_ratio_row(ours: &StageFigures, theirs: &StageFigures) -> [String; 10] {
    let ratio = |figure: fn(&StageFigures) -> f64| format_decimal(figure(ours) / figure(theirs));
    [
        String::new(),
        "ratio".to_owned(),
        ratio(|stage_figures| stage_figures.requests_per_s),
        ratio(|stage_figures| stage_figures.keys_per_s),
        ratio(|stage_figures| stage_figures.bytes_per_s),
        ratio(|stage_figures| stage_figures.latency_us_p50),
        ratio(|stage_figures| stage_figures.latency_us_p99),
        ratio(|stage_figures| stage_figures.latency_us_p999),
        ratio(|stage_figures| stage_figures.server_cpu_us),
        ratio(|stage_figures| stage_figures.server_cpu_us_per_key),
    ]
}
