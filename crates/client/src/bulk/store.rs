//! Bulk writes: quiet sets closed by one `mn`, so that a batch is one round trip and each failure
//! has its key; from what knows no meta, one reply a value.

use std::collections::VecDeque;

use glasscache_protocol::text::request::StoreWord;

use super::Failures;
use super::asking::{Ask, Ended, Reply, ask_of};
use super::parts::{Part, parted};
use crate::client::Client;
use crate::engine::operation::{Store, stored};
use crate::engine::{Indices, StoredMany};
use crate::error::Error;
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
    failures: VecDeque<(Indices, Error)>,
    /// Asks of which a value was refused without its name.
    unnamed: Vec<usize>,
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
            if let Some(&index) = part.indices.get(nth) {
                judged.failures.push_back(((index, part.place), error));
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
            answer => {
                let Some(item) = part.things.get(reply.nth) else {
                    return;
                };
                match stored(answer, item.key, item.body.len(), server) {
                    Ok(Outcome::Done) => {}
                    Ok(outcome) => fail(reply.nth, not_stored(outcome)),
                    Err(error) => fail(reply.nth, error),
                }
            }
        }
    }

    /// What is still to be done once every batch was answered.
    pub(crate) fn rest<'s>(
        &'s self,
        items: &'s [Item<'s>],
        ended: &[Ended],
        judged: Judged,
    ) -> StoredMany<'s> {
        let parts = judged.unnamed.iter().filter_map(|&ask| self.parts.get(ask));
        let again = parts.flat_map(|part| {
            let stores = part.indices.iter().zip(&part.things);
            stores.map(|(&index, &item)| {
                let store = store_of(self.word, item, self.exptime);
                ((index, part.place), store)
            })
        });
        let mut failed = judged.failures;
        // Their limit is this client's own: no server is asked for it.
        let refused = self.refused.iter().cloned();
        failed.extend(refused.map(|(index, error)| ((index, 0), error)));
        for (part, end) in self.parts.iter().zip(ended) {
            let unanswered = end.unanswered(&part.indices);
            failed.extend(unanswered.map(|(index, error)| ((index, part.place), error)));
        }
        StoredMany::new(items, again.collect(), failed)
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
