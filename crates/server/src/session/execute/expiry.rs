//! The times of a meta line: memcached executes its flags from left to right, so `t` shows the result of those
//! before it.

use glasscache_protocol::ascii;
use glasscache_protocol::meta::MetaFlags;
use glasscache_store::Expiry;

use crate::session::context::Context;

/// The expiry of an item that the line creates: the last of `N` and `T` holds. `None` without an `N`.
pub(super) fn expiry_if_created(flags: &MetaFlags<'_>, context: &Context<'_>) -> Option<Expiry> {
    let exptime = if flags.has_in_order(b'N', b'T') { flags.touch } else { flags.vivify };
    flags.has(b'N').then(|| context.expiry(exptime))
}

/// The expiry that a `t` of the line shows, of an item that had `expiry_before` or was just created.
pub(super) fn reported_expiry(
    flags: &MetaFlags<'_>,
    expiry_before: Expiry,
    is_created: bool,
    context: &Context<'_>,
) -> Expiry {
    let mut expiry = expiry_before;
    for token in ascii::tokens(flags.text) {
        match token.first() {
            Some(b't') => break,
            Some(b'T') => expiry = context.expiry(flags.touch),
            Some(b'N') if is_created => expiry = context.expiry(flags.vivify),
            _ => {}
        }
    }
    expiry
}
