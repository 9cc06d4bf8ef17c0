//! Commands on one item that have no value: delete, touch, incr, decr, and md, ma, me.

use std::io::Write as _;

use glasscache_protocol::meta::{self, MetaLine};
use glasscache_protocol::{base64, replies};
use glasscache_store::{
    ArithOptions, ArithOutcome, CasUnique, DeleteOptions, DeleteOutcome, Expiry, GetOptions,
    KeyHash, NoRoomYet,
};

use super::expiry::{expiry_if_created, reported_expiry};
use super::get;
use super::store::write_number_line;
use crate::session::context::{Context, ttl_s};
use crate::session::events;
use crate::session::output::Output;

fn hash_key(key: &[u8], context: &Context<'_>) -> KeyHash {
    context.store_worker.store().hash(key)
}

/// Executes `delete` and returns the reply.
pub(super) fn execute_delete(
    key: &[u8],
    context: &Context<'_>,
) -> Result<&'static [u8], NoRoomYet> {
    Ok(match apply_delete(key, &DeleteOptions::default(), false, context)? {
        DeleteOutcome::Deleted => replies::DELETED,
        DeleteOutcome::NotFound | DeleteOutcome::Exists => replies::NOT_FOUND,
    })
}

pub(super) fn apply_delete(
    key: &[u8],
    options: &DeleteOptions,
    is_meta: bool,
    context: &Context<'_>,
) -> Result<DeleteOutcome, NoRoomYet> {
    let (store_worker, hash) = (context.store_worker, hash_key(key, context));
    let is_observed = context.shared.is_observed();
    let observed_deletion =
        is_observed.then(|| events::render_deletion(context, (key, hash), options, is_meta));
    let item = store_worker.peek(key, hash, context.now);
    let result = store_worker.try_delete(key, hash, options, context.now);
    let outcome = context
        .stop_waiting_if_overdue(result, || store_worker.delete(key, hash, options, context.now))?;
    if let Some(deletion_line) = observed_deletion {
        context.shared.prefix_table.record_delete(key);
        if let Some(deletion_line) = deletion_line {
            events::publish_deletion(context.shared, key, &deletion_line);
        }
    }
    // Also for a watcher that was added meanwhile, which would miss the line above.
    let is_unreported = options.invalidate || !is_observed;
    if is_unreported && outcome == DeleteOutcome::Deleted {
        events::publish_change(context, key, if is_meta { "md" } else { "delete" });
    }
    if let Some(item) = item {
        context.shared.slab_classes.count_delete(context.counters, key.len(), &item);
    }
    match outcome {
        DeleteOutcome::Deleted if options.invalidate => {}
        DeleteOutcome::Deleted => context.counters.delete_hits.bump(),
        DeleteOutcome::NotFound | DeleteOutcome::Exists => context.counters.delete_misses.bump(),
    }
    Ok(outcome)
}

/// Executes `touch` and returns the reply.
pub(super) fn execute_touch(
    key: &[u8],
    exptime: i64,
    context: &Context<'_>,
) -> Result<&'static [u8], NoRoomYet> {
    let options = GetOptions { touch: Some(context.expiry(exptime)), ..GetOptions::default() };
    let found = get::get_with(key, hash_key(key, context), &options, context)?;
    context.counters.touch_cmds.bump();
    Ok(match found {
        Some((item, _)) => {
            events::publish_change(context, key, "touch");
            context.counters.touch_hits.bump();
            context.shared.slab_classes.count_hit(context.counters, key.len(), &item, true);
            replies::TOUCHED
        }
        None => replies::NOT_FOUND,
    })
}

/// Executes `incr` or `decr`.
pub(super) fn execute_arith(
    key: &[u8],
    delta: u64,
    is_decrement: bool,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NoRoomYet> {
    let options =
        ArithOptions { is_decrement, delta, hides_unique: true, ..ArithOptions::default() };
    match apply_arith(key, &options, context)? {
        ArithOutcome::Number { value, .. } => write_number_line(out, value),
        ArithOutcome::NotFound | ArithOutcome::Exists => out.extend_from_slice(replies::NOT_FOUND),
        ArithOutcome::NotANumber => out.extend_from_slice(replies::NOT_A_NUMBER),
        ArithOutcome::NoMemory => out.extend_from_slice(replies::NO_MEMORY_ARITH),
    }
    Ok(())
}

pub(super) fn apply_arith(
    key: &[u8],
    options: &ArithOptions,
    context: &Context<'_>,
) -> Result<ArithOutcome, NoRoomYet> {
    let (store_worker, hash) = (context.store_worker, hash_key(key, context));
    let result = store_worker.try_arith(key, hash, options, context.now);
    let outcome = context
        .stop_waiting_if_overdue(result, || store_worker.arith(key, hash, options, context.now))?;
    if matches!(outcome, ArithOutcome::Number { .. }) {
        let command = if options.is_decrement { "decr" } else { "incr" };
        events::publish_change(context, key, command);
    }
    let counters = context.counters;
    match (outcome, options.is_decrement) {
        (ArithOutcome::Number { created: true, .. }, _) => {}
        (ArithOutcome::Number { value, .. }, is_decrement) => {
            if is_decrement {
                counters.decr_hits.bump();
            } else {
                counters.incr_hits.bump();
            }
            context.shared.slab_classes.count_arith(context.counters, key, value, is_decrement);
        }
        (ArithOutcome::NotFound, true) => counters.decr_misses.bump(),
        (ArithOutcome::NotFound, false) => counters.incr_misses.bump(),
        _ => {}
    }
    Ok(outcome)
}

/// Executes an `mg` with a base64 key, which is not batched because its decoded bytes need a buffer.
pub(super) fn execute_base64_meta_get<'w>(
    line: &MetaLine<'_>,
    context: &Context<'w>,
    out: &mut Output<'w>,
) -> Result<(), NoRoomYet> {
    let mut scratch = Vec::new();
    match item_key(line, &mut scratch, &mut out.bytes) {
        Some(key) => get::execute_meta_get(line, key, hash_key(key, context), context, out),
        None => Ok(()),
    }
}

