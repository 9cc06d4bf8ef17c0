//! Bulk removals: one reply a key; that a key was not there is no failure.

use glasscache_protocol::meta::request::WireKey;

use super::asking::Reply;
use super::parts::{Part, Partitioned, add};
use crate::client::Client;
use crate::engine::interpret::outcome;
use crate::error::Error;
use crate::request::Request;

/// Keys whose removals go to one server together.
const BATCH_KEYS_MAX: usize = 10_000;

/// A bulk removal, partitioned by server.
#[derive(Debug)]
pub struct Removals {
    parts: Vec<Part>,
}

impl Removals {
    /// Partitions wire keys, which have their namespace.
    pub fn new(client: &Client, keys: &[WireKey<'_>]) -> Self {
        let mut parts = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let place = client.place_of(key.bytes);
            add(&mut parts, index, place, 1, BATCH_KEYS_MAX);
        }
        Self { parts }
    }

    /// The failure that a reply tells, if it tells one.
    pub fn failure(&self, reply: Reply<'_>) -> Option<(usize, Error)> {
        let index = *self.parts.get(reply.ask)?.indices.get(reply.nth)?;
        Some((index, outcome(reply.answer, reply.server).err()?))
    }
}

impl Partitioned for Removals {
    type Thing<'a> = WireKey<'a>;

    fn parts(&self) -> &[Part] {
        &self.parts
    }

    fn request<'a>(&'a self, _: usize, keys: &'a [WireKey<'a>]) -> Request<'a> {
        Request::DeleteMany { keys }
    }
}
