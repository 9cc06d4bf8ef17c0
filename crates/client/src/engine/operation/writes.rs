//! Calls that change what is under one key.

use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::request::StoreWord;

use super::Operation;
use crate::engine::interpret::{number, outcome};
use crate::error::Error;
use crate::options::QUIET_BYTES_MAX;
use crate::outcome::Outcome;
use crate::pipeline::{Answer, Pipeline};
use crate::request::{Item, Request};

/// Stores a value.
#[derive(Debug, Clone, Copy)]
pub struct Store<'a> {
    /// On which condition.
    pub word: StoreWord,
    /// Key, flags and bytes.
    pub item: Item<'a>,
    /// As on the wire.
    pub exptime: i64,
    /// Whether nobody waits.
    pub noreply: bool,
}

/// Removes a key; whether it was there.
#[derive(Debug, Clone, Copy)]
pub struct Delete<'a> {
    /// This one.
    pub key: WireKey<'a>,
    /// Whether nobody waits.
    pub noreply: bool,
}

/// Gives a key a new expiry; whether it was there.
#[derive(Debug, Clone, Copy)]
pub struct Touch<'a> {
    /// This one.
    pub key: WireKey<'a>,
    /// As on the wire.
    pub exptime: i64,
    /// Whether nobody waits.
    pub noreply: bool,
}

/// Adds to or subtracts from a number; `None` if there is none, or if nobody waits.
#[derive(Debug, Clone, Copy)]
pub struct Calculate<'a> {
    /// Under this key.
    pub key: WireKey<'a>,
    /// How much, in which direction, and what a missing number becomes.
    pub by: Arithmetic,
    /// Whether nobody waits.
    pub noreply: bool,
}

impl Operation for Store<'_> {
    type Output = Outcome;

    fn key(&self) -> WireKey<'_> {
        self.item.key
    }

    fn request(&self) -> Request<'_> {
        Request::Store {
            word: self.word,
            item: self.item,
            exptime: self.exptime,
            noreply: self.noreply,
        }
    }

    fn read(&self, answer: Answer, _: &Pipeline, server: &str) -> Result<Outcome, Error> {
        stored(answer, self.item.key, self.item.body.len(), server)
    }

    fn unasked(&self) -> Outcome {
        Outcome::Done
    }
}

impl Operation for Delete<'_> {
    type Output = bool;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Delete {
            key: self.key,
            noreply: self.noreply,
        }
    }

    fn read(&self, answer: Answer, _: &Pipeline, server: &str) -> Result<bool, Error> {
        Ok(outcome(answer, server)? == Outcome::Done)
    }

    fn unasked(&self) -> bool {
        true
    }
}

impl Operation for Touch<'_> {
    type Output = bool;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Touch {
            key: self.key,
            exptime: self.exptime,
            noreply: self.noreply,
        }
    }

    fn read(&self, answer: Answer, _: &Pipeline, server: &str) -> Result<bool, Error> {
        Ok(outcome(answer, server)? == Outcome::Done)
    }

    fn unasked(&self) -> bool {
        true
    }
}

impl Operation for Calculate<'_> {
    type Output = Option<u64>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Arithmetic {
            key: self.key,
            by: self.by,
            noreply: self.noreply,
        }
    }

    fn read(
        &self,
        answer: Answer,
        pipeline: &Pipeline,
        server: &str,
    ) -> Result<Option<u64>, Error> {
        number(answer, pipeline, server)
    }

    fn unasked(&self) -> Option<u64> {
        None
    }
}

impl<'a> Store<'a> {
    /// A write; from [`QUIET_BYTES_MAX`] on its caller waits all the same, so that none is too large unheard.
    pub fn new(word: StoreWord, item: Item<'a>, exptime: i64, noreply: bool) -> Self {
        Self {
            word,
            item,
            exptime,
            noreply: noreply && item.body.len() < QUIET_BYTES_MAX,
        }
    }

    /// Why the value is not sent at all, if it is longer than this client sends.
    pub fn refusal(&self, value_bytes_max: u64) -> Option<Error> {
        let bytes = self.item.body.len();
        (bytes as u64 > value_bytes_max).then(|| Error::TooLarge {
            key: shown(self.item.key),
            bytes,
            limit: value_bytes_max,
        })
    }
}

/// Reads the answer to a store of so many bytes; a refusal for their length does not say the server's limit.
pub fn stored(
    answer: Answer,
    key: WireKey<'_>,
    bytes: usize,
    server: &str,
) -> Result<Outcome, Error> {
    match answer {
        Answer::Refused(refusal) if refusal.is_too_large() => Err(Error::TooLarge {
            key: shown(key),
            bytes,
            limit: 0,
        }),
        answer => outcome(answer, server),
    }
}

fn shown(key: WireKey<'_>) -> String {
    String::from_utf8_lossy(key.bytes).into_owned()
}
