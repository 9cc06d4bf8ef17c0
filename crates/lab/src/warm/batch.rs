//! One batch: read at the old server, stored at the new one, and verified at the old one again.
//!
//! The second read makes a removal safe that reaches both servers, the old one first: a value that was read before it and
//! stored after it is found to be gone, and removed at the new server. Without it, such a value would live on.

use std::collections::HashSet;
use std::ops::Range;

use glasscache_protocol::limits::VALUE_BYTES_MAX;
use glasscache_protocol::meta::reply::MetaCode;
use glasscache_protocol::meta::request::{self, CommonFields, GetFields};
use glasscache_protocol::text::request::{StoreMode, TextStoreParameters};

use super::item_list::{ItemList, ListedItem};
use super::report::{Report, WarmError};
use super::server::{BatchReply, CopyEndpoint, Reply};

/// The longest TTL that is sent as a number of seconds; a larger number is a Unix time (memcached `doc/protocol.txt`).
const RELATIVE_TTL_S_MAX: i64 = 30 * 86_400;

/// An item that was read at the old server.
#[derive(Debug)]
struct ReadItem {
    position: usize,
    client_flags: u32,
    unique: u64,
    ttl_s: i64,
    /// Where its value lies in the buffer of values.
    value_range: Range<usize>,
    /// The unique that the new server gave to the copy; `None` where it did not take it.
    unique_of_copy: Option<u64>,
}

/// Copies batches, with buffers that are kept from one to the next.
pub(super) struct Copier<'a> {
    pub(super) item_list: &'a ItemList,
    pub(super) mode: StoreMode,
    requests: Vec<u8>,
    values: Vec<u8>,
}

impl<'a> Copier<'a> {
    /// A copier of the items of `item_list`.
    pub(super) fn new(item_list: &'a ItemList, mode: StoreMode) -> Self {
        Self { item_list, mode, requests: Vec::new(), values: Vec::new() }
    }

    /// Copies a batch from `source` to `target`, whose clock shows `target_time_s`, and counts what happened.
    pub(super) fn copy(
        &mut self,
        range: Range<usize>,
        (source, target): (&mut CopyEndpoint, &mut CopyEndpoint),
        target_time_s: i64,
        report: &mut Report,
    ) -> Result<(), WarmError> {
        let items = self.item_list.items(range);
        let mut read_items = self.read(items, source, report)?;
        if read_items.is_empty() {
            return Ok(());
        }
        self.store(items, &mut read_items, target, target_time_s, report)?;
        self.remove_changed(items, &read_items, (source, target), report)
    }

    /// Reads the items. An item that is stale here is left to the clients: where reading has won the right to refresh
    /// it, the right is given back.
    fn read(
        &mut self,
        items: &[ListedItem],
        source: &mut CopyEndpoint,
        report: &mut Report,
    ) -> Result<Vec<ReadItem>, WarmError> {
        let fields =
            GetFields { value: true, cas: true, ttl: true, no_bump: true, ..GetFields::default() };
        self.send_gets(items.iter().enumerate(), fields, source)?;
        self.values.clear();
        let (mut read_items, mut won_leases, mut reply_count) = (Vec::new(), Vec::new(), 0);
        loop {
            let reply = match source.read_next_reply("mg")? {
                BatchReply::End => break,
                BatchReply::Reply(reply) => reply,
                BatchReply::Refused(error_line) => {
                    return Err(source.refused_error("mg", error_line));
                }
            };
            let is_expected = reply.code == MetaCode::Value && reply.position < items.len();
            let (Some(ttl_s), true) = (reply.ttl_s, is_expected) else {
                return Err(source.unexpected_error("mg", format!("{reply:?}")));
            };
            if reply.value_bytes > VALUE_BYTES_MAX as usize {
                return Err(source.unexpected_error("mg", format!("{reply:?}")));
            }
            reply_count += 1;
            let value_start = self.values.len();
            source.read_value(&reply, &mut self.values)?;
            if reply.is_stale_or_leased {
                report.stale += 1;
                won_leases.extend(reply.has_won.then_some((reply.position, reply.unique)));
            } else if ttl_s == 0 {
                // Ends within this second; as an exptime, 0 would mean never.
                report.gone += 1;
            } else {
                read_items.push(new_read_item(&reply, ttl_s, value_start..self.values.len()));
            }
        }
        report.gone += (items.len() - reply_count) as u64;
        self.release_leases(items, &won_leases, source)?;
        Ok(read_items)
    }

