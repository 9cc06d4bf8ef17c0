//! Starts calls: splits each into operations on the servers.

use glasscache_client::StoreMode;
use glasscache_client::engine::{Counter, InitialNumber};

use super::server_operation::{Action, BulkEntry, ServerOperation, StoreAction};
use super::{CallState, MUST_SUCCEED_CALL_SERIAL, ServerCall, World};
use crate::checker::{WriteId, initial_counter_value};
use crate::network::{Event, FIRST_UNIX_S};
use crate::plan::{
    COUNTER_KEYS, Call, Key, Micros, Operation, Prefix, Sabotage, Ttl, VALUE_KEYS, ValueWrite,
    WRITES_PER_CALL_MAX, is_base64, key_bytes_of,
};

/// Microseconds of a second.
const MICROS_PER_SECOND: Micros = 1_000_000;

impl World {
    /// Begins a call of a task.
    pub(super) fn start_call(&mut self, task: usize, call: &Call) {
        assert!(!self.is_sabotaged_by(Sabotage::Panics) || call.serial != 50, "planted");
        let process = self.process_of(task);
        let server_call_operations = self.operations_by_server(task, call);
        let now = self.network.now;
        let call_id = self.calls.len();
        self.log_event(|_| {
            format!("task {task} call {} {:?} within {}", call.serial, call.operation, call.timeout)
        });
        let first_server_call = self.server_calls.len();
        let server_calls = first_server_call..first_server_call + server_call_operations.len();
        for (server, server_operation) in server_call_operations {
            self.server_calls.push(ServerCall {
                call_id,
                server,
                server_operation: Some(server_operation),
                connection: None,
                is_retry: false,
                presumes_classic: false,
                is_ended: false,
                request_ids: Vec::new(),
                quiet_begin_offset: None,
            });
        }
        self.calls.push(CallState {
            task,
            process,
            serial: call.serial,
            started: now,
            start_index: self.network.execution_index(),
            deadline: now + call.timeout,
            server_calls_left: server_calls.len(),
            server_calls: server_calls.clone().collect(),
            is_ended: false,
            must_succeed: call.serial == MUST_SUCCEED_CALL_SERIAL,
        });
        self.network.schedule(call.timeout, Event::Deadline(call_id));
        self.network.schedule(call.timeout + 2, Event::Overdue(call_id));
        if let Some(wait) = call.cancel_after {
            self.network.schedule(wait, Event::Cancel(call_id));
        }
        let incarnation = self.processes[process].incarnation;
        for server_call in server_calls {
            let server = self.server_calls[server_call].server;
            self.checker.record_call_begin(incarnation, server, server_call);
            self.start_server_call(server_call);
        }
    }

    fn to_exptime(&self, ttl: Ttl) -> i64 {
        match ttl {
            Ttl::Never => 0,
            Ttl::Seconds(seconds) => i64::from(seconds),
            Ttl::Absolute(seconds) => {
                FIRST_UNIX_S + (self.network.now / MICROS_PER_SECOND) as i64 + i64::from(seconds)
            }
        }
    }

    /// The operations of a call, by server.
    fn operations_by_server(&mut self, task: usize, call: &Call) -> Vec<(usize, ServerOperation)> {
        let write_id = call.serial.wrapping_mul(WRITES_PER_CALL_MAX);
        let value_bytes_max = self.processes[self.process_of(task)].plan.value_bytes_max;
        let (key, action) = match &call.operation {
            Operation::Get(key) => (*key, Action::Get { cas: false }),
            Operation::Gets(key) => (*key, Action::Get { cas: true }),
            Operation::GetAndTouch(key, ttl) => (*key, Action::GetAndTouch(self.to_exptime(*ttl))),
            Operation::Set(key, write_options) => {
                (*key, self.new_store_action(StoreMode::Set, write_id, *key, *write_options))
            }
            Operation::Add(key, write_options) => {
                (*key, self.new_store_action(StoreMode::Add, write_id, *key, *write_options))
            }
            Operation::Cas(key, write_options) => {
                (*key, self.compare_and_store(task, write_id, *key, *write_options))
            }
            Operation::Delete { key, noreply } => (*key, Action::Delete { noreply: *noreply }),
            Operation::Touch { key, ttl, noreply } => {
                let exptime = self.to_exptime(*ttl);
                let noreply = *noreply;
                (*key, Action::Touch { exptime, noreply })
            }
            Operation::Increment { key, addition, creates_missing: true, .. } => {
                return vec![self.new_counter_operation(*key, *addition)];
            }
            Operation::Increment { key, addition, noreply, .. } => {
                (*key, Action::Increment { addition: *addition, noreply: *noreply })
            }
            Operation::GetMany(keys) => {
                return self.split_by_server(keys, |_, keys| {
                    let bytes_of_keys = keys.iter().map(|key| key_bytes_of(*key)).collect();
                    ServerOperation::GetMany(keys, bytes_of_keys)
                });
            }
            Operation::SetMany(keys, write_options) => {
                return self.set_many_operations(write_id, keys, *write_options);
            }
            Operation::DeleteMany(keys) => {
                return self.split_by_server(keys, |_, keys| {
                    let bytes_of_keys = keys.iter().map(|key| key_bytes_of(*key)).collect();
                    ServerOperation::DeleteMany(keys, bytes_of_keys, 0)
                });
            }
            Operation::Flush(server) => return vec![(*server, ServerOperation::Flush)],
            Operation::FlushPrefix(server, prefix) => {
                return vec![(*server, self.new_flush_prefix_operation(*server, *prefix))];
            }
            Operation::Version(server) => return vec![(*server, ServerOperation::Version)],
        };
        let server_operation =
            ServerOperation::single_key(key, action).unless_too_large(value_bytes_max);
        vec![(self.server_by_key[usize::from(key)], server_operation)]
    }

