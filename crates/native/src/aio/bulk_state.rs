//! The state of a call about many keys: what its requests are built from, and the Python objects of its replies.

use glasscache_client::Error;
use glasscache_client::bulk::{
    BulkDelete, BulkRead, BulkReply, BulkResult, BulkStore, Failures, Partitioned, StoreFailures,
};
use glasscache_client::engine::operation::Operation;
use glasscache_client::engine::{Items, Step, Steps, StoreManySteps, interpret};
use glasscache_client::key::WireKeys;
use glasscache_client::request::Request;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::pending_near_read::NearFetch;
use crate::admin::AdminRequest;
use crate::bulk::{EncodedItems, FoundValues, failures_by_key};
use crate::client_state::ClientState;
use crate::error;
use crate::keys::key_bytes;
use crate::settings::Codec;

/// The kind of a call about many keys, with its keys or items and its results so far.
pub(super) enum BulkState {
    Read(BulkRead, FoundValues),
    Store(BulkStore, EncodedItems, StoreFailures),
    /// The steps that follow a store.
    FollowUpSteps(Box<StoreManySteps<EncodedItems>>),
    Delete(BulkDelete, WireKeys, Failures),
    /// A call of a read under a strategy.
    Near(Box<NearFetch>),
    /// A request to every server: the servers' names, and their replies by name.
    AllServers(AdminRequest, Vec<String>, Py<PyDict>),
    Finished,
}

impl BulkState {
    /// Builds a request and passes it to `write_request`, which writes it.
    pub(super) fn with_request(
        &self,
        py: Python<'_>,
        keys: &[Py<PyAny>],
        request_index: usize,
        write_request: impl FnOnce(&Request<'_>) -> PyResult<Result<(), Error>>,
    ) -> PyResult<Result<(), Error>> {
        match self {
            Self::Read(bulk_read, _) => {
                let entries = bulk_read.entries_of(request_index, |key_index| keys.get(key_index));
                let key_slices = entries.into_iter().map(|key| key_bytes(key.bind(py)));
                let key_slices: Vec<&[u8]> = key_slices.collect::<PyResult<_>>()?;
                write_request(&bulk_read.request(request_index, &key_slices))
            }
            Self::Store(bulk_store, encoded_items, _) => {
                let entries = bulk_store
                    .entries_of(request_index, |item_index| encoded_items.item(item_index));
                write_request(&bulk_store.request(request_index, &entries))
            }
            Self::Delete(bulk_delete, wire_keys, _) => {
                let entries =
                    bulk_delete.entries_of(request_index, |key_index| wire_keys.get(key_index));
                write_request(&bulk_delete.request(request_index, &entries))
            }
            Self::Near(near_fetch) => {
                let (fetch_keys, bulk_read) = (near_fetch.fetch.keys(), &near_fetch.bulk_read);
                let entries = bulk_read
                    .entries_of(request_index, |key_index| fetch_keys.get(key_index).copied());
                write_request(&bulk_read.request(request_index, &entries))
            }
            Self::AllServers(admin_request, ..) => write_request(&admin_request.request()),
            Self::FollowUpSteps(_) | Self::Finished => match self.step() {
                Some(step) => write_request(&step.request()),
                None => Ok(Err(Error::Closed)),
            },
        }
    }

    /// Interprets a reply; returns the bytes of its values. An exception is not the outcome of a key and ends the whole
    /// call.
    pub(super) fn interpret(
        &mut self,
        py: Python<'_>,
        codec: &Codec,
        keys: &[Py<PyAny>],
        reply: BulkReply<'_>,
    ) -> PyResult<Result<u64, Error>> {
        match self {
            Self::Read(bulk_read, found_values) => {
                let mut add_values_result = Ok(());
                let value_bytes = bulk_read.for_each_value(reply, |key_index, found, body| {
                    let key = keys.get(key_index).map(|key| key.bind(py));
                    if let Some(key) = key.filter(|_| add_values_result.is_ok()) {
                        let flags_and_cas = (found.flags, found.cas);
                        add_values_result =
                            found_values.add_value(codec, (key_index, key), flags_and_cas, body);
                    }
                });
                add_values_result?;
                return Ok(value_bytes);
            }
            Self::Store(bulk_store, encoded_items, store_failures) => {
                bulk_store.add_reply(reply, encoded_items, store_failures);
            }
            Self::Delete(bulk_delete, _, failures) => {
                failures.extend(bulk_delete.failure(reply));
            }
            Self::Near(near_fetch) => {
                let add_result = near_fetch.bulk_read.add_reply(reply, &mut near_fetch.fetched);
                return Ok(add_result.map(|()| 0));
            }
            Self::AllServers(admin_request, server_names, replies) => {
                let parsed = match interpret::refusal_to_error(reply.parsed, reply.server) {
                    Ok(parsed) => parsed,
                    Err(error) => return Ok(Err(error)),
                };
                if let Some(server_name) = server_names.get(reply.request_index) {
                    let reply_object = admin_request.to_python(py, parsed)?;
                    replies.bind(py).set_item(server_name, reply_object)?;
                }
            }
            Self::FollowUpSteps(steps) => {
                let step = steps.step();
                let step_result =
                    step.map(|step| step.read(reply.parsed, reply.pipeline, reply.server));
                if let Some(step_result) = step_result {
                    steps.handle_result(step_result);
                }
            }
            Self::Finished => {}
        }
        Ok(Ok(0))
    }

    /// The next state once the requests have ended: a store continues with its follow-up steps.
    pub(super) fn into_next_state(self, results: &[BulkResult]) -> Self {
        match self {
            Self::Store(bulk_store, encoded_items, store_failures) => {
                let steps = bulk_store.remaining_steps(encoded_items, results, store_failures);
                Self::FollowUpSteps(Box::new(steps))
            }
            Self::FollowUpSteps(mut steps) => {
                // A step without a reply; one with a reply was taken when it came.
                for error in results.iter().filter_map(|result| result.error.clone()) {
                    steps.handle_result(Err(error));
                }
                Self::FollowUpSteps(steps)
            }
            bulk_state => bulk_state,
        }
    }

    /// The next request of a call that makes one after the other.
    pub(super) fn step(&self) -> Option<Step<'_>> {
        match self {
            Self::FollowUpSteps(steps) => steps.step(),
            _ => None,
        }
    }

