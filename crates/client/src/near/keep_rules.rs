//! Which keys the process may keep: by the rules of the strategy, and by what this client has changed in place.
//!
//! A request of the application that adds, compares and swaps, counts or appends, or that reads a CAS unique, is about a
//! key whose value must be the server's ([`glasscache_strategy::never_kept`]). What a package built on the client does
//! to store a value that it made, as `get_or_set` of the Python package does, is not counted as such a change: it makes
//! those calls within [`as_package_call`].

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use glasscache_protocol::text::request::StoreMode;
use glasscache_strategy::never_kept::{ChangedKeyTable, Learned, NeverRules};
use glasscache_strategy::session_keys::is_session_key;

use super::ClientNearCache;
use super::entry::{NearKey, near_key, wire_key};
use crate::key::{KeyEncoder, KeyEncoding};
use crate::request::Request;

thread_local! {
    static IS_PACKAGE_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call of which the process learns nothing if `is_package_call`: it fills a key, and changes nothing in place.
pub fn as_package_call<R>(is_package_call: bool, call: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_PACKAGE_CALL.set(self.0);
        }
    }
    let _restore = Restore(IS_PACKAGE_CALL.replace(is_package_call));
    call()
}

/// Learns the keys that these requests of the application change in place.
pub(super) fn learn_from(near: &ClientNearCache, request: &Request<'_>) {
    if is_noted_change(request) {
        let process_cache = near.current();
        let mut state = process_cache.state();
        for_each_key(request, |key| state.kept_values.learn_changed_key(&key));
    }
}

/// Whether a request of the application depends on the present value of its keys, or returns uniques on which a later
/// one will.
pub(crate) fn is_noted_change(request: &Request<'_>) -> bool {
    changes_items(request) && !IS_PACKAGE_CALL.get()
}

fn changes_items(request: &Request<'_>) -> bool {
    let is_conditional = |mode| {
        let writes_all = matches!(mode, StoreMode::Set | StoreMode::Replace);
        !writes_all
    };
    match *request {
        Request::Store { mode, .. } | Request::StoreMany { mode, .. } => is_conditional(mode),
        // Flags are read to append.
        Request::Flags { .. } | Request::Extend { .. } | Request::Arithmetic { .. } => true,
        Request::Get { cas, .. } | Request::GetMany { cas, .. } => cas,
        _ => false,
    }
}

fn for_each_key(request: &Request<'_>, mut pass_on: impl FnMut(NearKey)) {
    if let Request::GetMany { prefix, keys, .. } = *request {
        for key in keys {
            pass_on([prefix, *key].concat().into());
        }
    }
    request.for_each_key(|key| pass_on(near_key(key)));
}

/// The rules of the client, and the keys that it changed in place.
#[derive(Debug)]
pub(super) struct KeepRules {
    rules: Arc<NeverRules>,
    namespace: Vec<u8>,
    changed_keys: ChangedKeyTable,
}

impl KeepRules {
    pub(super) fn new(rules: Arc<NeverRules>, namespace: &[u8]) -> Self {
        Self { rules, namespace: namespace.to_vec(), changed_keys: ChangedKeyTable::default() }
    }

    /// Whether the process may keep the value of a key, and fetch it ahead of need.
    pub(super) fn may_keep(&self, key: &NearKey) -> bool {
        let application_key = self.application_key(key);
        self.rules.may_keep(&application_key, || {
            self.changed_keys.contains(&application_key) || self.is_session(key)
        })
    }

    /// The memory that what was learned takes.
    pub(super) fn bytes(&self) -> usize {
        self.changed_keys.bytes()
    }

    /// Notes that the application changes a key in place.
    pub(super) fn learn(&mut self, key: &NearKey) -> Learned {
        let key = self.application_key(key).into_owned();
        // What is not kept anyway takes no room in the table.
        if self.rules.may_keep(&key, || false) {
            self.changed_keys.learn(&key)
        } else {
            Learned::Nothing
        }
    }

    /// A key as the application writes it, without its namespace.
    fn application_key<'k>(&self, key: &'k NearKey) -> Cow<'k, [u8]> {
        decode(&self.namespace, key)
    }

    /// Whether a key is that of a session together with its namespace.
    fn is_session(&self, key: &NearKey) -> bool {
        !self.namespace.is_empty() && is_session_key(&decode(b"", key))
    }
}

/// A key without this namespace; its bytes if it is in base64.
fn decode<'k>(namespace: &[u8], key: &'k NearKey) -> Cow<'k, [u8]> {
    let encoding = KeyEncoding::Refuse; // of no effect here: a kept key says how it is encoded
    KeyEncoder { namespace, encoding }.decode(wire_key(key))
}
