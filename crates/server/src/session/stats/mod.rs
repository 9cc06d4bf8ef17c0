//! `stats` and its families, with memcached's names, order and number of rows.
//!
//! Exporters read these rows by name and tests count them, so a row that has no meaning here stays, as 0.
//! Statistics that only this server has are in `stats glasscache`.

pub(crate) mod general;
pub(crate) mod glasscache;
pub(crate) mod latency;
pub(crate) mod live;
pub(crate) mod policy;
mod process;
mod settings;
mod slabs;
pub(crate) mod slow;
pub(crate) mod table;

use std::collections::HashMap;

use glasscache_protocol::{ascii, replies};

use self::table::StatsContext;
use crate::session::connection_effect::ConnectionEffect;
use crate::session::context::Context;
use crate::session::dump::{CachedumpLimits, Dump, ItemDump, LineFormat};
use crate::session::output::Output;

/// The rows of plain `stats`, of its settings, of both tables of slab classes and of this server alone, one after another, for
/// those who read them without a connection.
pub(crate) fn write_all_tables(context: StatsContext<'_>) -> [Vec<u8>; 5] {
    let write_table = |write: fn(StatsContext<'_>, &mut Vec<u8>)| {
        let mut text = Vec::new();
        write(context, &mut text);
        text
    };
    [
        write_table(general::write_general_rows),
        write_table(settings::write_settings),
        write_table(slabs::write_items),
        write_table(slabs::write_slabs),
        write_table(glasscache::write_glasscache_rows),
    ]
}

/// The rows of a table, by name.
pub(crate) type StatRows = HashMap<String, String>;

/// The rows `STAT <name> <value>` of a table.
pub(crate) fn read_rows(text: &[u8]) -> StatRows {
    let text = String::from_utf8_lossy(text);
    let rows = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    rows.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Executes `stats` with its arguments.
pub(crate) fn run_stats(
    arguments: &[&[u8]],
    context: &Context<'_>,
    out: &mut Output<'_>,
) -> ConnectionEffect {
    let reply = &mut out.bytes;
    let stats_context = StatsContext { shared: context.shared, now: context.now };
    match arguments {
        [] => general::write_general_rows(stats_context, reply),
        [b"settings", ..] => settings::write_settings(stats_context, reply),
        [b"items", ..] => slabs::write_items(stats_context, reply),
        [b"slabs", ..] => slabs::write_slabs(stats_context, reply),
        // Sizes would cost a counter per size on each write; memcached has them off as well.
        [b"sizes", ..] => reply.extend_from_slice(b"STAT sizes_status disabled\r\nEND\r\n"),
        [b"conns", ..] => return ConnectionEffect::Dump(Dump::Connections { resume_after: 0 }),
        [b"cachedump", arguments_left @ ..] => match start_cachedump(arguments_left, context) {
            Ok(dump) => return ConnectionEffect::Dump(dump),
            Err(refusal) => reply.extend_from_slice(refusal),
        },
        [b"detail", b"dump", ..] if context.shared.config.dump_enabled => {
            return ConnectionEffect::Dump(Dump::Prefixes { resume_after: None });
        }
        [b"detail", arguments_left @ ..] => set_detail_enabled(arguments_left, context, reply),
        [b"curve", ..] => live::write_curve(context, reply),
        [b"hotkeys", arguments_left @ ..] => live::write_hot_keys(arguments_left, context, reply),
        [b"latency", ..] => latency::write_latency(context, reply),
        [b"policy", ..] => policy::write_policy(context, reply),
        [b"prefixes", ..] => live::write_prefixes(context, reply),
        [b"slow", ..] => slow::write_slow(context, reply),
        [b"glasscache", ..] => glasscache::write_glasscache_rows(stats_context, reply),
        [b"reset", ..] => {
            context.shared.reset_stats();
            return ConnectionEffect::Dump(Dump::DiscardedPrefixes(
                context.shared.prefix_table.take_prefixes(),
            ));
        }
        _ => reply.extend_from_slice(replies::ERROR),
    }
    ConnectionEffect::Continue
}

/// Whether a group of statistics, by its first argument, neither has keys or parts of them nor changes anything: these
/// need no login at an address for statistics.
pub(crate) fn is_group_without_keys(group: Option<&[u8]>) -> bool {
    match group {
        None => true,
        Some(name) => {
            matches!(
                name,
                b"settings"
                    | b"items"
                    | b"slabs"
                    | b"sizes"
                    | b"conns"
                    | b"curve"
                    | b"latency"
                    | b"policy"
                    | b"glasscache"
            )
        }
    }
}

fn set_detail_enabled(arguments: &[&[u8]], context: &Context<'_>, out: &mut Vec<u8>) {
    if !context.shared.config.dump_enabled {
        return out.extend_from_slice(replies::DETAIL_DISABLED);
    }
    match arguments {
        [switch @ (b"on" | b"off"), ..] => {
            context.shared.prefix_table.set_on(*switch == b"on");
            context.shared.update_is_observed();
            out.extend_from_slice(replies::OK);
        }
        _ => out.extend_from_slice(replies::DETAIL_USAGE),
    }
}

/// memcached's bound on class numbers.
const CLASSES_END: u32 = 64;

/// `stats cachedump <class> <limit>`: some keys of one slab class, as old tools list them.
fn start_cachedump(arguments: &[&[u8]], context: &Context<'_>) -> Result<Dump, &'static [u8]> {
    if !context.shared.config.dump_enabled {
        return Err(replies::CACHEDUMP_DISABLED);
    }
    let [class_token, limit_token, ..] = arguments else {
        return Err(replies::BAD_LINE);
    };
    let (Some(class), Some(limit)) = (ascii::parse_u32(class_token), ascii::parse_u32(limit_token))
    else {
        return Err(replies::BAD_FORMAT);
    };
    if class >= CLASSES_END {
        return Err(replies::BAD_SLAB);
    }
    let lines_max = if limit == 0 { u32::MAX } else { limit };
    let line_format = LineFormat::Cachedump(CachedumpLimits::with_lines(lines_max));
    Ok(Dump::Items(ItemDump::new(line_format, vec![class as usize], context)))
}