    /// Marks items as stale again whose lease was won by reading them, so that the next client wins it.
    fn release_leases(
        &mut self,
        items: &[ListedItem],
        won_leases: &[(usize, u64)],
        source: &mut CopyEndpoint,
    ) -> Result<(), WarmError> {
        if won_leases.is_empty() {
            return Ok(());
        }
        self.requests.clear();
        for &(position, unique) in won_leases {
            let Some(item) = items.get(position) else {
                continue;
            };
            let key = self.item_list.key(item);
            request::invalidate(&mut self.requests, key, unique, new_quiet_fields(position));
        }
        self.send_and_drain(source, "md")
    }

    fn store(
        &mut self,
        items: &[ListedItem],
        read_items: &mut [ReadItem],
        target: &mut CopyEndpoint,
        target_time_s: i64,
        report: &mut Report,
    ) -> Result<(), WarmError> {
        for read_item in &*read_items {
            let (Some(item), Some(value)) =
                (items.get(read_item.position), self.values.get(read_item.value_range.clone()))
            else {
                continue;
            };
            let parameters = TextStoreParameters {
                flags: read_item.client_flags,
                exptime: compute_exptime(read_item.ttl_s, target_time_s),
                value_bytes: value.len(),
                noreply: false,
            };
            self.requests.clear();
            let key = self.item_list.key(item);
            let common_fields = CommonFields { opaque: read_item.position as u32, quiet: false };
            request::set_and_get_unique(
                &mut self.requests,
                self.mode,
                key,
                &parameters,
                common_fields,
            );
            target.write(&self.requests)?;
            target.write(value)?;
            target.write(b"\r\n")?;
        }
        target.flush()?;
        // Not quiet: an error line has no opaque, so only its position among all replies shows which item it refuses.
        for read_item in read_items {
            read_item.unique_of_copy = match target.read_next_reply("ms")? {
                BatchReply::Refused(error_line) => {
                    report.refused += 1;
                    report.refusal.get_or_insert(error_line);
                    None
                }
                BatchReply::Reply(reply) if reply.position == read_item.position => {
                    match reply.code {
                        MetaCode::Done => Some(reply.unique),
                        MetaCode::NotStored => {
                            report.already_present += 1;
                            None
                        }
                        _ => return Err(target.unexpected_error("ms", format!("{reply:?}"))),
                    }
                }
                batch_reply => {
                    return Err(target.unexpected_error("ms", format!("{batch_reply:?}")));
                }
            };
            if read_item.unique_of_copy.is_some() {
                report.copied_items += 1;
                report.copied_bytes += read_item.value_range.len() as u64;
            }
        }
        Ok(())
    }

    /// Removes copies of items that the old server no longer has in the version that was copied. What a client has
    /// stored at the new server in their place since then has another unique there, and stays.
    fn remove_changed(
        &mut self,
        items: &[ListedItem],
        read_items: &[ReadItem],
        (source, target): (&mut CopyEndpoint, &mut CopyEndpoint),
        report: &mut Report,
    ) -> Result<(), WarmError> {
        let copies: Vec<(&ReadItem, u64)> =
            read_items.iter().filter_map(|item| Some((item, item.unique_of_copy?))).collect();
        let positions = copies.iter().map(|(read_item, _)| read_item.position);
        let unchanged_versions = self.read_versions(items, positions, source)?;
        self.requests.clear();
        let is_changed = |(item, _): &&(&ReadItem, u64)| {
            !unchanged_versions.contains(&(item.position, item.unique))
        };
        for (read_item, unique_of_copy) in copies.iter().filter(is_changed) {
            let (position, unique) = (read_item.position, *unique_of_copy);
            if let Some(listed_item) = items.get(position) {
                let key = self.item_list.key(listed_item);
                let fields = new_quiet_fields(position);
                request::delete_if_unchanged(&mut self.requests, key, unique, fields);
            }
            report.changed += 1;
            report.copied_items -= 1;
            report.copied_bytes -= read_item.value_range.len() as u64;
        }
        if self.requests.is_empty() {
            return Ok(());
        }
        self.send_and_drain(target, "md")
    }

