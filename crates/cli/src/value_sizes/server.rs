//! The sizes of a running server's items, and its settings, from five `stats` commands.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::ops::Range;
use std::time::Duration;

use glasscache_client::Address;
use glasscache_sim::slabs::classes::{CHUNK_ALIGN_BYTES, SlabClasses, SlabConfig};

use crate::access;
use crate::live_target::{UNAUTHENTICATED, format_not_memcached};
use crate::output::{Exit, Failure};
use crate::target::{Stream, Target, failure};

/// Longest line that is read from a server.
const LINE_BYTES_MAX: u64 = 4096;

/// Most rows of a section: `stats sizes` has one for every 32 bytes up to the largest item.
const STATS_ROWS_MAX: usize = 1 << 20;

/// Time after which an unresponsive server counts as unreachable.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Name and value of each `STAT` line.
type Stats = BTreeMap<String, String>;

/// What a server reports about its items.
pub(crate) struct ServerSizes {
    /// Sizes of items as memcached counts them, header and key included, and how many items have each.
    pub(crate) counts: Vec<(u32, u64)>,
    /// Its classes.
    pub(crate) config: SlabConfig,
    /// `-m`.
    pub(crate) memory_bytes: Option<u64>,
    /// Whether it is a glasscache, which has no slab classes.
    pub(crate) is_glasscache: bool,
    /// How the sizes were found, where they were not counted one by one.
    pub(crate) notes: Vec<String>,
}

/// Reads settings and sizes of the server at `address`.
pub(crate) fn read(address: &str, access: &access::Args) -> Result<ServerSizes, Failure> {
    let to_unreachable_failure = |error: std::io::Error| {
        let reason = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("no reply for {} s", TIMEOUT.as_secs())
            }
            _ => error.to_string(),
        };
        Failure::new(Exit::Unreachable, format!("cannot query the server at {address}: {reason}"))
    };
    let parsed = Address::parse(address).map_err(|error| failure(&error))?;
    let (server, access) = (address.to_owned(), access.clone());
    let target = Target { server, timeout_ms: TIMEOUT.as_millis() as u64, access };
    let stream = target.connect(&parsed.endpoint).map_err(to_unreachable_failure)?;
    let mut server = BufReader::new(stream);
    let mut read_section = |section: &str| {
        let reply = request_stats(&mut server, section).map_err(to_unreachable_failure)?;
        reply.map_err(|line| {
            let command = format!("stats {section}");
            let message = if line.starts_with("SERVER_ERROR") {
                format!("the server at {address} refuses `{command}`: {line}")
            } else {
                format_not_memcached(address, &command, &line)
            };
            Failure::new(Exit::BadData, message)
        })
    };
    let (settings, slabs, items, sizes, glasscache_stats) = (
        read_section("settings")?,
        read_section("slabs")?,
        read_section("items")?,
        read_section("sizes")?,
        read_section("glasscache")?,
    );
    let is_glasscache = !glasscache_stats.is_empty();
    let config = parse_slab_config(&settings, &slabs);
    let mut notes = Vec::new();
    let parsed_sizes =
        sizes.iter().filter_map(|(size, count)| Some((size.parse().ok()?, count.parse().ok()?)));
    let mut counts: Vec<(u32, u64)> = parsed_sizes.collect();
    if counts.is_empty() {
        counts = count_items_by_class(&config, &slabs, &items);
        notes.push(
            "The server reports the mean of each class and not the sizes themselves (-o track_sizes): they are taken to \
             lie evenly about it, so what other classes would save is an estimate."
                .to_owned(),
        );
    }
    if is_glasscache {
        notes.push(
            "This server is glasscache, whose items are stored in segments already: the classes are those that a memcached \
             with its settings would use."
                .to_owned(),
        );
    }
    if counts.is_empty() {
        let message = format!("the server at {address} holds no items, so it has no sizes");
        return Err(Failure::new(Exit::BadData, message));
    }
    let memory_bytes = settings.get("maxbytes").and_then(|value| value.parse().ok());
    Ok(ServerSizes { counts, config, memory_bytes, is_glasscache, notes })
}

/// The rows of a section, none where the server does not know it; or a line that is not one of memcached's.
fn request_stats(
    server: &mut BufReader<Box<dyn Stream>>,
    section: &str,
) -> std::io::Result<Result<Stats, String>> {
    server.get_mut().write_all(format!("stats {section}\r\n").as_bytes())?;
    let mut stats = Stats::new();
    while stats.len() <= STATS_ROWS_MAX {
        let mut line = Vec::new();
        if server.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Err(std::io::Error::other("it closed the connection"));
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        let row = line.strip_prefix("STAT ").unwrap_or_default();
        if let Some((name, value)) = row.split_once(' ') {
            stats.insert(name.to_owned(), value.to_owned());
            continue;
        }
        // An error is the reply of a server that does not know these statistics.
        let is_end = ["END", "ERROR", "CLIENT_ERROR"].iter().any(|start| line.starts_with(start));
        let is_end = is_end && !line.contains(UNAUTHENTICATED);
        return Ok(if is_end { Ok(stats) } else { Err(line.to_owned()) });
    }
    Err(std::io::Error::other(format!(
        "its reply to `stats {section}` has more than {STATS_ROWS_MAX} rows"
    )))
}

