//! The reference page that is generated from this crate's tables: a test compares it, and rewrites it with
//! `GLASSCACHE_WRITE_REFERENCE=1` (`make reference-pages`).

use std::fmt::Write as _;

use crate::session::stats::general::GENERAL_ROWS;
use crate::session::stats::glasscache::{GLASSCACHE_ROWS, ITERATIONS_BELOW_PREFIX};
use crate::session::stats::latency::{FILL, LATENCY_FIELDS};
use crate::session::stats::live::{
    ADVICE_FIELDS, CURVE_FIELDS, Field, HOT_KEY_FIELDS, POINT_FIELDS, PREFIX_FIELDS, RESIZE_FIELDS,
    SAMPLING_FIELDS,
};
use crate::session::stats::policy::{POLICY_FIELDS, SWITCH_FIELDS};
use crate::session::stats::slow::SLOW_FIELDS;
use crate::shared::command_times::COMMANDS;
use crate::shared::slow_commands::WAIT_REASONS;

#[test]
fn the_page_of_statistics_matches_the_tables() {
    let mut page = String::from(
        "# Statistics\n\nGenerated from the tables of the server by `make reference-pages`.\n\n\
         Every value is a row `STAT <name> <value>`. `stats items` and `stats slabs` have memcached's rows, computed \
         for the slab classes that the items would have there; `stats settings` lists the settings, \
         `stats conns` the connections.\n\n## stats\n\nThe names and the order are memcached's.\n\n",
    );
    for (title, rows) in [("", GENERAL_ROWS), ("## stats glasscache\n\n", GLASSCACHE_ROWS)] {
        page += title;
        page += "| name | meaning | unit |\n|---|---|---|\n";
        for row in rows {
            let _ = writeln!(page, "| `{}` | {} | {} |", row.name, row.meaning, row.unit);
        }
        page += "\n";
    }
    let _ = writeln!(
        page,
        "Then `{ITERATIONS_BELOW_PREFIX}<n>` for powers of two: iterations of the event loops that took less than `n` \
         microseconds, and at least as long as the bound before."
    );
    page += "\n## stats curve\n\n\
             Hits and misses at other sizes of `-m`, from a sample of the keys, as of the last second.\n\n";
    push_fields(&mut page, "", CURVE_FIELDS);
    push_fields(&mut page, "", SAMPLING_FIELDS);
    page += "\nThen for each size, with its number `<n>` from 0:\n\n";
    push_fields(&mut page, "<n>:", POINT_FIELDS);
    page += "\nThen for each change of the limit that is worth considering:\n\n";
    push_fields(&mut page, "advice:<n>:", ADVICE_FIELDS);
    page += "\nThen, if the limit was changed while there was a curve that reaches the new one, what was expected of it and what came:\n\n";
    push_fields(&mut page, "resize:", RESIZE_FIELDS);
    page += "\n## stats hotkeys\n\n\
             `stats hotkeys [1s|1m|1h] [requests|bytes]`: the hottest keys of a second, a minute (without an argument) \
             or an hour, by requests or by the bytes that were sent. Refused with `-X`.\n\n";
    push_fields(&mut page, "<n>:", HOT_KEY_FIELDS);
    page += "\n## stats prefixes\n\nThe prefixes of keys with most gets, up to the character of `-D` (a colon). Refused with `-X`.\n\n";
    push_fields(&mut page, "<n>:", PREFIX_FIELDS);
    push_latency_and_slow_commands(&mut page);
    page += "\n## stats policy\n\nThe settings of the eviction policy, and with `-o policy=tuned` what was done to them, as of the last second.\n\n";
    push_fields(&mut page, "", POLICY_FIELDS);
    page += "\nThen for each of the last changes of the settings, the latest first, with its number `<n>` from 0:\n\n";
    push_fields(&mut page, "<n>:", SWITCH_FIELDS);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/statistics.md");
    if std::env::var_os("GLASSCACHE_WRITE_REFERENCE").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let page_on_disk = std::fs::read_to_string(path).unwrap_or_default();
    assert!(page_on_disk == page, "{path} is out of date: make reference-pages");
}

/// Appends what is reported of the times of commands.
fn push_latency_and_slow_commands(page: &mut String) {
    let _ = writeln!(
        page,
        "\n## stats latency\n\nTimes inside the server of a sample of the commands, whatever their protocol, from the \
         moment at which the event loop learns of input to that at which the reply is handed to the kernel; `<command>` \
         is {}. Each key of a get of many counts.\n",
        COMMANDS.map(|command| format!("`{command}`")).join(", ")
    );
    push_fields(page, "<command>:", LATENCY_FIELDS);
    let _ = writeln!(
        page,
        "\nThen the same rows with `{FILL}:` in place of the command: the time of a miss, from the reply that gave a client \
         the lease on a missing item to the value that it stored, as often as it was measured; `{FILL}:leases` is how many \
         leases were given."
    );
    let _ = writeln!(
        page,
        "\n## stats slow\n\nThe slowest commands of the last hour, at most 64, that took `-o slow_ms` milliseconds or more: \
         all that had to wait, and a sample of the others. The slowest has the number 0.\n"
    );
    push_fields(page, "<n>:", SLOW_FIELDS);
    *page += "\nWhat a command can wait for:\n\n| name | meaning |\n|---|---|\n";
    for (_, name, meaning) in &WAIT_REASONS {
        let _ = writeln!(page, "| `{name}` | {meaning} |");
    }
}

/// Appends a table of the fields.
fn push_fields<T>(page: &mut String, prefix: &str, fields: &[Field<T>]) {
    *page += "| name | meaning | unit |\n|---|---|---|\n";
    for field in fields {
        let _ = writeln!(page, "| `{prefix}{}` | {} | {} |", field.name, field.meaning, field.unit);
    }
}
