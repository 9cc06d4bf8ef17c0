//! The reply for one key that was looked up: `get`, `gets`, `gat`, `gats` and `mg`.

use glasscache_protocol::binary::{self, OpcodeAndOpaque, Status, StoredItem};
use glasscache_protocol::command::GetHead;
use glasscache_protocol::meta::{self, MetaItem, MetaLine, letter_set};
use glasscache_protocol::text;
use glasscache_store::{GetOptions, Item, KeyHash, Lease, LookupHint, NoRoomYet};

use super::expiry::{expiry_if_created, reported_expiry};
use crate::session::context::{Context, ttl_s};
use crate::session::events;
use crate::session::output::Output;

/// A key, its hash, and the lookup hint for its item.
pub(super) type LocatedKey<'b, 'w> = (&'b [u8], KeyHash, LookupHint<'w>);

/// Appends the reply for one key of a get line; returns whether it was a hit. The caller counts gets and their hits. If
/// it has to wait for a segment, nothing is done and no reply is made.
#[inline]
pub(super) fn execute_text_get<'w>(
    head: &GetHead,
    (key, hash, hint): LocatedKey<'_, 'w>,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> Result<bool, NoRoomYet> {
    if head.touch.is_none()
        && !head.with_cas
        && execute_minimal_item_text_get((key, hash, hint), context, out)
    {
        return Ok(true);
    }
    let item = read_item(head.touch, (key, hash, hint), context)?;
    let is_hit = item.is_some();
    if let Some(item) = item {
        if item.flags() == 0
            && !head.with_cas
            && let Some(value) = item.value()
            && text::write_small_value(&mut out.bytes, key, value)
        {
            return Ok(true);
        }
        let unique = head.with_cas.then(|| context.visible_unique(item.unique()));
        text::write_value_line(&mut out.bytes, key, item.flags(), item.value_bytes(), unique);
        out.append_value_line(item);
    }
    Ok(is_hit)
}

/// Reads or touches a key for one line or packet, counts touches and hits by class, and reports to watchers; the caller
/// counts gets.
#[inline]
fn read_item<'w>(
    touch_exptime: Option<i64>,
    (key, hash, hint): LocatedKey<'_, 'w>,
    context: &Context<'w>,
) -> Result<Option<Item<'w>>, NoRoomYet> {
    let item = match touch_exptime {
        None => context.store_worker.get_hinted(key, hash, hint, context.now),
        Some(exptime) => {
            let options =
                GetOptions { touch: Some(context.expiry(exptime)), ..GetOptions::default() };
            get_with(key, hash, &options, context)?.map(|(item, _)| item)
        }
    };
    if touch_exptime.is_some() {
        count_touch(context, item.is_some());
    }
    report_get(context, key, item.as_ref());
    if let Some(item) = &item {
        if touch_exptime.is_some() {
            events::publish_change(context, key, "gat");
        }
        context.shared.slab_classes.count_hit(
            context.counters,
            key.len(),
            item,
            touch_exptime.is_some(),
        );
    }
    Ok(item)
}

/// Appends the response to one read of the binary protocol; returns whether the item was there. As [`execute_text_get`]
/// otherwise.
#[inline]
pub(super) fn execute_binary_get<'w>(
    request: OpcodeAndOpaque,
    touch_exptime: Option<u32>,
    located_key: LocatedKey<'_, 'w>,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> Result<bool, NoRoomYet> {
    let (key, _, _) = located_key;
    let Some(item) = read_item(touch_exptime.map(i64::from), located_key, context)? else {
        match (request.is_quiet(), request.returns_key()) {
            (true, _) => {}
            (false, true) => binary::write_miss_with_key(&mut out.bytes, request, key),
            (false, false) => binary::write_error(&mut out.bytes, request, Status::NotFound),
        }
        return Ok(false);
    };
    let unique = if context.shared.config.cas_enabled { item.unique().0 } else { 0 };
    if request.is_touch() {
        binary::write_touched(&mut out.bytes, request, item.flags(), unique);
        return Ok(true);
    }
    let stored_item =
        StoredItem { key, flags: item.flags(), value_bytes: item.value_bytes(), cas: unique };
    binary::write_value_head(&mut out.bytes, request, &stored_item);
    out.append_value(item);
    Ok(true)
}

