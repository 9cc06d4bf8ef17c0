//! Bulk reads: one text `get` line a server.

use std::time::{Duration, Instant};

use super::Failures;
use super::asking::{Ask, Ended, Pending, Reply, ask_of};
use super::parts::{Part, parted};
use crate::client::{Budget, Client};
use crate::engine::interpret::refused;
use crate::error::Error;
use crate::pipeline::Found;
use crate::request::Request;

/// Keys in one `get` line: memcached's own limit of a line is far above, a proxy's may not be.
const LINE_KEYS_MAX: usize = 10_000;

/// A bulk read, parted by server.
pub(crate) struct Reads<'k> {
    parts: Vec<Part<&'k [u8]>>,
}

impl<'k> Reads<'k> {
    /// Parts plain keys, without their namespace.
    pub(crate) fn new(client: &Client, keys: &[&'k [u8]]) -> Self {
        if let Some(place) = client.only_place().filter(|_| keys.len() <= LINE_KEYS_MAX) {
            return Self {
                parts: vec![Part::whole(place, keys.to_vec())],
            };
        }
        let mut place_of = client.place_finder();
        let indexed = keys.iter().copied().enumerate();
        Self {
            parts: parted(indexed, |key| place_of(key), |_| 1, LINE_KEYS_MAX),
        }
    }

    pub(crate) fn asks<'a>(&'a self, prefix: &'a [u8], cas: bool) -> Vec<Ask<'a>> {
        let request = |part: &'a Part<&'k [u8]>| {
            let keys = &part.things;
            ask_of(part.place, Request::GetMany { prefix, keys, cas })
        };
        self.parts.iter().map(request).collect()
    }

    /// The keys that got no answer.
    pub(crate) fn failures(&self, ended: &[Ended]) -> Failures {
        let failed = self.parts.iter().zip(ended);
        failed
            .flat_map(|(part, end)| end.unanswered(&part.indices))
            .collect()
    }

    /// Hands over the values of a reply with the places of their keys; returns their bytes.
    pub(crate) fn values(
        &self,
        reply: Reply<'_>,
        mut read: impl FnMut(usize, &Found, &[u8]) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let pipeline = reply.pipeline;
        refused(reply.answer, reply.server)?;
        let part = self.parts.get(reply.ask).ok_or(Error::Closed)?;
        let mut bytes = 0;
        for found in pipeline.found() {
            bytes += found.value_bytes as u64;
            if let Some(&index) = part.indices.get(found.key_index) {
                read(index, found, pipeline.body(found))?;
            }
        }
        Ok(bytes)
    }
}

impl Client {
    /// Reads many plain keys, without their namespace, from all their servers at once.
    ///
    /// `receive` drives the calls with [`receive_all`](crate::call::receive_all), as it likes to
    /// wait; `read` then gets each value with the place of its key, its CAS unique only if `cas`.
    /// Returns the keys that got no answer, and why.
    pub fn read_many(
        &self,
        keys: &[&[u8]],
        cas: bool,
        budget: &Budget<'_>,
        mut receive: impl FnMut(&mut [Pending<'_>]) -> Result<(), Error>,
        mut read: impl FnMut(usize, &Found, &[u8]) -> Result<(), Error>,
    ) -> Result<Failures, Error> {
        let reads = Reads::new(self, keys);
        let asks = reads.asks(self.keys().namespace, cas);
        let (mut bytes, mut reading) = (0, Duration::ZERO);
        let ended = self.ask_many_by(&asks, budget, &mut receive, &mut |reply| {
            let begin = Instant::now();
            bytes += reads.values(reply, &mut read)?;
            reading += begin.elapsed();
            Ok(())
        })?;
        self.count_bulk(keys.len(), bytes, budget, reading);
        Ok(reads.failures(&ended))
    }
}
