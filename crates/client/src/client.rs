//! The client: servers on a ring, a call per request, and what their answers mean.
//!
//! After a fork the child must not share a socket with its parent: each call looks whether this is
//! still the process that made the connections, and a child begins anew with none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::request::StoreWord;

use crate::address::Address;
use crate::call::{Call, State};
use crate::costs::{Costs, Operation, Part, Spent};
use crate::error::Error;
use crate::fork;
use crate::key::KeyMaker;
use crate::members::{self, Members};
use crate::options::Options;
use crate::outcome::{Outcome, number, outcome, refused};
use crate::pipeline::{Answer, MetaAnswer, Pipeline};
use crate::pool::Server;
use crate::request::{Item, Request};
use crate::ring::Placement;

/// How long a call may take, and whom to ask when a signal comes.
#[derive(Clone, Copy)]
pub struct Budget<'g> {
    /// When its time began to run.
    pub started: Instant,
    /// When it is over.
    pub deadline: Instant,
    /// Whether to go on after a signal.
    pub go_on: &'g (dyn Fn() -> bool + Sync),
    /// What was spent on the value before, to be counted with the call.
    pub spent: Spent,
}

impl Budget<'_> {
    /// From now on for `timeout`, whatever signals come.
    pub fn new(timeout: Duration) -> Self {
        let started = Instant::now();
        Self {
            started,
            deadline: started + timeout,
            go_on: &|| true,
            spent: Spent::default(),
        }
    }
}

/// A value read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its client flags.
    pub flags: u32,
    /// Its CAS unique; 0 if not asked for.
    pub cas: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A client of one or more servers; shared by threads, and good again after a fork.
#[derive(Debug)]
pub struct Client {
    placement: Placement,
    options: Arc<Options>,
    here: ArcSwap<Members>,
    costs: Costs,
    is_closed: AtomicBool,
}

