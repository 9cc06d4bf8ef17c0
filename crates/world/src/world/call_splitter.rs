//! Splits a call into operations on the servers.

use std::collections::HashMap;

use glasscache_client::StoreMode;
use glasscache_client::engine::{Counter, InitialNumber};

use super::environment::Environment;
use super::server_operation::{Action, BulkEntry, ReadUnique, ServerOperation, StoreAction};
use crate::checker::{WriteId, initial_counter_value};
use crate::network::FIRST_UNIX_S;
use crate::plan::{
    COUNTER_KEYS, Call, Key, Micros, Operation, Plan, Prefix, Sabotage, Ttl, VALUE_KEYS,
    ValueWrite, WRITES_PER_CALL_MAX, is_base64, key_bytes_of,
};

/// Microseconds of a second.
const MICROS_PER_SECOND: Micros = 1_000_000;

/// Which server has which key.
pub(super) struct KeyMap {
    server_by_key: Vec<usize>,
    server_count: usize,
}

impl KeyMap {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            server_by_key: (0..VALUE_KEYS + COUNTER_KEYS).map(|key| plan.server_of(key)).collect(),
            server_count: plan.servers.len(),
        }
    }

    pub(super) fn server_count(&self) -> usize {
        self.server_count
    }

    fn server_of(&self, key: Key) -> usize {
        self.server_by_key[usize::from(key)]
    }

    /// A key of each server that has a value and is sent as it is.
    pub(super) fn plain_keys(&self) -> impl Iterator<Item = Option<Key>> {
        (0..self.server_count).map(move |server| {
            (0..VALUE_KEYS).find(|key| self.server_of(*key) == server && !is_base64(*key))
        })
    }

    /// Groups keys by their servers, in order.
    fn group(&self, keys: &[Key]) -> impl Iterator<Item = (usize, Vec<Key>)> {
        let keys_of = move |server: usize| {
            let keys_of_call = keys.iter().copied();
            keys_of_call.filter(|key| self.server_of(*key) == server).collect::<Vec<_>>()
        };
        let servers = (0..self.server_count).map(move |server| (server, keys_of(server)));
        servers.filter(|(_, keys)| !keys.is_empty())
    }
}

/// Makes the operations of one call, and records what it writes.
pub(super) struct CallSplitter<'c> {
    /// The id of the first write of the call.
    first_write_id: WriteId,
    key_map: &'c KeyMap,
    /// The CAS uniques that the task has read.
    uniques: &'c mut HashMap<Key, ReadUnique>,
    env: &'c mut Environment,
}

impl<'c> CallSplitter<'c> {
    /// The operations of a call by server, for a client that reads values of up to `value_bytes_max`.
    pub(super) fn split(
        call: &Call,
        key_map: &'c KeyMap,
        value_bytes_max: u64,
        uniques: &'c mut HashMap<Key, ReadUnique>,
        env: &'c mut Environment,
    ) -> Vec<(usize, ServerOperation)> {
        let first_write_id = call.serial.wrapping_mul(WRITES_PER_CALL_MAX);
        let mut splitter = Self { first_write_id, key_map, uniques, env };
        splitter.operations_by_server(&call.operation, value_bytes_max)
    }

    fn operations_by_server(
        &mut self,
        operation: &Operation,
        value_bytes_max: u64,
    ) -> Vec<(usize, ServerOperation)> {
        let (key, action) = match operation {
            Operation::Get(key) => (*key, Action::Get { cas: false }),
            Operation::Gets(key) => (*key, Action::Get { cas: true }),
            Operation::GetAndTouch(key, ttl) => (*key, Action::GetAndTouch(self.to_exptime(*ttl))),
            Operation::Set(key, write_options) => {
                (*key, self.new_store_action(StoreMode::Set, *key, *write_options))
            }
            Operation::Add(key, write_options) => {
                (*key, self.new_store_action(StoreMode::Add, *key, *write_options))
            }
            Operation::Cas(key, write_options) => {
                (*key, self.compare_and_store(*key, *write_options))
            }
            Operation::Delete { key, noreply } => (*key, Action::Delete { noreply: *noreply }),
            Operation::Touch { key, ttl, noreply } => {
                let exptime = self.to_exptime(*ttl);
                (*key, Action::Touch { exptime, noreply: *noreply })
            }
            Operation::Increment { key, addition, creates_missing: true, .. } => {
                return vec![self.new_counter_operation(*key, *addition)];
            }
            Operation::Increment { key, addition, noreply, .. } => {
                (*key, Action::Increment { addition: *addition, noreply: *noreply })
            }
            Operation::GetMany(keys) => {
                let operations = self.key_map.group(keys).map(|(server, keys)| {
                    let bytes_of_keys = keys.iter().map(|key| key_bytes_of(*key)).collect();
                    (server, ServerOperation::GetMany(keys, bytes_of_keys))
                });
                return operations.collect();
            }
            Operation::SetMany(keys, write_options) => {
                return self.set_many_operations(keys, *write_options);
            }
            Operation::DeleteMany(keys) => {
                let operations = self.key_map.group(keys).map(|(server, keys)| {
                    let bytes_of_keys = keys.iter().map(|key| key_bytes_of(*key)).collect();
                    (server, ServerOperation::DeleteMany(keys, bytes_of_keys, 0))
                });
                return operations.collect();
            }
            Operation::Flush(server) => return vec![(*server, ServerOperation::Flush)],
            Operation::FlushPrefix(server, prefix) => {
                return vec![(*server, self.new_flush_prefix_operation(*server, *prefix))];
            }
            Operation::Version(server) => return vec![(*server, ServerOperation::Version)],
        };
        let server_operation =
            ServerOperation::single_key(key, action).unless_too_large(value_bytes_max);
        vec![(self.key_map.server_of(key), server_operation)]
    }

