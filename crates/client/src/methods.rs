//! The methods of both clients, written once: those of the blocking client wait, those for tokio are awaited.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::request::StoreMode;

#[cfg(feature = "tokio")]
use crate::asynchronous::AsyncClient;
use crate::bulk::{
    BulkDelete, BulkRead, BulkReadWithTtls, BulkStore, Failures, IndexedValue, Partitioned,
    ReadTotals, StoreFailures, found_values_with_index,
};
use crate::client::{Budget, Client, Replies, Value};
use crate::engine::interpret::refusal_to_error;
use crate::engine::operation::{
    Calculate, Delete, Get, GetAndTouch, Inspect, Store, Touch, Touched,
};
use crate::engine::{RefusedValueSteps, Steps};
use crate::error::Error;
use crate::key::WireKeys;
use crate::near::{ClientNearCache, FetchedItems, NearRead, NearStep, NearValue, only_value};
use crate::pipeline::{MetaReply, Pipeline};
use crate::pool::Server;
use crate::request::{Item, Request};
use crate::write_outcome::WriteOutcome;

macro_rules! methods {
    ($client:ident, ($($async:tt)?), ($($await:tt)*)) => {
        impl $client {
            /// Makes a call of several requests, one after the other.
            pub $($async)? fn run_steps<S: Steps>(&self, mut steps: S, budget: &Budget<'_>) -> S::Output {
                let _recorded_call = budget.begin_write();
                let step_budget = budget.for_next_request();
                while let Some(step) = steps.step() {
                    budget.note_write(&step, self.core().keys());
                    let result = self.run(&step, &step_budget)$($await)*;
                    steps.handle_result(result);
                }
                steps.finish()
            }

            /// The value under a key, or `None`.
            pub $($async)? fn get(
                &self,
                key: WireKey<'_>,
                cas: bool,
                budget: &Budget<'_>,
            ) -> Result<Option<Value>, Error> {
                if let Some(near) = self.core().near().filter(|_| !cas) {
                    let near_and_keys = (near.clone(), &[key][..]);
                    let value = only_value(self.read_near(near_and_keys, budget)$($await)*?)?;
                    return Ok(value.map(Value::from));
                }
                self.run(&Get { key, cas }, budget)$($await)*
            }

            /// The values of keys under the strategy: those that the process keeps, and the others by one call; with
            /// the keys that could not be read. Without keys it fetches what the request's page needs.
            pub $($async)? fn read_near(
                &self,
                (near, keys): (Arc<ClientNearCache>, &[WireKey<'_>]),
                budget: &Budget<'_>,
            ) -> Result<(Vec<Option<NearValue>>, Failures), Error> {
                let core = self.core();
                let recorded_call = budget.begin_read(keys.iter().map(|&key| core.keys().decode(key)));
                let mut read = NearRead::new(near, keys, budget.scope.cloned());
                if let Some(step) = read.step(budget.started) {
                    self.finish_near(&mut read, step, budget)$($await)*?;
                }
                core.count_near_hits(&read);
                let (values, failures) = read.finish();
                for (index, value) in values.iter().enumerate() {
                    recorded_call.set_size(index, value.as_ref().map_or(0, |value| value.bytes.len()));
                }
                Ok((values, failures))
            }

            /// Does the steps of a read under the strategy, from this one on.
            pub $($async)? fn finish_near(
                &self,
                read: &mut NearRead,
                first_step: NearStep,
                budget: &Budget<'_>,
            ) -> Result<(), Error> {
                let core = self.core();
                let mut next_step = Some(first_step);
                while let Some(step) = next_step {
                    let NearStep::Fetch(fetch) = step else {
                        self.wait_for_other_read(read, budget)$($await)*?;
                        next_step = read.step(Instant::now());
                        continue;
                    };
                    let wire_keys = fetch.keys();
                    let bulk_read = BulkReadWithTtls::new(core, &wire_keys);
                    let entries_by_partition = bulk_read.entries_by_partition(&wire_keys);
                    let mut fetched = FetchedItems::with_capacity(wire_keys.len());
                    let mut decoding_time = Duration::ZERO;
                    let fetch_budget = budget.for_fetch(&fetch);
                    let requests = bulk_read.requests(&entries_by_partition);
                    let results = self.request_many(&requests, &fetch_budget, &mut |reply| {
                        let began_at = Instant::now();
                        bulk_read.add_reply(reply, &mut fetched)?;
                        decoding_time += began_at.elapsed();
                        Ok(())
                    })$($await)*?;
                    core.count_fetch(&wire_keys, &fetched, &fetch_budget, decoding_time);
                    let now = Instant::now();
                    read.finish_fetch(&fetch, fetched, bulk_read.failures_without_reply(&results), now);
                    next_step = read.step(now);
                }
                Ok(())
            }

            /// The value under a key, which then expires at `exptime`.
            pub $($async)? fn get_and_touch(
                &self,
                key: WireKey<'_>,
                exptime: i64,
                budget: &Budget<'_>,
            ) -> Result<Option<Value>, Error> {
                self.run(&GetAndTouch { key, exptime }, budget)$($await)*
            }

            /// The value under a key and what the server knows of it.
            pub $($async)? fn inspect(
                &self,
                key: WireKey<'_>,
                budget: &Budget<'_>,
            ) -> Result<Option<(Value, MetaReply)>, Error> {
                self.run(&Inspect { key }, budget)$($await)*
            }

            /// Stores a value; without waiting for the outcome if `noreply` and it has less than
            /// [`QUIET_BYTES_MAX`](crate::QUIET_BYTES_MAX).
            pub $($async)? fn store(
                &self,
                mode: StoreMode,
                item: Item<'_>,
                exptime: i64,
                noreply: bool,
                budget: &Budget<'_>,
            ) -> Result<WriteOutcome, Error> {
                let _recorded_call = budget.begin_write();
                let copied_budget;
                let unrecorded_budget = if budget.record.is_some() {
                    copied_budget = Budget { record: None, ..*budget };
                    &copied_budget
                } else {
                    budget
                };
                let store = Store::new(mode, item, exptime, noreply);
                budget.note_write(&store, self.core().keys());
                let store_result = match store.refusal(self.core().options().value_bytes_max) {
                    Some(error) => Err(error),
                    None => self.run(&store, unrecorded_budget)$($await)*,
                };
                match store_result {
                    Err(error @ Error::TooLarge { .. }) => {
                        Err(self.run_steps(RefusedValueSteps::new(item.key, error), unrecorded_budget)$($await)*)
                    }
                    store_result => store_result,
                }
            }

            /// Removes a key; whether it was there.
            pub $($async)? fn delete(
                &self,
                key: WireKey<'_>,
                noreply: bool,
                budget: &Budget<'_>,
            ) -> Result<bool, Error> {
                self.run(&Delete { key, noreply }, budget)$($await)*
            }

            /// Gives a key a new expiry; whether it was there. The pieces of a value in pieces keep theirs.
            pub $($async)? fn touch(
                &self,
                key: WireKey<'_>,
                exptime: i64,
                noreply: bool,
                budget: &Budget<'_>,
            ) -> Result<bool, Error> {
                let touch = Touch { key, exptime, noreply };
                Ok(self.run(&touch, budget)$($await)*? != Touched::Missing)
            }

            /// Adds to or subtracts from a number; `None` if there is none, or if it is quiet.
            ///
            /// A [`Counter`](crate::engine::Counter) given to [`Self::run_steps`] makes a number where there is none.
            pub $($async)? fn arithmetic(
                &self,
                key: WireKey<'_>,
                arithmetic: Arithmetic,
                noreply: bool,
                budget: &Budget<'_>,
            ) -> Result<Option<u64>, Error> {
                self.run(&Calculate { key, arithmetic, noreply }, budget)$($await)*
            }

            /// Reads many plain keys, without their namespace: index of the key, client flags, bytes.
            pub $($async)? fn get_many(
                &self,
                keys: &[&[u8]],
                budget: &Budget<'_>,
            ) -> Result<(Vec<IndexedValue>, Failures), Error> {
                let core = self.core();
                if let Some(near) = core.near() {
                    let mut wire_keys = WireKeys::default();
                    keys.iter().try_for_each(|key| wire_keys.push(core.keys(), key))?;
                    let near_and_keys = (near.clone(), &wire_keys.all()[..]);
                    let (values, failures) = self.read_near(near_and_keys, budget)$($await)*?;
                    return Ok((found_values_with_index(values), failures));
                }
                let recorded_call = budget.begin_read(keys.iter().map(|key| Cow::Borrowed(*key)));
                let bulk_read = BulkRead::new(core, keys, false)?;
                let entries_by_partition = bulk_read.entries_by_partition(keys);
                let requests = bulk_read.requests(&entries_by_partition);
                let (mut values, mut totals) = (Vec::new(), ReadTotals::default());
                let results = self.request_many(&requests, budget, &mut |reply| {
                    bulk_read.add_reply(reply, &mut totals, |index, found, body| {
                        recorded_call.set_size(index, body.len());
                        values.push((index, found.flags, body.to_vec()));
                    })
                })$($await)*?;
                core.count_bulk(keys.len(), totals.value_bytes, budget, totals.decoding_time);
                Ok((values, bulk_read.failures_without_reply(&results)))
            }

            /// Stores many values at all their servers at once, with a failure for each that was not stored.
            pub $($async)? fn store_many(
                &self,
                mode: StoreMode,
                items: &[Item<'_>],
                exptime: i64,
                budget: &Budget<'_>,
            ) -> Result<Failures, Error> {
                let _recorded_call = budget.begin_write();
                let noted_request = Request::StoreMany { mode, items, exptime, quiet: false };
                budget.note_write_request(&noted_request, self.core().keys());
                let bulk_store = BulkStore::new(self.core(), mode, items, exptime);
                let entries_by_partition = bulk_store.entries_by_partition(items);
                let mut store_failures = StoreFailures::default();
                let results = self.request_many(&bulk_store.requests(&entries_by_partition), budget, &mut |reply| {
                    bulk_store.add_reply(reply, &items, &mut store_failures);
                    Ok(())
                })$($await)*?;
                let remaining_steps = bulk_store.remaining_steps(items, &results, store_failures);
                let failures = self.run_steps(remaining_steps, &budget.for_next_request())$($await)*?;
                self.core().count_bulk(items.len(), bulk_store.bytes(), budget, Duration::ZERO);
                Ok(failures)
            }

            /// Removes many keys from all their servers at once; those that were not there are no failures.
            pub $($async)? fn delete_many(
                &self,
                keys: &[WireKey<'_>],
                budget: &Budget<'_>,
            ) -> Result<Failures, Error> {
                let _recorded_call = budget.begin_write();
                let bulk_delete = BulkDelete::new(self.core(), keys);
                let (entries_by_partition, mut failures) = (bulk_delete.entries_by_partition(keys), Vec::new());
                let results = self.request_many(&bulk_delete.requests(&entries_by_partition), budget, &mut |reply| {
                    failures.extend(bulk_delete.failure(reply));
                    Ok(())
                })$($await)*?;
                failures.extend(bulk_delete.failures_without_reply(&results));
                self.core().count_bulk(keys.len(), 0, budget, Duration::ZERO);
                Ok(failures)
            }

            /// Sends the same request to every server, one after the other, and returns each one's name and reply.
            ///
            /// An error is [`Error::Interrupted`], or one of the client or the request: any other is the result of its
            /// server.
            pub $($async)? fn request_all(
                &self,
                request: Request<'_>,
                budget: &Budget<'_>,
            ) -> Result<Replies, Error> {
                self.core().check_open()?;
                request.check()?;
                let (requests, mut replies) = ([request], Vec::new());
                for (_, server) in self.core().servers() {
                    let name = server.name.clone();
                    let mut reply_result = Err(Error::Closed);
                    let mut handle_reply = |reply, _: &Pipeline, replying_server: &Arc<Server>| {
                        reply_result = refusal_to_error(reply, &replying_server.name);
                        Ok(())
                    };
                    match self.request_server(server, &requests, budget, &mut handle_reply)$($await)* {
                        Err(Error::Interrupted) => return Err(Error::Interrupted),
                        result => replies.push((name, result.and(reply_result))),
                    }
                }
                Ok(replies)
            }

            /// Removes every item of the namespace from every server, at once; returns each one's name and reply.
            ///
            /// The servers must be glasscache's: others refuse it. A client without a namespace gets
            /// [`Error::BadSetting`].
            pub $($async)? fn clear(&self, budget: &Budget<'_>) -> Result<Replies, Error> {
                let mut scratch = Vec::new();
                let prefix = self.core().keys().wire_namespace(&mut scratch)?;
                self.request_all(Request::FlushPrefix { prefix }, budget)$($await)*
            }

            /// Closes the idle connections, after quiet writes were sent and acknowledged; later calls fail.
            pub $($async)? fn close(&self) {
                let core = self.core();
                let budget = Budget::new(core.options().timeout);
                for server in core.present_and_past_servers() {
                    // One round trip makes sure that quiet writes have arrived.
                    if server.has_unacknowledged_writes() {
                        let requests = [Request::Version];
                        let mut handle_reply = |_, _: &Pipeline, _: &Arc<Server>| Ok(());
                        let result = self.request_server(server, &requests, &budget, &mut handle_reply)$($await)*;
                        let _ = result; // closing has no caller to report to
                    }
                }
                core.abandon();
            }
        }
    };
}

methods!(Client, (), ());
#[cfg(feature = "tokio")]
methods!(AsyncClient, (async), (.await));
