//! The operation of a call on one server: its requests, one round trip after the other, and what their replies mean.

use glasscache_client::engine::operation::Store;
use glasscache_client::engine::{Counter, RefusedValueSteps, Steps, interpret};
use glasscache_client::pipeline::Reply;
use glasscache_client::request::{Item, Request};
use glasscache_client::{Arithmetic, Error, StoreMode, WireKey};

use crate::checker::{Condition, Effect, RequestId, Source, WriteId, addend, flags};
use crate::plan::{Key, is_base64, key_bytes_of};

/// A CAS unique that a task has read, whose value it was, and by which request.
pub(super) type ReadUnique = (u64, Source, RequestId);

/// The operation of a call on one server.
#[derive(Debug)]
pub(super) enum ServerOperation {
    /// Something about one key, and the key as it is sent.
    SingleKey(Key, Vec<u8>, Action),
    /// The keys, and the same as they are sent.
    GetMany(Vec<Key>, Vec<Vec<u8>>),
    /// Writes, their exptime, and how many replies have come where each has its own.
    SetMany(Vec<BulkEntry>, i64, usize),
    /// The keys, the same as they are sent, and how many replies have come.
    DeleteMany(Vec<Key>, Vec<Vec<u8>>, usize),
    /// An addition to a counter that is created where there is none.
    Counter {
        key: Key,
        addition: u8,
        creation: u16,
        counter_steps: Box<Counter>,
    },
    /// What follows where a value was too large.
    TooLarge(Key, Box<RefusedValueSteps>),
    Flush,
    /// Removes what begins with this prefix, as these keys do.
    FlushPrefix(Vec<u8>, Vec<Key>),
    Version,
}

/// One value of a bulk write.
#[derive(Debug)]
pub(super) struct BulkEntry {
    pub(super) key: Key,
    pub(super) key_bytes: Vec<u8>,
    pub(super) write_id: WriteId,
    pub(super) body: Vec<u8>,
}

/// Something about one key.
#[derive(Debug)]
pub(super) enum Action {
    Get {
        /// Whether the CAS unique is read as well.
        cas: bool,
    },
    /// A read with a new exptime.
    GetAndTouch(i64),
    Store(StoreAction),
    Delete {
        noreply: bool,
    },
    Touch {
        exptime: i64,
        noreply: bool,
    },
    /// An addition to a counter.
    Increment {
        addition: u8,
        noreply: bool,
    },
}

/// One value to store.
#[derive(Debug)]
pub(super) struct StoreAction {
    pub(super) mode: StoreMode,
    pub(super) write_id: WriteId,
    pub(super) body: Vec<u8>,
    pub(super) exptime: i64,
    pub(super) noreply: bool,
    /// The source and the request of the read that a comparison refers to.
    pub(super) compared_read: Option<(Source, RequestId)>,
}

pub(super) fn to_wire_key(key: Key, key_bytes: &[u8]) -> WireKey<'_> {
    WireKey { bytes: key_bytes, is_base64: is_base64(key) }
}

impl BulkEntry {
    pub(super) fn to_item(&self) -> Item<'_> {
        Item {
            key: to_wire_key(self.key, &self.key_bytes),
            flags: flags(self.write_id),
            body: &self.body,
        }
    }
}

impl StoreAction {
    pub(super) fn operation<'s>(&'s self, key: WireKey<'s>) -> Store<'s> {
        let item = Item { key, flags: flags(self.write_id), body: &self.body };
        Store::new(self.mode, item, self.exptime, self.noreply)
    }

    fn condition(&self) -> Condition {
        if self.mode == StoreMode::Set { Condition::Always } else { Condition::AbsentOrUnchanged }
    }
}

pub(super) fn addition_arithmetic(addition: u8) -> Arithmetic {
    Arithmetic { delta: addend(addition), is_decrement: false, initial: None }
}

impl ServerOperation {
    /// An operation on one key.
    pub(super) fn single_key(key: Key, action: Action) -> Self {
        Self::SingleKey(key, key_bytes_of(key), action)
    }

    /// This operation, or what the client does instead if the value is too long to be sent.
    pub(super) fn unless_too_large(self, value_bytes_max: u64) -> Self {
        let Self::SingleKey(key, key_bytes, Action::Store(store)) = &self else {
            return self;
        };
        match store.operation(to_wire_key(*key, key_bytes)).refusal(value_bytes_max) {
            Some(error) => Self::too_large(*key, error),
            None => self,
        }
    }

    pub(super) fn too_large(key: Key, error: Error) -> Self {
        let key_bytes = key_bytes_of(key);
        Self::TooLarge(key, Box::new(RefusedValueSteps::new(to_wire_key(key, &key_bytes), error)))
    }