    fn to_exptime(&self, ttl: Ttl) -> i64 {
        match ttl {
            Ttl::Never => 0,
            Ttl::Seconds(seconds) => i64::from(seconds),
            Ttl::Absolute(seconds) => {
                FIRST_UNIX_S + (self.env.now() / MICROS_PER_SECOND) as i64 + i64::from(seconds)
            }
        }
    }

    fn new_flush_prefix_operation(&self, server: usize, prefix: Prefix) -> ServerOperation {
        let keys = (0..VALUE_KEYS + COUNTER_KEYS)
            .filter(|key| prefix.matches(*key) && self.key_map.server_of(*key) == server);
        let bytes = if self.env.is_sabotaged_by(Sabotage::FlushesAnotherPrefix) {
            b"another".to_vec()
        } else {
            prefix.to_bytes()
        };
        ServerOperation::FlushPrefix(bytes, keys.collect())
    }

    fn new_store_action(&mut self, mode: StoreMode, key: Key, write_options: ValueWrite) -> Action {
        let ValueWrite { value_bytes, ttl, noreply } = write_options;
        let write_id = self.first_write_id;
        Action::Store(StoreAction {
            mode,
            write_id,
            body: self.env.checker.record_write(write_id, key, value_bytes, ttl),
            exptime: self.to_exptime(ttl),
            noreply,
            compared_read: None,
        })
    }

    /// A comparison with what the task has read, or else an `add`. Its caller always waits.
    fn compare_and_store(&mut self, key: Key, write_options: ValueWrite) -> Action {
        let write_options = ValueWrite { noreply: false, ..write_options };
        let Some((unique, source, read_request)) = self.uniques.remove(&key) else {
            return self.new_store_action(StoreMode::Add, key, write_options);
        };
        let mode = if self.env.is_sabotaged_by(Sabotage::ReplacesCasBySet) {
            StoreMode::Set
        } else {
            StoreMode::Cas(unique)
        };
        match self.new_store_action(mode, key, write_options) {
            Action::Store(store) => {
                Action::Store(StoreAction { compared_read: Some((source, read_request)), ..store })
            }
            action => action,
        }
    }

    fn new_counter_operation(&mut self, key: Key, addition: u8) -> (usize, ServerOperation) {
        let creation = self.env.checker.next_creation();
        let initial_value = initial_counter_value(creation);
        let initial_number = InitialNumber {
            number: initial_value,
            flags: 3,
            digits: initial_value.to_string(),
            exptime: 0,
        };
        let key_bytes = key_bytes_of(key);
        let wire_key = glasscache_client::WireKey { bytes: &key_bytes, is_base64: is_base64(key) };
        let delta = crate::checker::addend(addition);
        let counter_steps = Box::new(Counter::new(wire_key, delta, false, initial_number));
        let server = self.key_map.server_of(key);
        (server, ServerOperation::Counter { key, addition, creation, counter_steps })
    }

    fn set_many_operations(
        &mut self,
        keys: &[Key],
        write_options: ValueWrite,
    ) -> Vec<(usize, ServerOperation)> {
        let ValueWrite { value_bytes, ttl, .. } = write_options;
        let record_write = |(write_id, key): (WriteId, &Key)| {
            let body = self.env.checker.record_write(write_id, *key, value_bytes, ttl);
            BulkEntry { key: *key, key_bytes: key_bytes_of(*key), write_id, body }
        };
        let mut entries: Vec<BulkEntry> =
            (self.first_write_id..).zip(keys).map(record_write).collect();
        let exptime = self.to_exptime(ttl);
        let operations = self.key_map.group(keys).map(|(server, keys)| {
            let is_of_server = |entry: &mut BulkEntry| keys.contains(&entry.key);
            let entries_of_server = entries.extract_if(.., is_of_server).collect();
            (server, ServerOperation::SetMany(entries_of_server, exptime, 0))
        });
        operations.collect()
    }
}