impl Client {
    /// A client of these servers; connects to none yet.
    pub fn new(
        addresses: &[Address],
        placement: Placement,
        options: Options,
    ) -> Result<Self, Error> {
        let options = Arc::new(options);
        let members = Members::new(addresses, placement, &options)?;
        Ok(Self {
            placement,
            options,
            here: ArcSwap::from_pointee(members),
            costs: Costs::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Its settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What its calls have cost.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Makes wire keys by this client's settings.
    pub fn keys(&self) -> KeyMaker<'_> {
        KeyMaker {
            namespace: &self.options.namespace,
            rule: self.options.keys,
        }
    }

    /// Changes the servers at once for all calls to come; a call in flight ends where it began.
    ///
    /// Connections to servers that stay are kept, idle ones to those that leave are closed.
    pub fn set_servers(&self, addresses: &[Address]) -> Result<(), Error> {
        let ring = members::ring_of(addresses, self.placement)?;
        drop(self.here()); // a child's own, so that the one to be changed is no parent's
        self.here
            .rcu(|members| members.changed(addresses, &ring, &self.options));
        // Whoever changes them last tells them last: else a present server may think that it left.
        loop {
            let members = self.here.load_full();
            members.tell_servers();
            if Arc::ptr_eq(&members, &self.here.load()) {
                return Ok(());
            }
        }
    }

    /// The place of a key's server; the key with its namespace, before base64.
    pub fn place_of(&self, key: &[u8]) -> usize {
        self.here().place_of(key)
    }

    /// The one place there is, if there is one server.
    pub fn only_place(&self) -> Option<usize> {
        self.here().only_place()
    }

    /// The present servers and their places, in the order given.
    pub fn servers(&self) -> Vec<(usize, Arc<Server>)> {
        let members = self.here();
        members
            .present()
            .map(|(place, server)| (place, server.clone()))
            .collect()
    }

    /// How many places there are: one for each server that there has been.
    pub fn places_count(&self) -> usize {
        self.here().servers.len()
    }

    /// The server at a place.
    pub fn server(&self, place: usize) -> Result<Arc<Server>, Error> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let state = self.here();
        state.servers.get(place).cloned().ok_or(Error::Closed)
    }

    /// The state of this process: a child's own if it was made by a fork.
    fn here(&self) -> arc_swap::Guard<Arc<Members>> {
        let state = self.here.load();
        if state.generation == fork::generation() {
            return state;
        }
        for server in &state.servers {
            server.abandon();
        }
        // A lock in it may be held by a thread that does not exist here: it is never dropped.
        std::mem::forget(Arc::clone(&state));
        self.here.store(Arc::new(state.of_child(&self.options)));
        self.here.load()
    }

    /// Closes the idle connections, after their quiet writes were answered; later calls fail.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        for server in &self.here().servers {
            let budget = Budget::new(self.options.timeout);
            // One round trip makes sure that what was sent without waiting has arrived.
            if server.has_unanswered() {
                let request = [Request::Version];
                let mut call = Call::new(server.clone(), &request, budget.started, budget.deadline);
                let _ = drive(&mut call, &budget, &mut |_, _| Ok(())); // closing has no one to tell
            }
            drop(server.take_idle());
        }
    }

    /// Makes requests to one server and hands over each reply in order; counts nothing.
    pub fn ask(
        &self,
        place: usize,
        requests: &[Request<'_>],
        budget: &Budget<'_>,
        each: &mut dyn FnMut(Answer, &Pipeline) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut call = Call::new(
            self.server(place)?,
            requests,
            budget.started,
            budget.deadline,
        );
        drive(&mut call, budget, each)
    }

    /// One request about one key: its answer as `read` understands it, its cost counted.
    fn one<R>(
        &self,
        request: Request<'_>,
        key: WireKey<'_>,
        what: (Operation, usize),
        budget: &Budget<'_>,
        mut read: impl FnMut(Answer, &Pipeline, &str) -> Result<R, Error>,
    ) -> Result<Option<R>, Error> {
        let server = self.server(self.place_of(key.bytes))?;
        let requests = [request];
        let mut call = Call::new(server.clone(), &requests, budget.started, budget.deadline);
        let mut result = None;
        let mut bytes = what.1;
        drive(&mut call, budget, &mut |answer, pipeline| {
            bytes += pipeline
                .found()
                .iter()
                .map(|found| found.value_bytes)
                .sum::<usize>();
            result = Some(read(answer, pipeline, &server.name));
            Ok(())
        })?;
        self.count(what.0, bytes, &call, budget.spent);
        result.transpose()
    }

    /// Counts a finished call that was about one value, with what else was `spent` on it.
    pub fn count(
        &self,
        operation: Operation,
        value_bytes: usize,
        call: &Call<'_>,
        mut spent: Spent,
    ) {
        if self.options.costs {
            spent.add_time(Part::Wait, call.waited());
            spent.add_time(Part::Wire, call.wire_time());
            self.costs.count(operation, value_bytes as u64, &spent);
        }
    }

    /// The value under a key, or `None`.
    pub fn get(
        &self,
        key: WireKey<'_>,
        cas: bool,
        budget: &Budget<'_>,
    ) -> Result<Option<Value>, Error> {
        let read = |answer, pipeline: &Pipeline, server: &str| one_value(answer, pipeline, server);
        Ok(self
            .one(
                Request::Get { key, cas },
                key,
                (Operation::Read, 0),
                budget,
                read,
            )?
            .flatten()
            .map(|(value, _)| value))
    }

    /// The value under a key, which then expires at `exptime`.
    pub fn get_and_touch(
        &self,
        key: WireKey<'_>,
        exptime: i64,
        budget: &Budget<'_>,
    ) -> Result<Option<Value>, Error> {
        let request = Request::GetAndTouch { key, exptime };
        Ok(self
            .one(request, key, (Operation::Read, 0), budget, one_value)?
            .flatten()
            .map(|(value, _)| value))
    }

    /// The value under a key and what the server knows of it.
    pub fn inspect(
        &self,
        key: WireKey<'_>,
        budget: &Budget<'_>,
    ) -> Result<Option<(Value, MetaAnswer)>, Error> {
        let found = self.one(
            Request::Inspect { key },
            key,
            (Operation::Read, 0),
            budget,
            one_value,
        )?;
        Ok(found
            .flatten()
            .and_then(|(value, meta)| Some((value, meta?))))
    }

    /// Stores a value; without waiting for the outcome if `noreply`.
    pub fn store(
        &self,
        word: StoreWord,
        item: Item<'_>,
        exptime: i64,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<Outcome, Error> {
        let limit = self.options.value_bytes_max;
        let bytes = item.body.len();
        if bytes as u64 > limit {
            // What is refused must not leave an older value to be read in its place.
            self.delete(item.key, false, budget)?;
            return Err(Error::TooLarge {
                key: shown(item.key),
                bytes,
                limit,
            });
        }
        let request = Request::Store {
            word,
            item,
            exptime,
            noreply,
        };
        let read = |answer, _: &Pipeline, server: &str| {
            outcome(answer, server).map_err(|error| too_large(error, item.key, bytes))
        };
        let done = self.one(request, item.key, (Operation::Write, bytes), budget, read)?;
        Ok(done.unwrap_or(Outcome::Done))
    }

    /// Removes a key; whether it was there.
    pub fn delete(
        &self,
        key: WireKey<'_>,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<bool, Error> {
        let request = Request::Delete { key, noreply };
        let read = |answer, _: &Pipeline, server: &str| outcome(answer, server);
        let done = self.one(request, key, (Operation::Other, 0), budget, read)?;
        Ok(done.is_none_or(|outcome| outcome == Outcome::Done))
    }

    /// Gives a key a new expiry; whether it was there.
    pub fn touch(
        &self,
        key: WireKey<'_>,
        exptime: i64,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<bool, Error> {
        let request = Request::Touch {
            key,
            exptime,
            noreply,
        };
        let read = |answer, _: &Pipeline, server: &str| outcome(answer, server);
        let done = self.one(request, key, (Operation::Other, 0), budget, read)?;
        Ok(done.is_none_or(|outcome| outcome == Outcome::Done))
    }

    /// Adds to or subtracts from a number; `None` if there is none, or if nobody waits.
    pub fn arithmetic(
        &self,
        key: WireKey<'_>,
        by: Arithmetic,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<Option<u64>, Error> {
        let request = Request::Arithmetic { key, by, noreply };
        Ok(self
            .one(request, key, (Operation::Other, 0), budget, number)?
            .flatten())
    }

    /// Asks every server the same, and returns each one's name and answer.
    pub fn ask_all(
        &self,
        request: Request<'_>,
        budget: &Budget<'_>,
    ) -> Vec<(String, Result<Answer, Error>)> {
        let requests = [request];
        let ask = |(place, server): (usize, Arc<Server>)| {
            let mut answer = Err(Error::Closed);
            let asked = self.ask(place, &requests, budget, &mut |reply, _| {
                answer = refused(reply, &server.name);
                Ok(())
            });
            (server.name.clone(), asked.and(answer))
        };
        self.servers().into_iter().map(ask).collect()
    }
}

/// Drives a call to its end.
pub(crate) fn drive(
    call: &mut Call<'_>,
    budget: &Budget<'_>,
    each: &mut dyn FnMut(Answer, &Pipeline) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        match call.run()? {
            State::Reply(answer) => {
                each(answer, call.pipeline().ok_or(Error::Closed)?)?;
                call.next();
            }
            State::Finished => return Ok(()),
            State::Interrupted if (budget.go_on)() => {}
            State::Interrupted => return Err(Error::Interrupted),
            State::Body(_) | State::Waiting => {} // neither is given to a call driven alone like this
        }
    }
}

fn one_value(
    answer: Answer,
    pipeline: &Pipeline,
    server: &str,
) -> Result<Option<(Value, Option<MetaAnswer>)>, Error> {
    let meta = match refused(answer, server)? {
        Answer::Meta(meta) => Some(meta),
        _ => None,
    };
    let found = pipeline.found().first();
    Ok(found.map(|found| {
        let bytes = pipeline.body(found).to_vec();
        (
            Value {
                flags: found.flags,
                cas: found.cas,
                bytes,
            },
            meta,
        )
    }))
}

/// A refusal for its length, told as what it is.
fn too_large(error: Error, key: WireKey<'_>, bytes: usize) -> Error {
    match error {
        Error::Refused { refusal, .. } if refusal.message.contains("too large") => {
            Error::TooLarge {
                key: shown(key),
                bytes,
                limit: 0,
            }
        }
        error => error,
    }
}

pub(crate) fn shown(key: WireKey<'_>) -> String {
    String::from_utf8_lossy(key.bytes).into_owned()
}
