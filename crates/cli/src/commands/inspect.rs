//! `glasscache inspect`: what is in a trace, before anything is computed from it.
//!
//! A file is read as a key stream, a folder as a request log; either is read to its end, so a fault anywhere is found.

use std::path::{Path, PathBuf};

use crate::layout::two_column_list;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::summary::{cache_time_share, items_histogram};
use glasscache_sim::trace::intern::Interner;
use glasscache_sim::trace::log::{NONE, RequestLog};
use glasscache_sim::trace::{Batch, Columns, Op};
use serde_json::{Value, json};

use crate::output::{Exit, Failure, Output};
use crate::table::{count, percent};
use crate::traces::{InputArgs, read_log};

const EXAMPLES: &str = "\
Examples:
  glasscache inspect requests.parquet
  glasscache inspect recorded/ --json
  glasscache inspect export.csv --key-column url --size-column bytes";

/// What is in this trace?
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Key stream (.parquet, .csv, .jsonl, or a log) or folder of a request log
    trace: PathBuf,
    #[command(flatten)]
    input: InputArgs,
}

impl Args {
    /// Reads the trace and prints what it holds.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let facts = if self.trace.is_dir() {
            log_facts(&self.trace)?
        } else {
            key_facts(&self.trace, &self.input)?
        };
        if out.is_json() {
            let mut document = json!({});
            for fact in facts {
                document[fact.name] = fact.value;
            }
            out.document(&document);
        } else {
            let rows = facts
                .iter()
                .map(|fact| (fact.name.replace('_', " "), fact.text()));
            out.bytes(two_column_list(rows).as_bytes())?;
        }
        Ok(Exit::Success)
    }
}

/// One thing known of a trace.
struct Fact {
    name: &'static str,
    value: Value,
    /// How it is printed, where that is not the value.
    printed: Option<String>,
}

impl Fact {
    fn new(name: &'static str, value: impl Into<Value>) -> Self {
        Self {
            name,
            value: value.into(),
            printed: None,
        }
    }

    fn text(&self) -> String {
        if let Some(printed) = &self.printed {
            return printed.clone();
        }
        match &self.value {
            Value::Null => "unknown".to_owned(),
            Value::String(text) => text.clone(),
            Value::Bool(flag) => if *flag { "yes" } else { "no" }.to_owned(),
            Value::Object(map) => {
                let pairs = map.iter().map(|(name, number)| {
                    format!("{name} {}", count(number.as_u64().unwrap_or(0)))
                });
                pairs.collect::<Vec<_>>().join(", ")
            }
            value => match (value.as_u64(), value.as_f64()) {
                (Some(whole), _) => count(whole),
                (None, Some(real)) => format!("{real:.4}"),
                _ => value.to_string(),
            },
        }
    }
}

/// What is counted of a key stream while it is read.
#[derive(Default)]
struct Counts {
    requests: u64,
    /// Requests of each key.
    uses: Vec<u32>,
    bytes: u64,
    sized_requests: u64,
    /// How often each operation occurs, in the order of first use.
    ops: Vec<(Option<Op>, u64)>,
    first_time: u64,
    last_time: u64,
}

impl Counts {
    fn add_batch(&mut self, batch: &Batch, interner: &mut Interner) {
        if self.requests == 0 {
            self.first_time = batch.time.first().copied().unwrap_or(0);
        }
        self.last_time = batch.time.last().copied().unwrap_or(self.last_time);
        self.requests += batch.len() as u64;
        for &key in &batch.key {
            let id = interner.intern(key, 0) as usize;
            if id == self.uses.len() {
                self.uses.push(0);
            }
            self.uses[id] = self.uses[id].saturating_add(1);
        }
        for size in batch.size.iter().flatten() {
            self.bytes += u64::from(*size);
            self.sized_requests += 1;
        }
        for op in &batch.op {
            match self.ops.iter_mut().find(|(known_op, _)| known_op == op) {
                Some((_, count)) => *count += 1,
                None => self.ops.push((*op, 1)),
            }
        }
    }

    fn op_counts(&self) -> Value {
        let name = |op: Option<Op>| op.map_or("unknown", Op::name).to_owned();
        self.ops
            .iter()
            .map(|&(op, count)| (name(op), json!(count)))
            .collect()
    }
}

