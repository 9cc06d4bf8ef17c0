//! The text of `codec`: the recommended setting first, then forms, calls, prefixes and the storage table.

use std::fmt::Write;

use glasscache_lab::codec::{CallParts, Candidate, Choice, CodecResult, StorageRow};
use glasscache_lab::text::{
    Table, format_bytes, format_count, format_count_of, format_decimal, wrap,
};
use glasscache_sim::key_prefix::NO_PREFIX;

use crate::page_table::ROWS_WITHOUT_ALL;

/// Characters of the longest bar.
const BAR_WIDTH: f64 = 36.0;

/// A part of a call: its name, its letter in the bar, its time.
type NamedPart = (&'static str, char, fn(&CallParts) -> f64);

/// The parts of a call in order.
pub(super) const CALL_PARTS: [NamedPart; 7] = [
    ("serialise", 's', |parts| parts.serialise_us),
    ("compress", 'c', |parts| parts.compress_us),
    ("send", '>', |parts| parts.send_us),
    ("server", '#', |parts| parts.server_us),
    ("receive", '<', |parts| parts.receive_us),
    ("decompress", 'd', |parts| parts.decompress_us),
    ("deserialise", 'D', |parts| parts.deserialise_us),
];

/// Everything that the command prints.
pub(super) fn format_result(result: &CodecResult, prints_all: bool) -> String {
    let mut text = wrap(&format_sentence(result)) + "\n";
    let row_limit = if prints_all { usize::MAX } else { ROWS_WITHOUT_ALL };
    let _ = write!(
        text,
        "\n{}\n{}",
        wrap(&format!(
            "Forms of {} values, best first; times of a value in us:",
            format_count(result.measured_values as u64)
        )),
        build_candidates_table(result.candidates.iter().take(row_limit))
    );
    if let (Some(baseline), Some(recommended_choice)) = (&result.baseline, &result.recommended) {
        let _ = write!(text, "\n{}", format_call_parts(baseline, recommended_choice));
    }
    if !result.prefix_rows.is_empty() {
        let mut table = Table::new(&["key prefix", "values", "bytes", "ratio"]);
        for row in result.prefix_rows.iter().take(row_limit) {
            let prefix = if row.prefix.is_empty() { NO_PREFIX } else { &row.prefix };
            let numbers = [
                format_count(row.values as u64),
                format_bytes(row.bytes),
                format!("{:.2}", row.ratio),
            ];
            table.push_row(std::iter::once(prefix.to_owned()).chain(numbers));
        }
        let _ = write!(text, "\nWith the recommended setting, by key prefix:\n{table}");
    }
    if !result.storage_rows.is_empty() {
        let title = format!(
            "All values in blocks of 512 KiB, stored in {} and read three times in random order:",
            result.server_name
        );
        let _ = write!(text, "\n{}\n{}", wrap(&title), build_storage_table(&result.storage_rows));
    }
    let _ = write!(text, "\n{}", wrap(&format_notes(result, prints_all)));
    text
}

/// The recommendation in some sentences.
pub(super) fn format_sentence(result: &CodecResult) -> String {
    let (Some(baseline), Some(recommended)) = (&result.baseline, &result.recommended) else {
        return "Nothing was measured to the end.".to_owned();
    };
    let network_text = result.network_mbit.map_or_else(
        || "on the network as measured".to_owned(),
        |mbit| format!("at {} Mbit/s", format_count(mbit as u64)),
    );
    let mut sentence = if recommended.threshold_bytes.is_none()
        && recommended.serialiser == baseline.serialiser
    {
        format!(
            "{}: no compression makes a call faster {network_text}",
            recommended.codec_expression()
        )
    } else {
        format!(
            "{}: {:.0} % of the bytes and {:.0} % of the time of a call {network_text}, compared with {}",
            recommended.codec_expression(),
            100.0 * recommended.bytes as f64 / baseline.bytes.max(1) as f64,
            100.0 * recommended.call_us / baseline.call_us.max(1e-9),
            baseline.codec_expression()
        )
    };
    let _ =
        write!(sentence, ", with {} gets for each set.", format_decimal(result.reads_per_write));
    if let Some(measured) = result.measured_calls {
        let _ = write!(
            sentence,
            " {}'s median get took {} us against {} (forecast: {} us), its set {} us (forecast: {} us).",
            result.client_name.trim_start_matches("the "),
            format_decimal(measured.get_us),
            result.server_name,
            format_decimal(recommended.get_us_p50),
            format_decimal(measured.set_us),
            format_decimal(recommended.set_us_p50)
        );
    }
    sentence
}

fn build_candidates_table<'c>(candidates: impl Iterator<Item = &'c Candidate>) -> Table {
    let mut table = Table::new(&["form", "ratio", "write", "read", "call", "pays below Mbit/s"]);
    for candidate in candidates {
        let break_even =
            candidate.read_break_even_mbit.map_or_else(|| "-".to_owned(), format_decimal);
        let numbers =
            [candidate.write_us, candidate.read_us, candidate.call_us].map(format_decimal);
        let cells = [candidate.codec.clone(), format!("{:.2}", candidate.ratio)];
        table.push_row(cells.into_iter().chain(numbers).chain([break_even]));
    }
    table
}

