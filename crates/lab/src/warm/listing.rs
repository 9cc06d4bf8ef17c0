//! Listing the items of the old server.
//!
//! `lru_crawler metadump hash` walks the hash table and lists each item once. A memcached that does not know it walks the
//! eviction lists, between which items move meanwhile: some are listed twice and some not at all. There the list is made
//! again, until it has as many items as the server counts or another one adds nothing.

use super::item_list::ItemList;
use super::report::{Report, WarmError};
use super::server::{CopyEndpoint, truncate_for_message};
use crate::access::Access;

/// The command, as errors name it.
const COMMAND: &str = "lru_crawler metadump";

/// Lists made at most of a server that may miss items.
const LISTS_MAX: u32 = 4;

/// Lists the items of a server, on a connection of its own, in the order in which they are copied; `None` where `observe`
/// returns false.
pub(super) fn list_items(
    access: &Access,
    report: &mut Report,
    observe: &mut impl FnMut(&Report) -> bool,
) -> Result<Option<ItemList>, WarmError> {
    let mut server = CopyEndpoint::open(access)?;
    let mut item_list = ItemList::default();
    let mut end = list_once("hash", &mut server, &mut item_list, || observe(report))?;
    for list_number in 1..=LISTS_MAX {
        if end != ListEnd::UnknownWalk {
            break;
        }
        let (known_count, counted_before) = (item_list.len(), count_items(&mut server)?);
        item_list.unnameable_keys = 0;
        if list_once("all", &mut server, &mut item_list, || observe(report))? == ListEnd::Stopped {
            return Ok(None);
        }
        item_list.keep_latest_of_each_key();
        let counted = counted_before.min(count_items(&mut server)?);
        let listed = item_list.len() as u64 + item_list.unnameable_keys;
        report.possibly_missing = counted.saturating_sub(listed);
        let adds_nothing = list_number > 1 && item_list.len() == known_count;
        if report.possibly_missing == 0 || adds_nothing {
            end = ListEnd::Complete;
        }
    }
    if end == ListEnd::Stopped {
        return Ok(None);
    }
    item_list.sort_hottest_first();
    report.listed_items = item_list.len() as u64;
    report.listed_bytes = item_list.total_bytes;
    report.unnameable_keys = item_list.unnameable_keys;
    Ok(Some(item_list))
}

/// How a list ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    Complete,
    /// The server does not know this walk.
    UnknownWalk,
    Stopped,
}

/// Adds the items of one list, made by `walk`: `hash` or `all`.
fn list_once(
    walk: &str,
    server: &mut CopyEndpoint,
    item_list: &mut ItemList,
    mut should_continue: impl FnMut() -> bool,
) -> Result<ListEnd, WarmError> {
    server.write(format!("{COMMAND} {walk}\r\n").as_bytes())?;
    server.flush()?;
    loop {
        let line = server.read_line()?;
        match line {
            b"END" => return Ok(ListEnd::Complete),
            // The start of the dump in newer servers.
            b"OK" => {}
            line if line.starts_with(b"BADCLASS") && walk == "hash" => {
                return Ok(ListEnd::UnknownWalk);
            }
            line => {
                if item_list.push(line).is_err() {
                    let truncated_line = truncate_for_message(line);
                    return Err(server.refused_error(COMMAND, truncated_line));
                }
            }
        }
        if item_list.len().is_multiple_of(10_000) && !should_continue() {
            return Ok(ListEnd::Stopped);
        }
    }
}

/// The items that the server counts, expired ones that it has not removed yet among them.
fn count_items(server: &mut CopyEndpoint) -> Result<u64, WarmError> {
    Ok(server.read_stats()?.get("curr_items").copied().unwrap_or(0))
}
