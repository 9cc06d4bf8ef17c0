//! `stats slow`: the slowest commands of the last hour, with what they waited for.

use super::live::{Field, printable, write_entries};
use super::table::Value;
use crate::session::context::Context;
use crate::session::rows::Rows;
use crate::shared::Shared;
use crate::shared::slow_commands::{SlowCommand, to_us};

/// A slow command as it is reported.
pub(crate) struct SlowRow {
    pub(crate) slow: SlowCommand,
    /// Seconds since it ended.
    pub(crate) age_s: u32,
    /// Whether its key may be listed.
    lists_key: bool,
}

impl SlowRow {
    /// Its key, if it has one that may be listed.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        let key = &self.slow.command.key;
        (self.lists_key && !key.is_empty()).then_some(key)
    }
}

/// The slow commands, the slowest first.
pub(crate) fn slow_rows(shared: &Shared) -> Vec<SlowRow> {
    let now = shared.clock.now();
    let to_row = |slow: SlowCommand| SlowRow {
        age_s: now.0.saturating_sub(slow.ended_at.0),
        lists_key: shared.config.dump_enabled,
        slow,
    };
    shared.slow_commands.list(now).into_iter().map(to_row).collect()
}

/// Executes `stats slow`.
pub(super) fn write_slow(context: &Context<'_>, out: &mut Vec<u8>) {
    let mut rows = Rows::new(out);
    write_entries(SLOW_FIELDS, "", &slow_rows(context.shared), &mut rows);
    rows.end();
}

/// The rows of each slow command.
#[rustfmt::skip]
pub(crate) static SLOW_FIELDS: &[Field<SlowRow>] = &[
    Field::new("command", "", "its name in the text protocol; `unknown` if that could not be seen", |r| r.slow.command.name.into()),
Field::new("key", "", "its key, as in `stats hotkeys`; of a get of many the first; absent if it has none, or with `-X`", |r| r.key().map_or(Value::Absent, printable)),
    Field::new("client", "", "the address of its client; absent if it is not known either", |r| r.slow.client.as_ref().map_or(Value::Absent, |client| client.to_string().into())),
    Field::new("bytes", "bytes", "received and sent for it; absent as `client`", |r| r.slow.bytes.map_or(Value::Absent, Value::from)),
    Field::new("time_us", "us", "from the moment at which the event loop learned of it to its end", |r| to_us(r.slow.time).into()),
    Field::new("waited_for", "", "what it waited for longest", |r| r.slow.reason.name().into()),
    Field::new("waited_us", "us", "how long it waited for that", |r| to_us(r.slow.waited).into()),
    Field::new("age_s", "s", "how long ago it ended", |r| r.age_s.into()),
];