/// Makes a read that touches or creates, and so may have to wait for a segment.
pub(super) fn get_with<'w>(
    key: &[u8],
    hash: KeyHash,
    options: &GetOptions,
    context: &Context<'w>,
) -> Result<Option<(Item<'w>, Lease)>, NoRoomYet> {
    let result = context.store_worker.try_get_with(key, hash, options, context.now);
    context.stop_waiting_if_overdue(result, || {
        context.store_worker.get_with(key, hash, options, context.now)
    })
}

/// Appends the reply for a key if [`get_minimal_item_value`] finds its value; does nothing and returns false otherwise.
#[inline]
fn execute_minimal_item_text_get<'w>(
    located_key: LocatedKey<'_, 'w>,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> bool {
    let (key, _, _) = located_key;
    let Some(value) = get_minimal_item_value(located_key, context) else {
        return false;
    };
    if !text::write_small_value(&mut out.bytes, key, value) {
        text::write_value_line(&mut out.bytes, key, 0, value.len() as u32, None);
        out.bytes.extend_from_slice(value);
        out.bytes.extend_from_slice(b"\r\n");
    }
    true
}

/// The value of a minimal item without marks ([`glasscache_store::Worker::get_minimal_item_value`]), counted as a hit
/// of its class; `None` also if reads are observed.
#[inline]
fn get_minimal_item_value<'w>(
    (key, hash, hint): LocatedKey<'_, 'w>,
    context: &Context<'w>,
) -> Option<&'w [u8]> {
    if context.shared.are_reads_observed() {
        return None;
    }
    let value = context.store_worker.get_minimal_item_value(key, hash, hint, context.now)?;
    context.shared.slab_classes.count_minimal_item_hit(context.counters, key.len(), value.len());
    Some(value)
}

/// `mg`: reads the item and, as the flags request, touches it, creates it or lets one client win.
#[inline]
pub(crate) fn execute_meta_get<'w>(
    line: &MetaLine<'_>,
    key: &[u8],
    hash: KeyHash,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> Result<(), NoRoomYet> {
    let hint = LookupHint::default();
    execute_meta_get_hinted(line, (key, hash, hint), context, out)
}

/// All flags but `v` and `q`: with any of them the reply to a hit is more than the value.
const MORE_THAN_VALUE_FLAGS: u128 = !letter_set(b"vq");

#[inline]
pub(super) fn execute_meta_get_hinted<'w>(
    line: &MetaLine<'_>,
    (key, hash, hint): LocatedKey<'_, 'w>,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> Result<(), NoRoomYet> {
    let flags = &line.flags;
    if !flags.has_any(MORE_THAN_VALUE_FLAGS | MODIFYING_FLAGS)
        && flags.has(b'v')
        && let Some(value) = get_minimal_item_value((key, hash, hint), context)
    {
        count_gets(context, 1, 1);
        meta::write_value_line(&mut out.bytes, value.len() as u32);
        out.bytes.extend_from_slice(value);
        out.bytes.extend_from_slice(b"\r\n");
        return Ok(());
    }
    let found = find_meta_item(line, (key, hash, hint), context)?;
    if flags.has(b'T') {
        count_touch(context, found.is_some());
    } else {
        count_gets(context, 1, u64::from(found.is_some()));
    }
    report_meta_get(context, key, found.as_ref());
    let Some((item, lease)) = found else {
        if !flags.has(b'q') {
            meta::write_status(&mut out.bytes, line, key, *b"EN");
        }
        return Ok(());
    };
    if lease.won {
        context.shared.fill_times.begin(hash);
    }
    if flags.has(b'T') {
        events::publish_change(context, key, "mg");
    }
    if !flags.has_any(MORE_THAN_VALUE_FLAGS) && flags.has(b'v') && !item.is_marked() {
        meta::write_value_line(&mut out.bytes, item.value_bytes());
        context.shared.slab_classes.count_hit(context.counters, key.len(), &item, false);
        out.append_value_line(item);
        return Ok(());
    }
    let unique = if flags.has(b'c') { context.visible_unique(item.unique()) } else { 0 };
    let sends_value = flags.has(b'v')
        && !(flags.has(b'C') && context.is_visible_unique(&item, flags.required_cas));
    meta::write_hit(
        &mut out.bytes,
        line,
        key,
        &describe_item(&item, lease, unique, line, context),
        sends_value,
    );
    context.shared.slab_classes.count_hit(context.counters, key.len(), &item, flags.has(b'T'));
    if sends_value {
        out.append_value_line(item);
    }
    Ok(())
}