fn key_facts(path: &Path, input: &InputArgs) -> Result<Vec<Fact>, Failure> {
    let mut stream = input.open_raw(path, Columns::ALL)?;
    let (mut counts, mut interner, mut batch) =
        (Counts::default(), Interner::new(), Batch::default());
    while stream.read(&mut batch)? > 0 {
        counts.add_batch(&batch, &mut interner);
    }
    let distinct_keys = counts.uses.len() as u64;
    let keys_used_once = counts.uses.iter().filter(|&&uses| uses == 1).count() as u64;
    let number_or_null = |value: f64| {
        if counts.sized_requests > 0 {
            json!(value)
        } else {
            Value::Null
        }
    };
    Ok(vec![
        Fact::new("kind", "key stream"),
        Fact::new("requests", counts.requests),
        Fact::new("distinct_keys", distinct_keys),
        Fact::new("seen_once", keys_used_once),
        Fact::new(
            "most_used_key_requests",
            counts.uses.iter().max().copied().unwrap_or(0),
        ),
        Fact::new(
            "bytes_requested",
            if counts.sized_requests > 0 {
                json!(counts.bytes)
            } else {
                Value::Null
            },
        ),
        Fact::new(
            "mean_size_bytes",
            number_or_null(counts.bytes as f64 / counts.sized_requests.max(1) as f64),
        ),
        Fact::new(
            "requests_without_size",
            counts.requests - counts.sized_requests,
        ),
        Fact::new("operations", counts.op_counts()),
        Fact::new("first_time", counts.first_time),
        Fact::new("last_time", counts.last_time),
        Fact::new("hashed_text_keys", stream.facts().hashed_keys),
        Fact::new("key_collisions", stream.facts().key_collisions),
        Fact::new("skipped_rows", stream.facts().skipped_rows),
        Fact::new("cut_within_a_row", stream.is_truncated()),
    ])
}

/// Requests by their number of items.
fn histogram_fact(log: &RequestLog) -> Fact {
    let rows = items_histogram(log);
    let value = rows.iter().map(|row| {
        json!({ "items_from": row.items_from, "items_to": row.items_to, "requests": row.requests })
    });
    let printed = rows.iter().map(|row| {
        let range = if row.items_from == row.items_to {
            row.items_from.to_string()
        } else {
            format!("{} to {}", row.items_from, row.items_to)
        };
        format!("{range}: {}", count(row.requests))
    });
    Fact {
        name: "requests_by_items",
        value: value.collect(),
        printed: Some(printed.collect::<Vec<_>>().join(", ")),
    }
}

/// How much of the requests' time the cache takes without a strategy, if the folder has a latency table.
fn cache_share_fact(folder: &Path, log: &RequestLog) -> Result<Fact, Failure> {
    let latency = folder.join("latency.json");
    let share = match std::fs::read_to_string(&latency) {
        Ok(text) => {
            let cost = CostModel::parse(&text).map_err(|error| {
                Failure::new(Exit::BadData, format!("{}: {error}", latency.display()))
            })?;
            let prepared = PreparedLog::new(log, |_| true);
            cache_time_share(&prepared, &cost, &log.requests.base_us)
        }
        // Without a table it is unknown what a call takes.
        Err(_) => None,
    };
    Ok(Fact {
        name: "cache_time_share",
        value: json!(share),
        printed: share.map(|share| percent(Some(share))),
    })
}

fn log_facts(folder: &Path) -> Result<Vec<Fact>, Failure> {
    let request_log = read_log(folder)?;
    let (items, requests) = (&request_log.items, &request_log.requests);
    let roots = items
        .parents
        .iter()
        .filter(|&&parent| parent == NONE)
        .count();
    let instances = requests
        .instance
        .iter()
        .collect::<std::collections::BTreeSet<_>>()
        .len();
    let mean = requests.items.len() as f64 / requests.len().max(1) as f64;
    Ok(vec![
        Fact::new("kind", "request log"),
        Fact::new("requests", requests.len()),
        Fact::new("items", items.len()),
        Fact::new("roots", roots),
        Fact::new(
            "item_bytes",
            items.sizes.iter().map(|&size| u64::from(size)).sum::<u64>(),
        ),
        Fact::new("instances", instances),
        Fact::new("routes", requests.routes.len()),
        Fact::new("items_asked_for", requests.items.len()),
        Fact::new("items_per_request", mean),
        histogram_fact(&request_log),
        cache_share_fact(folder, &request_log)?,
        Fact::new(
            "first_time_us",
            requests.time_us.first().copied().unwrap_or(0),
        ),
        Fact::new(
            "last_time_us",
            requests.time_us.last().copied().unwrap_or(0),
        ),
        Fact::new("cut_within_a_row", request_log.truncated_after.is_some()),
    ])
}
