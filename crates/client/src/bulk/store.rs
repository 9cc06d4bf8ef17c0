//! Bulk writes: quiet sets closed by one `mn`, so that a batch is one round trip and each failure
//! has its key; from what knows no meta, one reply a value.

use std::collections::BTreeSet;
use std::time::Duration;

use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::StoreWord;

use super::Failures;
use super::asking::{Ask, Ended, Reply, ask_of, wait_for_all};
use super::parts::{Part, parted};
use crate::client::{Budget, Client};
use crate::error::Error;
use crate::judging::outcome;
use crate::operation::{Store, told_too_large};
use crate::outcome::{Outcome, of_code};
use crate::pipeline::Answer;
use crate::request::{Item, Request};

/// Bytes of values that go to one server in one batch; the rest follows when it was answered.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A bulk write, parted by server.
pub(crate) struct Stores<'i> {
    parts: Vec<Part<Item<'i>>>,
    word: StoreWord,
    exptime: i64,
    /// Values that are not sent at all, for they are longer than this client sends.
    refused: Failures,
    bytes: u64,
}

/// What replies have told so far.
#[derive(Default)]
pub(crate) struct Judged {
    /// By the place of the key in the call.
    pub(crate) failures: Failures,
    /// Asks of which a value was refused without its name.
    unnamed: Vec<usize>,
}

impl Judged {
    /// The servers that refused values for their length, in words that do not say how long they may be.
    pub(crate) fn places_without_limit(
        &self,
        client: &Client,
        items: &[Item<'_>],
    ) -> BTreeSet<usize> {
        let refused = self.failures.iter().filter(|(_, error)| lacks_limit(error));
        let keys = refused.filter_map(|(index, _)| Some(items.get(*index)?.key.bytes));
        keys.map(|key| client.place_of(key)).collect()
    }

    /// Adds the limit of one server to those refusals.
    pub(crate) fn tell_limit(
        &mut self,
        client: &Client,
        items: &[Item<'_>],
        place: usize,
        bytes_max: u64,
    ) {
        for (index, error) in &mut self.failures {
            let item = items.get(*index);
            if lacks_limit(error)
                && item.is_some_and(|item| client.place_of(item.key.bytes) == place)
                && let Error::TooLarge { limit, .. } = error
            {
                *limit = bytes_max;
            }
        }
    }
}

fn lacks_limit(error: &Error) -> bool {
    matches!(error, Error::TooLarge { limit: 0, .. })
}

impl<'i> Stores<'i> {
    pub(crate) fn new(client: &Client, word: StoreWord, items: &[Item<'i>], exptime: i64) -> Self {
        let limit = client.options().value_bytes_max;
        let refusal = |item: &Item<'_>| store_of(word, *item, exptime).refusal(limit);
        let indexed = items.iter().copied().enumerate();
        let refused = indexed
            .clone()
            .filter_map(|(index, item)| Some((index, refusal(&item)?)))
            .collect();
        let sent = indexed.filter(|(_, item)| item.body.len() as u64 <= limit);
        let place_of = |item: &Item<'_>| client.place_of(item.key.bytes);
        Self {
            parts: parted(sent, place_of, |item| item.body.len(), BATCH_BYTES_MAX),
            word,
            exptime,
            refused,
            bytes: items.iter().map(|item| item.body.len() as u64).sum(),
        }
    }

    /// The keys of the values that are not sent.
    pub(crate) fn refused_keys(&self, items: &[Item<'i>]) -> Vec<WireKey<'i>> {
        let refused = self.refused.iter();
        refused
            .filter_map(|(index, _)| items.get(*index).map(|item| item.key))
            .collect()
    }

    /// All failures, in the order of the call.
    pub(crate) fn conclude(self, judged: Judged) -> Failures {
        let mut failures = judged.failures;
        failures.extend(self.refused);
        failures.sort_by_key(|(index, _)| *index);
        failures
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn asks(&self) -> Vec<Ask<'_>> {
        let (word, exptime) = (self.word, self.exptime);
        let parts = self
            .parts
            .iter()
            .map(|part| (part.place, part.things.as_slice()));
        parts
            .map(|(place, items)| {
                let request = Request::StoreMany {
                    word,
                    items,
                    exptime,
                    quiet: true,
                };
                ask_of(place, request)
            })
            .collect()
    }

    /// Notes what a reply tells: one for all from a server with quiet sets, else one a value.
    pub(crate) fn judge(&self, reply: Reply<'_>, judged: &mut Judged) {
        let Some(part) = self.parts.get(reply.ask) else {
            return;
        };
        let mut fail = |nth: usize, error: Error| {
            if let (Some(&index), Some(item)) = (part.indices.get(nth), part.things.get(nth)) {
                judged.failures.push((index, told_too_large(error, item)));
            }
        };
        let server = reply.server;
        let not_stored = |outcome| Error::NotStored {
            server: server.to_owned(),
            outcome,
        };
        match reply.answer {
            Answer::Quiet(troubles, refusals) => {
                for (nth, code) in troubles {
                    fail(nth, not_stored(of_code(code).unwrap_or(Outcome::NotStored)));
                }
                if !refusals.is_empty() {
                    judged.unnamed.push(reply.ask);
                }
            }
            answer => match outcome(answer, server) {
                Ok(Outcome::Done) => {}
                Ok(outcome) => fail(reply.nth, not_stored(outcome)),
                Err(error) => fail(reply.nth, error),
            },
        }
    }

    /// The values that got no answer are failures too.
    pub(crate) fn note_unanswered(&self, ended: &[Ended], judged: &mut Judged) {
        for (part, end) in self.parts.iter().zip(ended) {
            judged.failures.extend(end.unanswered(&part.indices));
        }
    }

    /// The values to be stored again, now with an answer of their own, for one beside them was
    /// refused without its name.
    pub(crate) fn again(&self, judged: &Judged) -> Vec<(usize, Store<'i>)> {
        let parts = judged.unnamed.iter().filter_map(|&ask| self.parts.get(ask));
        let indexed = parts.flat_map(|part| part.indices.iter().zip(&part.things));
        indexed
            .map(|(&index, &item)| (index, store_of(self.word, item, self.exptime)))
            .collect()
    }
}

fn store_of(word: StoreWord, item: Item<'_>, exptime: i64) -> Store<'_> {
    Store {
        word,
        item,
        exptime,
        noreply: false,
    }
}

impl Client {
    /// Stores many values at all their servers at once, each answered for itself only if it fails.
    pub fn store_many(
        &self,
        word: StoreWord,
        items: &[Item<'_>],
        exptime: i64,
        budget: &Budget<'_>,
    ) -> Result<Failures, Error> {
        let stores = Stores::new(self, word, items, exptime);
        for key in stores.refused_keys(items) {
            self.delete(key, false, budget)?; // no older value is read in its place
        }
        let mut judged = Judged::default();
        let ended = self.ask_many(
            &stores.asks(),
            budget,
            &mut |calls| wait_for_all(calls, budget),
            &mut |reply| {
                stores.judge(reply, &mut judged);
                Ok(())
            },
        )?;
        stores.note_unanswered(&ended, &mut judged);
        for (index, store) in stores.again(&judged) {
            match self.run(&store, budget) {
                Ok(_) => {}
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => judged.failures.push((index, error)),
            }
        }
        for place in judged.places_without_limit(self, items) {
            let limit = self.item_bytes_max(place, budget)?;
            judged.tell_limit(self, items, place, limit);
        }
        self.count_bulk(items.len(), stores.bytes(), budget, Duration::ZERO);
        Ok(stores.conclude(judged))
    }
}