/// The parts of a call before and after, as bars.
fn format_call_parts(baseline: &Choice, recommended_choice: &Choice) -> String {
    let calls = [
        ("set before", &baseline.set),
        ("set after", &recommended_choice.set),
        ("get before", &baseline.get),
        ("get after", &recommended_choice.get),
    ];
    let longest_us = calls.iter().map(|(_, parts)| parts.total_us()).fold(0.0, f64::max);
    let mut text = String::from("A call costs, in us:\n");
    for (name, parts) in calls {
        let mut bar = String::new();
        for (_, letter, time_of_part) in CALL_PARTS {
            let width = (time_of_part(parts) / longest_us.max(1e-9) * BAR_WIDTH).round() as usize;
            bar.extend(std::iter::repeat_n(letter, width));
        }
        let _ = writeln!(text, "  {name:<10}  {:>6}  {bar}", format_decimal(parts.total_us()));
    }
    let mut table = Table::new(&["", "set before", "after", "get before", "after"]);
    for (name, letter, time_of_part) in CALL_PARTS {
        let numbers = calls.map(|(_, parts)| match time_of_part(parts) {
            0.0 => "-".to_owned(),
            us => format_decimal(us),
        });
        table.push_row(std::iter::once(format!("{letter} {name}")).chain(numbers));
    }
    text + &table.to_string()
}

fn build_storage_table(rows: &[StorageRow]) -> Table {
    let mut table = Table::new(&["codec", "bytes", "ratio", "write s", "read s", "", ""]);
    for row in rows {
        let read_times = row.read_s.iter().map(|seconds| format_decimal(*seconds));
        let cells = [
            row.codec.clone(),
            format_bytes(row.bytes),
            format!("{:.3}", row.ratio),
            format_decimal(row.write_s),
        ];
        table.push_row(cells.into_iter().chain(read_times));
    }
    table
}

fn format_notes(result: &CodecResult, prints_all: bool) -> String {
    let mut notes = vec![
        "ratio: bytes over those given. call: the mean time of a call with this form. Compressing makes a get faster on \
         networks below the last column."
            .to_owned(),
    ];
    if result.wrong_values() > 0 {
        let wrong_text = format_count(result.wrong_values());
        notes.push(format!("{wrong_text} values were absent or WRONG when read."));
    }
    if result.skipped_values > 0 {
        let skipped_text = format_count(result.skipped_values);
        notes.push(format!(
            "{skipped_text} values were left out: empty, above 1,000,000 bytes, or unreadable."
        ));
    }
    if result.is_truncated {
        notes.push("More values are there than were read.".to_owned());
    }
    if !result.left_out.is_empty() {
        notes.push(format!("Left out: {}.", result.left_out.join("; ")));
    }
    let format_hidden_rows = |rows: usize, singular, plural| {
        let hidden_count = rows.saturating_sub(ROWS_WITHOUT_ALL) as u64;
        (hidden_count > 0 && !prints_all).then(|| format_count_of(hidden_count, singular, plural))
    };
    let hidden_texts: Vec<String> = [
        format_hidden_rows(result.candidates.len(), "more form", "more forms"),
        format_hidden_rows(result.prefix_rows.len(), "more prefix", "more prefixes"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !hidden_texts.is_empty() {
        notes.push(format!("--all prints {}.", hidden_texts.join(" and ")));
    }
    notes.join(" ")
}
