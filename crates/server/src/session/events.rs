//! The lines of `watch` about what one connection does to items, in memcached's form.

use std::io::Write as _;

use glasscache_protocol::percent;
use glasscache_store::{DeleteOptions, Expiry, KeyHash, Seconds, SetMode, SetOptions, SetOutcome};

use crate::session::context::Context;
use crate::shared::Shared;
use crate::shared::events::publish;
use crate::shared::watchers::{Subject, kind};

/// Publishes that a key was requested.
pub(crate) fn publish_fetch(context: &Context<'_>, key: &[u8], value_bytes: Option<u32>) {
    if !context.shared.watchers.is_watched(kind::FETCHERS) {
        return;
    }
    let mut text = b"type=item_get key=".to_vec();
    percent::encode(key, &mut text);
    let size = value_bytes.unwrap_or(0);
    let class = value_bytes.map_or(0, |value_bytes| {
        let slab_classes = &context.shared.slab_classes;
        let (class, _) = slab_classes.class_and_size(key.len(), value_bytes, 0);
        class
    });
    let status = if value_bytes.is_some() { "found" } else { "not_found" };
    let descriptor = context.connection.id.descriptor;
    let _ = write!(text, " status={status} clsid={class} cfd={descriptor} size={size}");
    publish(context.shared, kind::FETCHERS, Subject::Key(key), &text);
}

/// The item under a key before a value is stored: memcached fetches it first, and its watchers see that.
pub(crate) struct PreviousValue {
    /// Length of the old value.
    pub(crate) value_bytes: Option<u32>,
}

/// Finds the old item before a value is stored, if a watcher should see it.
pub(crate) fn find_previous_value(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
) -> PreviousValue {
    let is_wanted = context.shared.watchers.is_watched(kind::FETCHERS);
    let previous_item = is_wanted.then(|| context.store_worker.peek(key, hash, context.now));
    PreviousValue { value_bytes: previous_item.flatten().map(|item| item.value_bytes()) }
}

/// A value was stored, or refused.
pub(crate) fn publish_store(
    context: &Context<'_>,
    (key, hash): (&[u8], KeyHash),
    outcome: SetOutcome,
    options: &SetOptions,
    value_bytes: u32,
) {
    if !context.shared.watchers.is_watched(kind::MUTATIONS) {
        return;
    }
    let status = match outcome {
        SetOutcome::Stored(_) => "stored",
        SetOutcome::NotStored => "not_stored",
        SetOutcome::Exists => "exists",
        SetOutcome::NotFound => "not_found",
        SetOutcome::TooLarge => "too_large",
        SetOutcome::NoMemory => "no_memory",
    };
    let command = match options.mode {
        SetMode::Set if options.required_cas.is_some() => "cas",
        SetMode::Set => "set",
        SetMode::Add => "add",
        SetMode::Replace => "replace",
        SetMode::Append => "append",
        SetMode::Prepend => "prepend",
    };
    let stored = find_stored_item(context, (key, hash), outcome, options);
    let (value_bytes, expiry) = stored.unwrap_or((value_bytes, options.expiry));
    let ttl = format_ttl(expiry, context.now);
    let (class, _) =
        context.shared.slab_classes.class_and_size(key.len(), value_bytes, options.flags);
    let mut text = b"type=item_store key=".to_vec();
    percent::encode(key, &mut text);
    let descriptor = context.connection.id.descriptor;
    let _ = write!(
        text,
        " status={status} cmd={command} ttl={ttl} clsid={class} cfd={descriptor} size={value_bytes}"
    );
    publish(context.shared, kind::MUTATIONS, Subject::Key(key), &text);
}

/// Length and expiry of a stored item that are not those of its request: an `append` or `prepend` makes an item longer, a
/// stale value (`ms` with `I`) keeps the expiry of the old one.
fn find_stored_item(
    context: &Context<'_>,
    (key, hash): (&[u8], KeyHash),
    outcome: SetOutcome,
    options: &SetOptions,
) -> Option<(u32, Expiry)> {
    let keeps_old =
        matches!(options.mode, SetMode::Append | SetMode::Prepend) || options.invalidate;
    let is_mixed = matches!(outcome, SetOutcome::Stored(_)) && keeps_old;
    let item = is_mixed.then(|| context.store_worker.peek(key, hash, context.now)).flatten()?;
    Some((item.value_bytes(), item.expiry()))
}

/// The TTL of a line: 0 is never. That of an item which is stored expired is negative, printed without its sign as
/// memcached does.
fn format_ttl(expiry: Expiry, now: Seconds) -> u32 {
    match expiry {
        Expiry::Never => 0,
        Expiry::At(expires_at) if expires_at == now => u32::MAX,
        Expiry::At(expires_at) => expires_at.0.wrapping_sub(now.0),
    }
}

/// The line for an item that is about to be deleted, if a watcher should see it; marking it stale deletes nothing.
pub(crate) fn render_deletion(
    context: &Context<'_>,
    (key, hash): (&[u8], KeyHash),
    options: &DeleteOptions,
    is_meta: bool,
) -> Option<Vec<u8>> {
    if options.invalidate || !context.shared.watchers.is_watched(kind::DELETIONS) {
        return None;
    }
    let item = context.store_worker.peek(key, hash, context.now)?;
    if options.required_cas.is_some_and(|unique| !item.has_unique(unique)) {
        return None;
    }
    let command = if is_meta { "md" } else { "delete" };
    let (class, _) =
        context.shared.slab_classes.class_and_size(key.len(), item.value_bytes(), item.flags());
    let mut text = b"type=deleted key=".to_vec();
    percent::encode(key, &mut text);
    let _ = write!(text, " cmd={command} clsid={class} size={}", item.value_bytes());
    Some(text)
}

/// Publishes that all items whose keys start with a prefix were removed, in one line for all of them.
pub(crate) fn publish_prefix_flush(context: &Context<'_>, prefix: &[u8], command: &str) {
    if !context.shared.watchers.is_watched(kind::DELETIONS) {
        return;
    }
    let mut text = b"type=prefix_flushed prefix=".to_vec();
    percent::encode(prefix, &mut text);
    let _ = write!(text, " cmd={command}");
    publish(context.shared, kind::DELETIONS, Subject::Prefix(prefix), &text);
}

/// Publishes the line of [`render_deletion`].
pub(crate) fn publish_deletion(shared: &Shared, key: &[u8], line: &[u8]) {
    publish(shared, kind::DELETIONS, Subject::Key(key), line);
}

/// Publishes that an item was changed in place: its number, its expiry, or that it is stale. memcached reports none of
/// these.
pub(crate) fn publish_change(context: &Context<'_>, key: &[u8], command: &str) {
    if !context.shared.watchers.is_watched(kind::MUTATIONS) {
        return;
    }
    let mut text = b"type=item_changed key=".to_vec();
    percent::encode(key, &mut text);
    let descriptor = context.connection.id.descriptor;
    let _ = write!(text, " cmd={command} cfd={descriptor}");
    publish(context.shared, kind::MUTATIONS, Subject::Key(key), &text);
}

/// Publishes that all items were removed, or will be in `delay_s` seconds.
pub(crate) fn publish_flush_all(context: &Context<'_>, delay_s: u32) {
    if context.shared.watchers.is_watched(kind::DELETIONS) {
        let text = format!("type=flush_all delay={delay_s}");
        publish(context.shared, kind::DELETIONS, Subject::Any, text.as_bytes());
    }
}