/// Flags that make an `mg` do more than a `get`.
const MODIFYING_FLAGS: u128 = letter_set(b"TNRu");

/// Finds the item as a `get` does if the flags request no more and the item has no mark.
#[inline]
fn find_meta_item<'w>(
    line: &MetaLine<'_>,
    (key, hash, hint): LocatedKey<'_, 'w>,
    context: &Context<'w>,
) -> Result<Option<(Item<'w>, Lease)>, NoRoomYet> {
    if !line.flags.has_any(MODIFYING_FLAGS) {
        let Some(item) = context.store_worker.get_hinted(key, hash, hint, context.now) else {
            return Ok(None);
        };
        if !item.is_marked() {
            return Ok(Some((item, Lease::default())));
        }
        let options = GetOptions { may_win: true, ..GetOptions::default() };
        let leased_read = context.store_worker.get_with(key, hash, &options, context.now);
        return Ok(merge_leased_read(item, leased_read));
    }
    get_with(key, hash, &to_get_options(line, context), context)
}

/// Merges two reads of one key: the second has the lease, the first the time of the previous use.
///
/// A lease belongs to one copy of the item. If the key was deleted or stored again between the reads, the reply is
/// made of the second read alone.
fn merge_leased_read<'w>(
    first_item: Item<'w>,
    leased_read: Option<(Item<'w>, Lease)>,
) -> Option<(Item<'w>, Lease)> {
    let (item, lease) = leased_read?;
    if item.is_same_copy(&first_item) { Some((first_item, lease)) } else { Some((item, lease)) }
}

fn to_get_options(line: &MetaLine<'_>, context: &Context<'_>) -> GetOptions {
    let flags = &line.flags;
    GetOptions {
        touch: flags.has(b'T').then(|| context.expiry(flags.touch)),
        vivify: expiry_if_created(flags, context),
        recache_after_touch: flags.has_in_order(b'T', b'R'),
        // A negative or absolute time has the same meaning as in an exptime.
        recache_s: flags
            .has(b'R')
            .then(|| ttl_s(context.expiry(flags.recache), context.now))
            .flatten(),
        may_win: true,
        no_bump: flags.has(b'u'),
        new_unique: flags.has(b'E').then_some(glasscache_store::CasUnique(flags.new_unique)),
    }
}

#[inline]
fn describe_item(
    item: &Item<'_>,
    lease: Lease,
    unique: u64,
    line: &MetaLine<'_>,
    context: &Context<'_>,
) -> MetaItem {
    let expiry = match lease.expiry_before {
        Some(expiry_before) => reported_expiry(&line.flags, expiry_before, lease.created, context),
        None => item.expiry(),
    };
    MetaItem {
        value_bytes: item.value_bytes(),
        client_flags: item.flags(),
        unique,
        ttl_s: ttl_s(expiry, context.now),
        idle_s: context.now.0.saturating_sub(item.last_access().0),
        was_fetched: item.was_fetched(),
        won: lease.won,
        is_stale: lease.is_stale,
        already_won: lease.already_won,
    }
}

