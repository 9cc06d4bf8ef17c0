//! Calls about many keys: parted by server, all servers at once, each key's failure told.

use std::time::Instant;

use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::StoreWord;

use crate::call::{Call, receive_all};
use crate::client::{Budget, Client, drive, shown};
use crate::costs::{Part, Spent};
use crate::error::Error;
use crate::outcome::{Outcome, of_code, outcome, refused};
use crate::pipeline::{Answer, Found, Pipeline};
use crate::request::{Item, Request};

/// Bytes of values that go to one server in one batch; the rest follows when it was answered.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Keys in one `get` line: memcached's own limit of a line is far above, a proxy's may not be.
const LINE_KEYS_MAX: usize = 10_000;

/// What a bulk write did not do: the place of the key in the call, and why.
pub type Failures = Vec<(usize, Error)>;

/// A value of a bulk read: the place of its key in the call, its client flags, its bytes.
pub type Indexed = (usize, u32, Vec<u8>);

/// The part of a bulk call that goes to one server.
struct Share {
    place: usize,
    /// Places of its keys in the call.
    indices: Vec<usize>,
}

impl Client {
    /// Parts keys by server; with one server in one go.
    fn shares<'k>(&self, count: usize, key: impl Fn(usize) -> &'k [u8]) -> Vec<Share> {
        if let Some(place) = self.only_place() {
            return vec![Share {
                place,
                indices: (0..count).collect(),
            }];
        }
        let mut shares: Vec<Share> = Vec::new();
        let namespace = self.keys().namespace;
        let mut joined = namespace.to_vec();
        for index in 0..count {
            joined.truncate(namespace.len());
            joined.extend_from_slice(key(index));
            let place = self.place_of(&joined);
            match shares.iter_mut().find(|share| share.place == place) {
                Some(share) => share.indices.push(index),
                None => shares.push(Share {
                    place,
                    indices: vec![index],
                }),
            }
        }
        shares
    }

    /// Reads many plain keys, without their namespace, from all their servers at once.
    ///
    /// `receive` drives the calls with [`receive_all`], as it likes to wait; `read` then gets each
    /// value with the place of its key, its CAS unique only if `cas`. Returns the keys that got no answer, and why.
    pub fn read_many(
        &self,
        keys: &[&[u8]],
        cas: bool,
        budget: &Budget<'_>,
        mut receive: impl FnMut(&mut [(Call<'_>, Option<Error>)]) -> Result<(), Error>,
        mut read: impl FnMut(usize, &Found, &[u8]) -> Result<(), Error>,
    ) -> Result<Failures, Error> {
        let shares = self.shares(keys.len(), |index| {
            keys.get(index).copied().unwrap_or_default()
        });
        let key_lists: Vec<(Share, Vec<&[u8]>)> = shares
            .into_iter()
            .flat_map(|share| {
                let place = share.place;
                let cut = |part: &[usize]| Share {
                    place,
                    indices: part.to_vec(),
                };
                share
                    .indices
                    .chunks(LINE_KEYS_MAX)
                    .map(cut)
                    .collect::<Vec<_>>()
            })
            .map(|share| {
                let of_share = share
                    .indices
                    .iter()
                    .filter_map(|&index| keys.get(index).copied());
                let of_share = of_share.collect();
                (share, of_share)
            })
            .collect();
        let prefix = self.keys().namespace;
        let requests: Vec<[Request<'_>; 1]> = key_lists
            .iter()
            .map(|(_, keys)| [Request::GetMany { prefix, keys, cas }])
            .collect();
        let mut calls = Vec::with_capacity(requests.len());
        for ((share, _), request) in key_lists.iter().zip(&requests) {
            let server = self.server(share.place)?;
            calls.push((
                Call::new(server, request, budget.started, budget.deadline),
                None,
            ));
        }
        receive(&mut calls)?;
        let mut failures = Vec::new();
        let mut bytes = 0;
        for ((call, error), (share, _)) in calls.iter_mut().zip(&key_lists) {
            let server = call.server().clone();
            let answer = match (error.take(), call.take_held()) {
                (Some(error), _) => Err(error),
                (None, Some(answer)) => refused(answer, &server.name),
                (None, None) => Err(Error::Closed),
            };
            match (answer, call.pipeline()) {
                (Ok(_), Some(pipeline)) => {
                    for found in pipeline.found() {
                        bytes += found.value_bytes as u64;
                        if let Some(&index) = share.indices.get(found.key_index) {
                            read(index, found, pipeline.body(found))?;
                        }
                    }
                    call.next();
                }
                (Ok(_), None) => {}
                (Err(error), _) => {
                    failures.extend(share.indices.iter().map(|&index| (index, error.clone())));
                }
            }
        }
        self.count_bulk(keys.len(), bytes, budget.started);
        Ok(failures)
    }

    /// Reads many plain keys: place of the key, client flags, bytes.
    pub fn get_many(
        &self,
        keys: &[&[u8]],
        budget: &Budget<'_>,
    ) -> Result<(Vec<Indexed>, Failures), Error> {
        let mut values = Vec::new();
        let receive = |calls: &mut [(Call<'_>, Option<Error>)]| wait_for_all(calls, budget);
        let failures = self.read_many(keys, false, budget, receive, |index, found, body| {
            values.push((index, found.flags, body.to_vec()));
            Ok(())
        })?;
        Ok((values, failures))
    }

    /// Stores many values, each answered for itself only if it fails.
    pub fn store_many(
        &self,
        word: StoreWord,
        items: &[Item<'_>],
        exptime: i64,
        budget: &Budget<'_>,
    ) -> Result<Failures, Error> {
        let limit = self.options().value_bytes_max;
        let mut failures = Vec::new();
        let mut batches: Vec<(usize, Vec<usize>)> = Vec::new();
        for share in self.wire_shares(items.len(), |index| items.get(index).map(|item| item.key)) {
            let mut batch = Vec::new();
            let mut batch_bytes = 0;
            for index in share.indices {
                let Some(item) = items.get(index) else {
                    continue;
                };
                let bytes = item.body.len();
                if bytes as u64 > limit {
                    self.delete(item.key, false, budget)?;
                    failures.push((
                        index,
                        Error::TooLarge {
                            key: shown(item.key),
                            bytes,
                            limit,
                        },
                    ));
                    continue;
                }
                if batch_bytes + bytes > BATCH_BYTES_MAX && !batch.is_empty() {
                    batches.push((share.place, std::mem::take(&mut batch)));
                    batch_bytes = 0;
                }
                batch_bytes += bytes;
                batch.push(index);
            }
            if !batch.is_empty() {
                batches.push((share.place, batch));
            }
        }
        // Each round takes one batch of each server, so that all servers work at once.
        while !batches.is_empty() {
            let mut round: Vec<(usize, Vec<usize>)> = Vec::new();
            let mut later = Vec::new();
            for batch in batches {
                let is_taken = round.iter().any(|(place, _)| *place == batch.0);
                if is_taken {
                    later.push(batch);
                } else {
                    round.push(batch);
                }
            }
            self.store_round(word, items, exptime, &round, budget, &mut failures)?;
            batches = later;
        }
        let bytes = items.iter().map(|item| item.body.len() as u64).sum();
        self.count_bulk(items.len(), bytes, budget.started);
        failures.sort_by_key(|(index, _)| *index);
        Ok(failures)
    }

    fn store_round(
        &self,
        word: StoreWord,
        items: &[Item<'_>],
        exptime: i64,
        round: &[(usize, Vec<usize>)],
        budget: &Budget<'_>,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        let of = |indices: &Vec<usize>| -> Vec<Item<'_>> {
            indices
                .iter()
                .filter_map(|&index| items.get(index).copied())
                .collect()
        };
        let batches: Vec<Vec<Item<'_>>> = round.iter().map(|(_, indices)| of(indices)).collect();
        let requests: Vec<[Request<'_>; 1]> = batches
            .iter()
            .map(|items| {
                [Request::StoreMany {
                    word,
                    items,
                    exptime,
                    quiet: true,
                }]
            })
            .collect();
        let mut calls = Vec::with_capacity(round.len());
        for ((place, _), request) in round.iter().zip(&requests) {
            let server = self.server(*place)?;
            calls.push((
                Call::new(server, request, budget.started, budget.deadline),
                None,
            ));
        }
        wait_for_all(&mut calls, budget)?;
        for ((mut call, error), (_, indices)) in calls.into_iter().zip(round) {
            let mut unnamed = false;
            let result = match error {
                Some(error) => Err(error),
                None => Self::read_store_answers(
                    &mut call,
                    indices,
                    items,
                    budget,
                    failures,
                    &mut unnamed,
                ),
            };
            if let Err(error) = result {
                failures.extend(indices.iter().map(|&index| (index, error.clone())));
            } else if unnamed {
                // A refusal that names no key: each is stored again, now with an answer of its own.
                for &index in indices {
                    let Some(&item) = items.get(index) else {
                        continue;
                    };
                    if let Err(error) = self.store(word, item, exptime, false, budget) {
                        failures.push((index, error));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the answers of one batch: one for all from a server with quiet sets, else one a value.
    fn read_store_answers(
        call: &mut Call<'_>,
        indices: &[usize],
        items: &[Item<'_>],
        budget: &Budget<'_>,
        failures: &mut Failures,
        unnamed: &mut bool,
    ) -> Result<(), Error> {
        let server = call.server().name.clone();
        let held = call.take_held();
        let mut answers = held.into_iter().collect::<Vec<_>>();
        if !answers.is_empty() {
            call.next();
        }
        drive(call, budget, &mut |answer, _| {
            answers.push(answer);
            Ok(())
        })?;
        for (nth, answer) in answers.into_iter().enumerate() {
            match answer {
                Answer::Quiet(troubles, refusals) => {
                    *unnamed |= !refusals.is_empty();
                    for (nth, code) in troubles {
                        let done = of_code(code).unwrap_or(Outcome::NotStored);
                        fail(failures, indices.get(nth), items, Ok(done), &server);
                    }
                }
                answer => fail(
                    failures,
                    indices.get(nth),
                    items,
                    outcome(answer, &server),
                    &server,
                ),
            }
        }
        Ok(())
    }

    /// Removes many keys; those that were not there are no failures.
    pub fn delete_many(
        &self,
        keys: &[WireKey<'_>],
        budget: &Budget<'_>,
    ) -> Result<Failures, Error> {
        let mut failures = Vec::new();
        for share in self.wire_shares(keys.len(), |index| keys.get(index).copied()) {
            let of_share: Vec<WireKey<'_>> = share
                .indices
                .iter()
                .filter_map(|&index| keys.get(index).copied())
                .collect();
            let server = self.server(share.place)?.name.clone();
            let mut nth = 0;
            let asked = self.ask(
                share.place,
                &[Request::DeleteMany { keys: &of_share }],
                budget,
                &mut |answer, _: &Pipeline| {
                    if let (Err(error), Some(&index)) =
                        (outcome(answer, &server), share.indices.get(nth))
                    {
                        failures.push((index, error));
                    }
                    nth += 1;
                    Ok(())
                },
            );
            if let Err(error) = asked {
                let rest = share.indices.iter().skip(nth);
                failures.extend(rest.map(|&index| (index, error.clone())));
            }
        }
        self.count_bulk(keys.len(), 0, budget.started);
        Ok(failures)
    }

    /// Parts wire keys, which have their namespace, by server.
    fn wire_shares<'k>(
        &self,
        count: usize,
        key: impl Fn(usize) -> Option<WireKey<'k>>,
    ) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        for index in 0..count {
            let place = key(index).map_or(0, |key| self.place_of(key.bytes));
            match shares.iter_mut().find(|share| share.place == place) {
                Some(share) => share.indices.push(index),
                None => shares.push(Share {
                    place,
                    indices: vec![index],
                }),
            }
        }
        shares
    }

    fn count_bulk(&self, keys: usize, bytes: u64, started: Instant) {
        if self.options().costs {
            let mut spent = Spent::default();
            spent.add_time(Part::Wire, started.elapsed());
            self.costs().count_bulk(keys, bytes, &spent);
        }
    }
}

fn fail(
    failures: &mut Failures,
    index: Option<&usize>,
    items: &[Item<'_>],
    done: Result<Outcome, Error>,
    server: &str,
) {
    let Some(&index) = index else { return };
    let error = match done {
        Ok(Outcome::Done) => return,
        Ok(outcome) => Error::NotStored {
            server: server.to_owned(),
            outcome,
        },
        Err(Error::Refused { refusal, .. }) if refusal.message.contains("too large") => {
            let item = items.get(index);
            let bytes = item.map_or(0, |item| item.body.len());
            Error::TooLarge {
                key: item.map(|item| shown(item.key)).unwrap_or_default(),
                bytes,
                limit: 0,
            }
        }
        Err(error) => error,
    };
    failures.push((index, error));
}

/// Waits for all calls, asking at each signal whether to go on.
pub fn wait_for_all(
    calls: &mut [(Call<'_>, Option<Error>)],
    budget: &Budget<'_>,
) -> Result<(), Error> {
    while !receive_all(calls) {
        if !(budget.go_on)() {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}