fn parse_slab_config(settings: &Stats, slabs: &Stats) -> SlabConfig {
    fn parse_setting<T: std::str::FromStr>(settings: &Stats, name: &str, default: T) -> T {
        settings.get(name).and_then(|value| value.parse().ok()).unwrap_or(default)
    }
    let default = SlabConfig::default();
    let config = SlabConfig {
        factor: parse_setting(settings, "growth_factor", default.factor),
        chunk_bytes_min: parse_setting(settings, "chunk_size", default.chunk_bytes_min),
        item_bytes_max: parse_setting(settings, "item_size_max", default.item_bytes_max),
        slab_chunk_bytes_max: parse_setting(
            settings,
            "slab_chunk_max",
            default.slab_chunk_bytes_max,
        )
        .max(CHUNK_ALIGN_BYTES),
        slab_sizes: None,
    };
    SlabConfig { slab_sizes: find_explicit_sizes(&config, slabs), ..config }
}

/// The chunk sizes that the server reports, where they are not those of its other settings: it was started with
/// `-o slab_sizes`, which no settings of memcached report. Classes that were never used are not reported; they hold no item.
fn find_explicit_sizes(config: &SlabConfig, slabs: &Stats) -> Option<Vec<u32>> {
    let reported = slabs.iter().filter_map(|(name, value)| {
        let class = name.strip_suffix(":chunk_size")?.parse::<usize>().ok()?;
        Some((class, value.parse::<u32>().ok()?))
    });
    let mut reported: Vec<(usize, u32)> = reported.collect();
    reported.sort_unstable();
    let classes = SlabClasses::new(config);
    if reported.iter().all(|&(class, size)| classes.chunk_bytes(class) == Some(size)) {
        return None;
    }
    let mut sizes: Vec<u32> = reported.into_iter().map(|(_, size)| size).collect();
    // The class of the largest chunk follows the explicit ones.
    sizes.retain(|&size| size > 0 && size < config.slab_chunk_bytes_max);
    sizes.sort_unstable();
    sizes.dedup();
    Some(sizes)
}

/// Sizes from used chunks and requested bytes by class; newer versions report the bytes in `stats items`.
fn count_items_by_class(config: &SlabConfig, slabs: &Stats, items: &Stats) -> Vec<(u32, u64)> {
    let mut counts = Vec::new();
    let mut previous_chunk_bytes = 0;
    for class in 1..=u32::from(u8::MAX) {
        let find_number = |stats: &Stats, name: String| stats.get(&name)?.parse::<u64>().ok();
        let Some(used_chunks) = find_number(slabs, format!("{class}:used_chunks"))
            .filter(|&used_chunks| used_chunks > 0)
        else {
            continue;
        };
        let requested_bytes = find_number(slabs, format!("{class}:mem_requested"))
            .or_else(|| find_number(items, format!("items:{class}:mem_requested")));
        let chunk_bytes = find_number(slabs, format!("{class}:chunk_size")).unwrap_or(0) as u32;
        let low_bytes = match &config.slab_sizes {
            Some(_) => previous_chunk_bytes,
            None => previous_chunk_bytes.max((f64::from(chunk_bytes) / config.factor) as u32),
        };
        if let Some(requested_bytes) = requested_bytes {
            add_spread_items(
                &mut counts,
                low_bytes..chunk_bytes,
                (requested_bytes / used_chunks) as u32,
                used_chunks,
            );
        }
        previous_chunk_bytes = chunk_bytes;
    }
    counts
}

/// Adds items with sizes spread evenly around their mean, within the class (above the start of its range, up to its
/// end).
fn add_spread_items(
    counts: &mut Vec<(u32, u64)>,
    class_range: Range<u32>,
    mean_bytes: u32,
    count: u64,
) {
    let space_above = class_range.end.saturating_sub(mean_bytes);
    let half_width =
        space_above.min(mean_bytes.saturating_sub(class_range.start.saturating_add(1)));
    let steps = u64::from(2 * half_width / CHUNK_ALIGN_BYTES + 1).min(count);
    for step in 0..steps {
        let size = u64::from(mean_bytes - half_width)
            + u64::from(2 * half_width) * step / steps.max(2).saturating_sub(1);
        let step_count = count * (step + 1) / steps - count * step / steps;
        counts.push((size as u32, step_count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(rows: &[(&str, &str)]) -> Stats {
        rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn chunk_sizes_that_do_not_follow_from_the_settings_are_explicit_ones() {
        let default_rows = [("1:chunk_size", "96"), ("3:chunk_size", "152"), ("active_slabs", "2")];
        assert_eq!(parse_slab_config(&Stats::new(), &stats(&default_rows)), SlabConfig::default());
        let explicit_rows = [
            ("2:chunk_size", "200"),
            ("4:chunk_size", "1000"),
            ("10:chunk_size", "524288"),
            ("3:chunk_size", "0"),
        ];
        let config = parse_slab_config(&Stats::new(), &stats(&explicit_rows));
        assert_eq!(config.slab_sizes, Some(vec![200, 1000]));
        assert_eq!(SlabClasses::new(&config).chunk_sizes(), [200, 1000, 524_288]);
    }

    #[test]
    fn sizes_are_spread_evenly_around_the_mean_within_their_class() {
        let mut counts = Vec::new();
        add_spread_items(&mut counts, 96..120, 112, 1000);
        assert_eq!(counts, [(104, 333), (112, 333), (120, 334)]);
        for (class_range, mean_bytes, count) in
            [(96..120, 120, 7), (0..0, 500, 3), (96..120, 97, 1)]
        {
            let mut counts = Vec::new();
            add_spread_items(&mut counts, class_range, mean_bytes, count);
            assert_eq!(counts, [(mean_bytes, count)]);
        }
    }
}
