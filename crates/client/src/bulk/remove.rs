//! Bulk removals: one reply a key; that a key was not there is no failure.

use glasscache_protocol::meta::request::WireKey;

use super::Failures;
use super::asking::{Ask, Ended, Reply, ask_of};
use super::parts::{Part, parted};
use crate::client::Client;
use crate::engine::interpret::outcome;
use crate::error::Error;
use crate::request::Request;

/// Keys whose removals go to one server together.
const BATCH_KEYS_MAX: usize = 10_000;

/// A bulk removal, parted by server.
pub(crate) struct Removals<'k> {
    parts: Vec<Part<WireKey<'k>>>,
}

impl<'k> Removals<'k> {
    /// Parts wire keys, which have their namespace.
    pub(crate) fn new(client: &Client, keys: &[WireKey<'k>]) -> Self {
        let place_of = |key: &WireKey<'_>| client.place_of(key.bytes);
        let indexed = keys.iter().copied().enumerate();
        Self {
            parts: parted(indexed, place_of, |_| 1, BATCH_KEYS_MAX),
        }
    }

    pub(crate) fn asks(&self) -> Vec<Ask<'_>> {
        let parts = self
            .parts
            .iter()
            .map(|part| (part.place, part.things.as_slice()));
        parts
            .map(|(place, keys)| ask_of(place, Request::DeleteMany { keys }))
            .collect()
    }

    /// The failure that a reply tells, if it tells one.
    pub(crate) fn failure(&self, reply: Reply<'_>) -> Option<(usize, Error)> {
        let index = *self.parts.get(reply.ask)?.indices.get(reply.nth)?;
        Some((index, outcome(reply.answer, reply.server).err()?))
    }

    /// The keys that got no answer.
    pub(crate) fn unanswered(&self, ended: &[Ended]) -> Failures {
        let failed = self.parts.iter().zip(ended);
        failed
            .flat_map(|(part, end)| end.unanswered(&part.indices))
            .collect()
    }
}
