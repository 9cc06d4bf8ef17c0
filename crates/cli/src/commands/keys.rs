//! `glasscache keys`: lists what a server holds, through `lru_crawler metadump`.
//!
//! The client crate has no dumps because applications should not iterate over a cache, so this
//! command opens its own connection and prints line by line, however many there are.

use std::io::{BufRead, BufReader};

use glasscache_client::Address;
use glasscache_client::address::Endpoint;
use glasscache_lab::report::Report;
use glasscache_lab::why::to_printable;
use glasscache_sim::trace::watch::unescape_key;
use serde_json::{Map, Value, json};

use crate::live_figures::Prefixes;
use crate::live_target::{UNAUTHENTICATED, format_not_memcached};
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, format_report};
use crate::server_reader::ServerReader;
use crate::target::{Target, failure, start_server_hint};

const EXAMPLES: &str = "\
Examples:
  glasscache keys
  glasscache keys --long                 with expiry, size and last access
  glasscache keys --limit 10 --json
  glasscache keys --prefixes             the last hour by prefix: gets, hits, sizes, TTLs

Bytes of a key that are blanks, control characters or not UTF-8 are percent and two hex digits: a%20b.";

/// List the keys of a server.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print all fields that the server reports for each key
    #[arg(long)]
    long: bool,
    /// Stop after this many keys
    #[arg(long, value_name = "NUM")]
    limit: Option<u64>,
    /// The prefixes of keys instead, and what was done with each in the last hour, as a glasscache samples it
    #[arg(long, conflicts_with_all = ["long", "limit"])]
    prefixes: bool,
    /// Server as host:port or path of a unix socket, instead of --server
    #[arg(value_name = "SERVER")]
    positional_server: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Prints one key a line, so that a terminal shows it and no two are alike.
    pub(crate) fn run(mut self, out: &Output) -> Result<Exit, Failure> {
        self.target.use_positional(self.positional_server.take());
        out.begin_list();
        if self.prefixes {
            return print_prefixes(&self.target, out);
        }
        let mut keys_left = self.limit.unwrap_or(u64::MAX);
        for address in Address::parse_list(&self.target.server).map_err(|error| failure(&error))? {
            for_each_key(&self.target, &address.endpoint, &mut |fields| {
                if keys_left == 0 {
                    return Ok(false);
                }
                keys_left -= 1;
                self.print(fields, out).map(|()| true)
            })?;
        }
        Ok(Exit::Success)
    }

    fn print(&self, fields: &str, out: &Output) -> Result<(), Failure> {
        let mut remaining_fields = fields.split(' ');
        let key = to_printable(&parse_key(remaining_fields.next().unwrap_or_default()));
        if !out.is_json() {
            let other_fields: Vec<&str> = remaining_fields.collect();
            return out.print_line(if self.long {
                format!("{key} {}", other_fields.join(" "))
            } else {
                key
            });
        }
        let mut row = Map::from_iter([("key".to_owned(), Value::String(key))]);
        for (name, value) in remaining_fields.filter_map(|field| field.split_once('=')) {
            let json_value = value.parse::<i64>().map_or_else(|_| json!(value), Value::from);
            row.insert(name.to_owned(), json_value);
        }
        out.print_row(&Value::Object(row))
    }
}

/// Prints the prefixes of each server.
fn print_prefixes(target: &Target, out: &Output) -> Result<Exit, Failure> {
    const HINT: &str = "a glasscache without -X has these figures; of a memcached, glasscache why counts by prefix";
    for reader in ServerReader::open_all(target)? {
        let rows = reader.read_rows("prefixes").map_err(|failure| failure.or_hint(HINT))?;
        let prefixes = Prefixes::of(&rows);
        if out.is_json() {
            for mut row in prefixes.to_documents() {
                row["server"] = json!(reader.to_string());
                out.print_row(&row)?;
            }
        } else if prefixes.is_empty() {
            out.print_line(format!("{reader}: no prefix was requested often enough"))?;
        } else {
            let tables = vec![prefixes.to_table(&format!("{reader}, the last hour:"))];
            let report = Report { tables, ..Report::default() };
            out.print_line(format_report(&report, PREFIX_DETAIL).trim())?;
        }
    }
    Ok(Exit::Success)
}

/// All of them: the server has a list that is short.
const PREFIX_DETAIL: Detail = Detail { prints_all: true, is_wide: false };

/// The key at the beginning of a line of a dump.
pub(super) fn parse_key(fields: &str) -> Vec<u8> {
    let escaped_key = fields.split(' ').next().unwrap_or_default();
    unescape_key(escaped_key.as_bytes())
}

/// Why a server sent `line` in place of its keys.
fn dump_failure(server: &str, line: &str) -> Failure {
    let is_refusal = ["ERROR", "CLIENT_ERROR", "SERVER_ERROR", "BUSY"]
        .iter()
        .any(|start| line.starts_with(start));
    if is_refusal && !line.contains(UNAUTHENTICATED) {
        let message = format!("{server} lists no keys: {line}");
        return Failure::new(Exit::BadData, message)
            .with_hint("a server started with -X refuses dumps");
    }
    Failure::new(Exit::BadData, format_not_memcached(server, "lru_crawler metadump", line))
}

/// Passes the fields of each key of a server to `visit`, in no particular order, until it returns false.
pub(super) fn for_each_key(
    target: &Target,
    endpoint: &Endpoint,
    visit: &mut dyn FnMut(&str) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let to_unreachable_failure = |error: std::io::Error| {
        Failure::new(Exit::Unreachable, format!("{}: {error}", target.server))
            .with_hint(start_server_hint(&target.server))
    };
    let mut stream = target.connect(endpoint).map_err(to_unreachable_failure)?;
    stream.write_all(b"lru_crawler metadump all\r\n").map_err(to_unreachable_failure)?;
    for line in BufReader::new(stream).split(b'\n') {
        let line = line.map_err(to_unreachable_failure)?;
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line == "END" {
            return Ok(());
        }
        let Some(fields) = line.strip_prefix("key=") else {
            // Older servers send OK before the first key.
            if line == "OK" {
                continue;
            }
            return Err(dump_failure(&target.server, line));
        };
        if !visit(fields)? {
            return Ok(());
        }
    }
    Err(Failure::new(Exit::BadData, "the list of keys ended early"))
}
