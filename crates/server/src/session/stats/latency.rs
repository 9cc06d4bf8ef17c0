//! `stats latency`: how long commands take inside the server, and how long the misses that clients fill under a lease.

use super::live::{Field, write_fields};
use super::table::Value;
use crate::session::context::Context;
use crate::session::rows::Rows;
use crate::shared::command_times::COMMANDS;
use crate::shared::time_histogram::Times;

/// The prefix of the rows about misses.
pub(crate) const FILL: &str = "fill";

/// Executes `stats latency`.
pub(super) fn write_latency(context: &Context<'_>, out: &mut Vec<u8>) {
    let shared = context.shared;
    let mut rows = Rows::new(out);
    for (command, times) in COMMANDS.iter().zip(&shared.command_times()) {
        write_fields(LATENCY_FIELDS, &format!("{command}:"), times, &mut rows);
    }
    rows.write_row(format_args!("{FILL}:leases"), shared.fill_times.leases());
    write_fields(LATENCY_FIELDS, &format!("{FILL}:"), &shared.fill_times.times(), &mut rows);
    rows.end();
}

/// Microseconds, to a tenth.
fn us(value: f64) -> Value {
    Value::Text(format!("{value:.1}"))
}

/// The rows of each command.
#[rustfmt::skip]
pub(crate) static LATENCY_FIELDS: &[Field<Times>] = &[
    Field::new("count", "", "how many were measured since the start", |t| t.count().into()),
    Field::new("mean_us", "us", "their mean", |t| us(t.mean_us())),
    Field::new("p50_us", "us", "their median", |t| us(t.percentile_us(0.5))),
    Field::new("p90_us", "us", "what 90 % do not exceed", |t| us(t.percentile_us(0.9))),
    Field::new("p95_us", "us", "what 95 % do not exceed", |t| us(t.percentile_us(0.95))),
    Field::new("p99_us", "us", "what 99 % do not exceed", |t| us(t.percentile_us(0.99))),
    Field::new("p999_us", "us", "what 99.9 % do not exceed", |t| us(t.percentile_us(0.999))),
];
