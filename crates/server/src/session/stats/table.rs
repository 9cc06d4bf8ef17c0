//! Tables of statistics: one row for each name prints it and documents it.
//!
//! The same tables are printed by `stats` and written to `docs/reference/statistics.md` (`statistics_page_test` compares
//! them).

use glasscache_store::Seconds;

use crate::session::rows::Rows;
pub(super) use crate::session::rows::Value;
use crate::shared::Shared;
use crate::shared::counters::Totals;

/// What statistics are read from.
#[derive(Clone, Copy)]
pub(crate) struct StatsContext<'s> {
    /// The server.
    pub(crate) shared: &'s Shared,
    /// The second in which they are read.
    pub(crate) now: Seconds,
}

/// One statistic.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The unit of the value; empty for a plain count or text.
    pub(crate) unit: &'static str,
    pub(crate) meaning: &'static str,
    /// Whether it only grows, until `stats reset` or the end of the process.
    pub(crate) is_counter: bool,
    read_value: fn(&Snapshot<'_>) -> Value,
}

impl Row {
    pub(super) const fn new(
        name: &'static str,
        unit: &'static str,
        meaning: &'static str,
        read_value: fn(&Snapshot<'_>) -> Value,
    ) -> Row {
        Row { name, unit, meaning, is_counter: false, read_value }
    }

    /// A row that only grows.
    pub(super) const fn counter(
        name: &'static str,
        unit: &'static str,
        meaning: &'static str,
        read_value: fn(&Snapshot<'_>) -> Value,
    ) -> Row {
        Row { is_counter: true, ..Row::new(name, unit, meaning, read_value) }
    }

    /// A row of memcached for a feature that this server does not have.
    pub(super) const fn zero(name: &'static str) -> Row {
        const ALWAYS_0: &str = "always 0; only memcached has this";
        Row::new(name, "", ALWAYS_0, |_| Value::Number(0))
    }
}

/// Everything that the rows of one reply are computed from.
pub(super) struct Snapshot<'c> {
    pub(super) context: StatsContext<'c>,
    pub(super) store_counters: glasscache_store::Counters,
    pub(super) totals: Totals,
    /// CPU seconds in user mode.
    pub(super) user_cpu_s: String,
    /// CPU seconds in kernel mode.
    pub(super) system_cpu_s: String,
}

impl<'c> Snapshot<'c> {
    pub(super) fn new(context: StatsContext<'c>) -> Snapshot<'c> {
        let (user_cpu_s, system_cpu_s) = super::process::cpu_time();
        Snapshot {
            context,
            store_counters: context.shared.store_counters(),
            totals: context.shared.totals(),
            user_cpu_s,
            system_cpu_s,
        }
    }

    /// Appends the rows of a table.
    pub(super) fn write_table(&self, table: &[Row], rows: &mut Rows<'_>) {
        for row in table {
            rows.write_value(row.name, (row.read_value)(self));
        }
    }
}
