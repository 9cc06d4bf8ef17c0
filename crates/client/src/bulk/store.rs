//! Bulk writes: quiet sets closed by one `mn`, so that a batch is one round trip and each failure
//! has its key; from what knows no meta, one reply a value.

use std::collections::VecDeque;

use glasscache_protocol::text::request::StoreWord;

use super::Failures;
use super::asking::{Ended, Reply};
use super::parts::{Part, Partitioned, add};
use crate::client::Client;
use crate::engine::operation::{Store, stored};
use crate::engine::{Indices, Items, StoredMany};
use crate::error::Error;
use crate::outcome::{Outcome, of_code};
use crate::pipeline::Answer;
use crate::request::{Item, Request};

/// Bytes of values that go to one server in one batch; the rest follows when it was answered.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A bulk write, partitioned by server.
#[derive(Debug)]
pub struct Stores {
    parts: Vec<Part>,
    word: StoreWord,
    exptime: i64,
    /// Values that are not sent at all, for they are longer than this client sends.
    refused: Failures,
    bytes: u64,
}

/// What replies have told so far.
#[derive(Debug, Default)]
pub struct Stored {
    failed: VecDeque<(Indices, Error)>,
    /// Parts of which a value was refused without its name.
    unnamed: Vec<usize>,
}

impl Stores {
    /// Partitions items.
    pub fn new(client: &Client, word: StoreWord, items: &[Item<'_>], exptime: i64) -> Self {
        let limit = client.options().value_bytes_max;
        let mut stores = Self {
            parts: Vec::new(),
            word,
            exptime,
            refused: Vec::new(),
            bytes: 0,
        };
        for (index, item) in items.iter().enumerate() {
            let bytes = item.body.len();
            stores.bytes += bytes as u64;
            if let Some(error) = Store::new(word, *item, exptime, false).refusal(limit) {
                stores.refused.push((index, error));
                continue;
            }
            let place = client.place_of(item.key.bytes);
            add(&mut stores.parts, index, place, bytes, BATCH_BYTES_MAX);
        }
        stores
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Notes what a reply tells: one for all from a server with quiet sets, else one a value.
    pub fn take(&self, reply: Reply<'_>, items: &impl Items, so_far: &mut Stored) {
        let Some(part) = self.parts.get(reply.ask) else {
            return;
        };
        let Stored { failed, unnamed } = so_far;
        let mut fail = |nth: usize, error: Error| {
            if let Some(&index) = part.indices.get(nth) {
                failed.push_back(((index, part.place), error));
            }
        };
        let not_stored = |outcome| Error::NotStored {
            server: reply.server.to_owned(),
            outcome,
        };
        match reply.answer {
            Answer::Quiet(troubles, refusals) => {
                for (nth, code) in troubles {
                    fail(nth, not_stored(of_code(code).unwrap_or(Outcome::NotStored)));
                }
                if !refusals.is_empty() {
                    unnamed.push(reply.ask);
                }
            }
            answer => {
                let index = part.indices.get(reply.nth);
                let Some(item) = index.and_then(|&index| items.item(index)) else {
                    return;
                };
                match stored(answer, item.key, item.body.len(), reply.server) {
                    Ok(Outcome::Done) => {}
                    Ok(outcome) => fail(reply.nth, not_stored(outcome)),
                    Err(error) => fail(reply.nth, error),
                }
            }
        }
    }

    /// What is still to be done once every batch was answered.
    pub fn rest<I: Items>(&self, items: I, ended: &[Ended], stored: Stored) -> StoredMany<I> {
        let mut failed = stored.failed;
        let mut again = VecDeque::new();
        for (at, (part, end)) in self.parts.iter().zip(ended).enumerate() {
            // One that has no form in its server's dialect keeps those beside it from being sent.
            let is_unsaid = matches!(end.error, Some(Error::Unsupported { .. }));
            if is_unsaid || stored.unnamed.contains(&at) {
                again.extend(part.indices.iter().map(|&index| (index, part.place)));
                failed.retain(|((index, _), _)| !part.indices.contains(index));
            } else {
                let unanswered = end.unanswered(&part.indices);
                failed.extend(unanswered.map(|(index, error)| ((index, part.place), error)));
            }
        }
        // Their limit is this client's own: no server is asked for it.
        let refused = self.refused.iter().cloned();
        failed.extend(refused.map(|(index, error)| ((index, 0), error)));
        StoredMany::new(items, (self.word, self.exptime), again, failed)
    }
}

impl Partitioned for Stores {
    type Thing<'a> = Item<'a>;

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn request<'a>(&'a self, _: usize, items: &'a [Item<'a>]) -> Request<'a> {
        Request::StoreMany {
            word: self.word,
            items,
            exptime: self.exptime,
            quiet: true,
        }
    }
}