    /// The result of a call whose requests have all ended.
    pub(super) fn finish<'py>(
        self,
        py: Python<'py>,
        keys: &[Py<PyAny>],
        results: &[BulkResult],
        client: &ClientState,
    ) -> PyResult<Bound<'py, PyDict>> {
        let key_at = |key_index: usize| keys.get(key_index).map(|key| key.bind(py).clone());
        match self {
            Self::Read(bulk_read, found_values) => {
                let failures = bulk_read.failures_without_reply(results);
                found_values.finish(py, failures, &client.misses, key_at)
            }
            Self::FollowUpSteps(steps) => {
                let failures = steps.finish();
                let failures = failures.map_err(|error| error::from_client_error(py, &error))?;
                failures_by_key(py, client, failures, key_at)
            }
            Self::Delete(bulk_delete, _, mut failures) => {
                failures.extend(bulk_delete.failures_without_reply(results));
                failures_by_key(py, client, failures, key_at)
            }
            Self::Near(near_fetch) => {
                let failures = near_fetch.bulk_read.failures_without_reply(results);
                near_fetch.finish_call(py, failures);
                Ok(PyDict::new(py))
            }
            Self::AllServers(_, server_names, replies) => {
                let replies = replies.into_bound(py);
                for (server_name, result) in server_names.iter().zip(results) {
                    if let Some(error) = &result.error {
                        replies.set_item(server_name, error::error_to_exception(py, error)?)?;
                    }
                }
                Ok(replies)
            }
            Self::Store(..) | Self::Finished => Ok(PyDict::new(py)),
        }
    }
}