/// The item's key of a meta line; `None`, after an error reply, if its base64 is invalid.
fn item_key<'k>(
    line: &MetaLine<'k>,
    scratch: &'k mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Option<&'k [u8]> {
    let key = line.item_key(scratch);
    key.inspect_err(|reply| out.extend_from_slice(reply)).ok()
}

/// Executes `md`: deletes the item, marks it stale, or keeps it without its value.
pub(super) fn execute_meta_delete(
    line: &MetaLine<'_>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NoRoomYet> {
    let mut scratch = Vec::new();
    let Some(key) = item_key(line, &mut scratch, out) else {
        return Ok(());
    };
    let flags = &line.flags;
    let options = DeleteOptions {
        required_cas: flags.has(b'C').then_some(CasUnique(flags.required_cas)),
        invalidate: flags.has(b'I'),
        expiry: flags.has(b'T').then(|| context.expiry(flags.touch)),
        clear_value: flags.has(b'x'),
        new_unique: flags.has(b'E').then_some(CasUnique(flags.new_unique)),
    };
    let status = match apply_delete(key, &options, true, context)? {
        DeleteOutcome::Deleted if flags.has(b'q') => return Ok(()),
        DeleteOutcome::Deleted => *b"HD",
        DeleteOutcome::NotFound => *b"NF",
        DeleteOutcome::Exists => *b"EX",
    };
    meta::write_status(out, line, key, status);
    Ok(())
}

/// Executes `ma`: arithmetic with options.
pub(super) fn execute_meta_arith(
    line: &MetaLine<'_>,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) -> Result<(), NoRoomYet> {
    let mut scratch = Vec::new();
    let Some(key) = item_key(line, &mut scratch, out) else {
        return Ok(());
    };
    let flags = &line.flags;
    let options = ArithOptions {
        is_decrement: matches!(flags.mode, b'D' | b'-'),
        delta: flags.delta,
        // 0 requests nothing here, as in memcached.
        required_cas: (flags.required_cas != 0).then_some(CasUnique(flags.required_cas)),
        initial: expiry_if_created(flags, context).map(|expiry| (flags.initial, expiry)),
        touch: flags.has(b'T').then(|| context.expiry(flags.touch)),
        new_unique: flags.has(b'E').then_some(CasUnique(flags.new_unique)),
        hides_unique: !flags.has(b'c'),
    };
    match apply_arith(key, &options, context)? {
        ArithOutcome::Number { .. } if flags.has(b'q') => {}
        ArithOutcome::Number { value, unique, expiry_before, created, .. } => {
            let expiry = reported_expiry(flags, expiry_before, created, context);
            let attributes = (value, context.visible_unique(unique), ttl_s(expiry, context.now));
            meta::write_arith(out, line, key, attributes);
        }
        ArithOutcome::NotFound => meta::write_status(out, line, key, *b"NF"),
        ArithOutcome::Exists => meta::write_status(out, line, key, *b"EX"),
        ArithOutcome::NotANumber => out.extend_from_slice(replies::NOT_A_NUMBER),
        ArithOutcome::NoMemory => out.extend_from_slice(replies::NO_MEMORY_ARITH),
    }
    Ok(())
}

/// Executes `me`: appends one line with the metadata of an item, read without recording a use.
pub(super) fn execute_meta_debug(
    sent_key: &[u8],
    is_base64: bool,
    context: &Context<'_>,
    out: &mut Vec<u8>,
) {
    context.counters.meta_cmds.bump();
    let mut decoded = Vec::new();
    let key = match is_base64.then(|| base64::decode(sent_key, &mut decoded)) {
        Some(None) => return out.extend_from_slice(replies::BAD_FORMAT),
        Some(Some(_)) => &decoded,
        None => sent_key,
    };
    let Some(item) = context.store_worker.peek(key, hash_key(key, context), context.now) else {
        return out.extend_from_slice(b"EN\r\n");
    };
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(sent_key);
    let ttl = match item.expiry() {
        Expiry::Never => -1,
        Expiry::At(expires_at) => i64::from(expires_at.0) - i64::from(context.now.0),
    };
    let (class, size_bytes) =
        context.shared.slab_classes.class_and_size(key.len(), item.value_bytes(), item.flags());
    // Writing to a vector cannot fail.
    let _ = write!(
        out,
        " exp={ttl} la={} cas={} fetch={} cls={class} size={size_bytes}\r\n",
        context.now.0.saturating_sub(item.last_access().0),
        context.visible_unique(item.unique()),
        if item.was_fetched() { "yes" } else { "no" },
    );
}