    /// The positions and uniques of those items that the server has, and that are neither stale nor in a lease.
    fn read_versions(
        &mut self,
        items: &[ListedItem],
        positions: impl Iterator<Item = usize>,
        source: &mut CopyEndpoint,
    ) -> Result<HashSet<(usize, u64)>, WarmError> {
        let fields = GetFields { cas: true, no_bump: true, ..GetFields::default() };
        let listed_items = positions.filter_map(|position| Some((position, items.get(position)?)));
        self.send_gets(listed_items, fields, source)?;
        let (mut won_leases, mut versions) = (Vec::new(), HashSet::new());
        loop {
            match source.read_next_reply("mg")? {
                BatchReply::End => break,
                BatchReply::Refused(error_line) => {
                    return Err(source.refused_error("mg", error_line));
                }
                BatchReply::Reply(reply) => {
                    won_leases.extend(reply.has_won.then_some((reply.position, reply.unique)));
                    if !reply.is_stale_or_leased {
                        versions.insert((reply.position, reply.unique));
                    }
                }
            }
        }
        self.release_leases(items, &won_leases, source)?;
        Ok(versions)
    }

    /// Sends a quiet `mg` for each item, and the `mn` that ends them.
    fn send_gets<'i>(
        &mut self,
        items: impl IntoIterator<Item = (usize, &'i ListedItem)>,
        fields: GetFields,
        server: &mut CopyEndpoint,
    ) -> Result<(), WarmError> {
        self.requests.clear();
        for (position, item) in items {
            let key = self.item_list.key(item);
            request::get(&mut self.requests, key, fields, new_quiet_fields(position));
        }
        self.send_with_noop(server)
    }

    /// Sends the requests and reads what is left of their replies, which decide nothing.
    fn send_and_drain(
        &mut self,
        server: &mut CopyEndpoint,
        command: &'static str,
    ) -> Result<(), WarmError> {
        self.send_with_noop(server)?;
        while !matches!(server.read_next_reply(command)?, BatchReply::End) {}
        Ok(())
    }

    /// Sends the requests and the `mn` that ends them.
    fn send_with_noop(&mut self, server: &mut CopyEndpoint) -> Result<(), WarmError> {
        request::noop(&mut self.requests);
        server.write(&self.requests)?;
        server.flush()
    }
}

fn new_quiet_fields(position: usize) -> CommonFields {
    CommonFields { opaque: position as u32, quiet: true }
}

fn new_read_item(reply: &Reply, ttl_s: i64, value_range: Range<usize>) -> ReadItem {
    ReadItem {
        position: reply.position,
        client_flags: reply.client_flags,
        unique: reply.unique,
        ttl_s,
        value_range,
        unique_of_copy: None,
    }
}

/// The exptime of an item that lives for this many more seconds, -1 for ever.
fn compute_exptime(ttl_s: i64, target_time_s: i64) -> i64 {
    match ttl_s {
        ..0 => 0,
        0..=RELATIVE_TTL_S_MAX => ttl_s,
        _ => target_time_s.saturating_add(ttl_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_above_thirty_days_is_sent_as_a_time() {
        assert_eq!(compute_exptime(-1, 1_800_000_000), 0);
        assert_eq!(compute_exptime(2_592_000, 1_800_000_000), 2_592_000);
        assert_eq!(compute_exptime(2_592_001, 1_800_000_000), 1_802_592_001);
    }
}