    /// Has `write_requests` write the requests of the next round trip. With `is_quiet`, bulk writes are acknowledged together.
    pub(super) fn with_requests<R>(
        &self,
        is_quiet: bool,
        write_requests: impl FnOnce(&[Request<'_>]) -> R,
    ) -> R {
        match self {
            Self::SingleKey(key, key_bytes, action) => {
                let key = to_wire_key(*key, key_bytes);
                let request = match action {
                    Action::Get { cas } => Request::Get { key, cas: *cas },
                    Action::GetAndTouch(exptime) => Request::GetAndTouch { key, exptime: *exptime },
                    Action::Store(store) => {
                        let Store { mode, item, exptime, noreply } = store.operation(key);
                        Request::Store { mode, item, exptime, noreply }
                    }
                    Action::Delete { noreply } => Request::Delete { key, noreply: *noreply },
                    Action::Touch { exptime, noreply } => {
                        Request::Touch { key, exptime: *exptime, noreply: *noreply }
                    }
                    Action::Increment { addition, noreply } => Request::Arithmetic {
                        key,
                        arithmetic: addition_arithmetic(*addition),
                        noreply: *noreply,
                    },
                };
                write_requests(&[request])
            }
            Self::GetMany(_, bytes_of_keys) => {
                let keys: Vec<&[u8]> = bytes_of_keys.iter().map(Vec::as_slice).collect();
                write_requests(&[Request::GetMany { prefix: b"", keys: &keys, cas: false }])
            }
            Self::SetMany(entries, exptime, _) => {
                let items: Vec<Item<'_>> = entries.iter().map(BulkEntry::to_item).collect();
                write_requests(&[Request::StoreMany {
                    mode: StoreMode::Set,
                    items: &items,
                    exptime: *exptime,
                    quiet: is_quiet,
                }])
            }
            Self::DeleteMany(keys, bytes_of_keys, _) => {
                let keys: Vec<WireKey<'_>> = keys
                    .iter()
                    .zip(bytes_of_keys)
                    .map(|(key, key_bytes)| to_wire_key(*key, key_bytes))
                    .collect();
                write_requests(&[Request::DeleteMany { keys: &keys }])
            }
            Self::Counter { counter_steps, .. } => match counter_steps.step() {
                Some(step) => write_requests(&[step.request]),
                None => write_requests(&[]),
            },
            Self::TooLarge(_, steps) => match steps.step() {
                Some(step) => write_requests(&[step.request]),
                None => write_requests(&[]),
            },
            Self::Flush => write_requests(&[Request::Flush { delay_s: 0 }]),
            Self::FlushPrefix(bytes, _) => write_requests(&[Request::FlushPrefix {
                prefix: WireKey { bytes, is_base64: false },
            }]),
            Self::Version => write_requests(&[Request::Version]),
        }
    }

    /// Interprets the reply to a request to a whole server: what it is counted as.
    pub(super) fn read_reply_of_server(
        &self,
        reply: Reply,
        server_name: &str,
    ) -> Result<&'static str, Error> {
        let name = match self {
            Self::Version => {
                return interpret::refusal_to_error(reply, server_name).map(|_| "version");
            }
            Self::FlushPrefix(..) => "flush of a prefix",
            _ => "flush",
        };
        interpret::write_outcome_of_reply(reply, server_name).map(|_| name)
    }

    /// Whether a server executes the round trip piece by piece.
    pub(super) fn is_multi_step(&self) -> bool {
        matches!(self, Self::GetMany(..) | Self::SetMany(..) | Self::DeleteMany(..))
    }

    /// The key whose older value is gone once the operation has ended well.
    pub(super) fn removed_key(&self) -> Option<Key> {
        match self {
            Self::TooLarge(key, _) => Some(*key),
            _ => None,
        }
    }

    /// What the next round trip does to keys.
    pub(super) fn effects(&self) -> Vec<(Key, Effect)> {
        match self {
            Self::SingleKey(key, _, action) => {
                let effect = match action {
                    Action::Get { .. } => Effect::Read,
                    Action::GetAndTouch(_) | Action::Touch { .. } => Effect::Touch,
                    Action::Store(store) => Effect::Store(store.write_id, store.condition()),
                    Action::Delete { .. } => Effect::Delete,
                    Action::Increment { addition, .. } => Effect::Add(*addition),
                };
                vec![(*key, effect)]
            }
            Self::GetMany(keys, _) => keys.iter().map(|key| (*key, Effect::Read)).collect(),
            Self::SetMany(entries, ..) => {
                let effect = |entry: &BulkEntry| Effect::Store(entry.write_id, Condition::Always);
                entries.iter().map(|entry| (entry.key, effect(entry))).collect()
            }
            Self::DeleteMany(keys, ..) => keys.iter().map(|key| (*key, Effect::Delete)).collect(),
            Self::Counter { key, addition, creation, counter_steps } => {
                match counter_steps.step().map(|step| step.request) {
                    Some(Request::Store { .. }) => vec![(*key, Effect::Create(*creation))],
                    Some(_) => vec![(*key, Effect::Add(*addition))],
                    None => Vec::new(),
                }
            }
            Self::TooLarge(key, steps) => match steps.step().map(|step| step.request) {
                Some(Request::Delete { .. }) => vec![(*key, Effect::Delete)],
                _ => Vec::new(),
            },
            Self::FlushPrefix(_, keys) => {
                let effect = |key: &Key| (*key, Effect::FlushPrefix);
                keys.iter().map(effect).collect()
            }
            Self::Flush | Self::Version => Vec::new(),
        }
    }
}