    fn new_flush_prefix_operation(&self, server: usize, prefix: Prefix) -> ServerOperation {
        let keys = (0..VALUE_KEYS + COUNTER_KEYS)
            .filter(|key| prefix.matches(*key) && self.server_by_key[usize::from(*key)] == server);
        let bytes = if self.is_sabotaged_by(Sabotage::FlushesAnotherPrefix) {
            b"another".to_vec()
        } else {
            prefix.to_bytes()
        };
        ServerOperation::FlushPrefix(bytes, keys.collect())
    }

    fn new_store_action(
        &mut self,
        mode: StoreMode,
        write_id: WriteId,
        key: Key,
        write_options: ValueWrite,
    ) -> Action {
        Action::Store(StoreAction {
            mode,
            write_id,
            body: self.checker.record_write(
                write_id,
                key,
                write_options.value_bytes,
                write_options.ttl,
            ),
            exptime: self.to_exptime(write_options.ttl),
            noreply: write_options.noreply,
            compared_read: None,
        })
    }

    /// A comparison with what the task has read, or else an `add`. Its caller always waits.
    fn compare_and_store(
        &mut self,
        task: usize,
        write_id: WriteId,
        key: Key,
        write_options: ValueWrite,
    ) -> Action {
        let write_options = ValueWrite { noreply: false, ..write_options };
        let Some((unique, source, read_request)) = self.tasks[task].uniques.remove(&key) else {
            return self.new_store_action(StoreMode::Add, write_id, key, write_options);
        };
        let mode = if self.is_sabotaged_by(Sabotage::ReplacesCasBySet) {
            StoreMode::Set
        } else {
            StoreMode::Cas(unique)
        };
        match self.new_store_action(mode, write_id, key, write_options) {
            Action::Store(store) => {
                Action::Store(StoreAction { compared_read: Some((source, read_request)), ..store })
            }
            action => action,
        }
    }

    fn new_counter_operation(&mut self, key: Key, addition: u8) -> (usize, ServerOperation) {
        let creation = self.checker.next_creation();
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
        let server = self.server_by_key[usize::from(key)];
        (server, ServerOperation::Counter { key, addition, creation, counter_steps })
    }

    fn split_by_server(
        &self,
        keys: &[Key],
        new_operation: impl Fn(&Self, Vec<Key>) -> ServerOperation,
    ) -> Vec<(usize, ServerOperation)> {
        let keys_of = |server: usize| {
            let keys_of_call = keys.iter().copied();
            keys_of_call
                .filter(|key| self.server_by_key[usize::from(*key)] == server)
                .collect::<Vec<_>>()
        };
        let servers = (0..self.server_count()).map(|server| (server, keys_of(server)));
        let servers_used = servers.filter(|(_, keys)| !keys.is_empty());
        servers_used.map(|(server, keys)| (server, new_operation(self, keys))).collect()
    }

    fn set_many_operations(
        &mut self,
        write_id: WriteId,
        keys: &[Key],
        write_options: ValueWrite,
    ) -> Vec<(usize, ServerOperation)> {
        let mut recorded_writes: Vec<(Key, WriteId, Vec<u8>)> = (write_id..)
            .zip(keys)
            .map(|(write_id, key)| {
                (
                    *key,
                    write_id,
                    self.checker.record_write(
                        write_id,
                        *key,
                        write_options.value_bytes,
                        write_options.ttl,
                    ),
                )
            })
            .collect();
        let exptime = self.to_exptime(write_options.ttl);
        let mut server_call_operations = self.split_by_server(keys, |_, keys| {
            let entry = |key| BulkEntry {
                key,
                key_bytes: key_bytes_of(key),
                write_id: 0,
                body: Vec::new(),
            };
            ServerOperation::SetMany(keys.into_iter().map(entry).collect(), exptime, 0)
        });
        for (_, server_operation) in &mut server_call_operations {
            let ServerOperation::SetMany(entries, ..) = server_operation else {
                continue;
            };
            for entry in entries {
                if let Some((_, write_id, body)) =
                    recorded_writes.iter_mut().find(|(key, ..)| *key == entry.key)
                {
                    entry.write_id = *write_id;
                    entry.body = std::mem::take(body);
                }
            }
        }
        server_call_operations
    }
}
