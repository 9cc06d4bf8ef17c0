//! What is in a key stream: its requests, keys, bytes, operations and times.

use std::path::Path;

use glasscache_lab::text::{format_count, format_count_of};
use glasscache_sim::trace::intern::Interner;
use glasscache_sim::trace::{Batch, Columns, Op};
use serde_json::{Value, json};

use super::Contents;
use super::fact::Fact;
use crate::output::{Exit, Failure};
use crate::traces::InputArgs;

/// What is counted of a key stream while it is read.
#[derive(Default)]
struct Counts {
    requests: u64,
    /// Requests of each key.
    requests_by_key: Vec<u32>,
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
            if id == self.requests_by_key.len() {
                self.requests_by_key.push(0);
            }
            self.requests_by_key[id] = self.requests_by_key[id].saturating_add(1);
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
        self.ops.iter().map(|&(op, count)| (name(op), json!(count))).collect()
    }
}

/// The failure of a file in which no line or row is a request.
fn no_request_failure(path: &Path, skipped_lines: u64) -> Failure {
    let path_text = path.display();
    let message = match skipped_lines {
        0 => format!("{path_text}: has no request"),
        lines => format!(
            "{path_text}: has no request in its {}",
            format_count_of(lines, "line", "lines")
        ),
    };
    Failure::new(Exit::BadData, message)
}

/// Reads a key stream and returns what it holds.
pub(super) fn inspect(path: &Path, input: &InputArgs) -> Result<Contents, Failure> {
    let mut stream = input.open_with_unconverted_times(path, Columns::ALL)?;
    let (mut counts, mut interner, mut batch) =
        (Counts::default(), Interner::new(), Batch::default());
    while stream.read(&mut batch)? > 0 {
        counts.add_batch(&batch, &mut interner);
    }
    if counts.requests == 0 {
        return Err(no_request_failure(path, stream.facts().skipped_lines));
    }
    let distinct_keys = counts.requests_by_key.len() as u64;
    let keys_used_once =
        counts.requests_by_key.iter().filter(|&&requests| requests == 1).count() as u64;
    let number_or_null = |value: f64| {
        if counts.sized_requests > 0 { json!(value) } else { Value::Null }
    };
    let facts = vec![
        Fact::new("kind", "key stream"),
        Fact::new("requests", counts.requests),
        Fact::new("distinct_keys", distinct_keys),
        Fact::new("seen_once", keys_used_once),
        Fact::new(
            "most_used_key_requests",
            counts.requests_by_key.iter().max().copied().unwrap_or(0),
        ),
        Fact::new(
            "bytes_requested",
            if counts.sized_requests > 0 { json!(counts.bytes) } else { Value::Null },
        ),
        Fact::new(
            "mean_size_bytes",
            number_or_null(counts.bytes as f64 / counts.sized_requests.max(1) as f64),
        ),
        Fact::new("requests_without_size", counts.requests - counts.sized_requests),
        Fact::new("operations", counts.op_counts()),
        Fact::new("first_time", counts.first_time),
        Fact::new("last_time", counts.last_time),
        Fact::new("hashed_text_keys", stream.facts().hashed_keys),
        Fact::new("key_collisions", stream.facts().key_collisions),
        Fact::new("skipped_rows", stream.facts().skipped_lines),
        Fact::new("cut_within_a_row", stream.is_truncated()),
    ];
    let sentence = format!(
        "{} of {}, {} seen once.",
        format_count_of(counts.requests, "request", "requests"),
        format_count_of(distinct_keys, "key", "keys"),
        format_count(keys_used_once)
    );
    Ok(Contents { facts, tables: Vec::new(), sentence })
}