/// Counts gets that do not touch.
#[inline]
pub(super) fn count_gets(context: &Context<'_>, gets: u64, hits: u64) {
    context.counters.get_cmds.add(gets);
    context.counters.get_hits.add(hits);
}

#[inline]
fn count_touch(context: &Context<'_>, is_hit: bool) {
    context.counters.touch_cmds.bump();
    context.counters.touch_hits.add(u64::from(is_hit));
}

/// Reports a get to watchers.
#[inline]
fn report_get(context: &Context<'_>, key: &[u8], item: Option<&Item<'_>>) {
    if context.shared.are_reads_observed() {
        context.shared.prefix_table.record_get(key, item.is_some());
        events::publish_fetch(context, key, item.map(Item::value_bytes));
    }
}

/// Reports an `mg` to watchers; an item that it has created is one that it did not find, as in memcached.
#[inline]
fn report_meta_get(context: &Context<'_>, key: &[u8], found: Option<&(Item<'_>, Lease)>) {
    if context.shared.are_reads_observed() {
        context.shared.prefix_table.record_get(key, found.is_some());
        let found_before = found.filter(|(_, lease)| !lease.created);
        events::publish_fetch(context, key, found_before.map(|(item, _)| item.value_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use glasscache_store::{Config, DeleteOptions, Seconds, SetOptions, Store};

    use super::*;

    const NOW: Seconds = Seconds(5);

    /// A store whose item `a` is stale, and the first read of it by `mg a`.
    fn with_stale_item(run: impl FnOnce(&glasscache_store::Worker, KeyHash, Item<'_>)) {
        let config = Config { memory_bytes: 8 << 20, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker();
        worker.go_online();
        let hash = store.hash(b"a");
        worker.set(b"a", hash, b"old", &SetOptions::default(), NOW);
        let options = DeleteOptions { invalidate: true, ..DeleteOptions::default() };
        worker.delete(b"a", hash, &options, NOW);
        let first_item = worker.get(b"a", hash, NOW).unwrap();
        assert!(first_item.is_marked());
        run(&worker, hash, first_item);
    }

    const MAY_WIN: GetOptions = GetOptions {
        touch: None,
        vivify: None,
        recache_after_touch: false,
        recache_s: None,
        may_win: true,
        no_bump: false,
        new_unique: None,
    };

    #[test]
    fn a_stale_item_is_won_by_the_second_read_of_the_same_copy() {
        with_stale_item(|worker, hash, first_item| {
            let leased_read = worker.get_with(b"a", hash, &MAY_WIN, NOW);
            let (item, lease) = merge_leased_read(first_item, leased_read).unwrap();
            assert_eq!(item.value(), Some(&b"old"[..]));
            assert!(lease.won && lease.is_stale);
        });
    }

    #[test]
    fn a_key_stored_again_between_the_two_reads_has_the_new_value_and_no_mark() {
        with_stale_item(|worker, hash, first_item| {
            worker.set(b"a", hash, b"new", &SetOptions::default(), NOW);
            let leased_read = worker.get_with(b"a", hash, &MAY_WIN, NOW);
            let (item, lease) = merge_leased_read(first_item, leased_read).unwrap();
            assert_eq!(item.value(), Some(&b"new"[..]));
            assert!(!lease.won && !lease.is_stale);
        });
    }

    #[test]
    fn a_key_deleted_between_the_two_reads_is_a_miss() {
        with_stale_item(|worker, hash, first_item| {
            worker.delete(b"a", hash, &DeleteOptions::default(), NOW);
            let leased_read = worker.get_with(b"a", hash, &MAY_WIN, NOW);
            assert!(merge_leased_read(first_item, leased_read).is_none());
        });
    }
}
