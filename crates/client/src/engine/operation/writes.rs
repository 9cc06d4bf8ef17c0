//! Calls that change what is under one key.

use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::request::StoreMode;

use super::Operation;
use crate::engine::interpret::{number_of_reply, write_outcome_of_reply};
use crate::error::Error;
use crate::options::QUIET_BYTES_MAX;
use crate::pipeline::{Pipeline, Reply};
use crate::request::{Item, Request};
use crate::value::MANIFEST_FLAGS;
use crate::write_outcome::WriteOutcome;

/// Stores a value.
#[derive(Debug, Clone, Copy)]
pub struct Store<'a> {
    /// The condition under which it is stored.
    pub mode: StoreMode,
    /// Key, flags and bytes.
    pub item: Item<'a>,
    /// The exptime, as on the wire.
    pub exptime: i64,
    /// Whether it is quiet: no reply is requested.
    pub noreply: bool,
}

/// Removes a key; whether it was there.
#[derive(Debug, Clone, Copy)]
pub struct Delete<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// Whether it is quiet: no reply is requested.
    pub noreply: bool,
}

/// Gives a key a new expiry; whether it was there.
#[derive(Debug, Clone, Copy)]
pub struct Touch<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// The exptime, as on the wire.
    pub exptime: i64,
    /// Whether it is quiet: no reply is requested.
    pub noreply: bool,
}

/// Adds to or subtracts from a number; `None` if there is none, or if it is quiet.
#[derive(Debug, Clone, Copy)]
pub struct Calculate<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// How much, in which direction, and what a missing number becomes.
    pub arithmetic: Arithmetic,
    /// Whether it is quiet: no reply is requested.
    pub noreply: bool,
}

impl Operation for Store<'_> {
    type Output = WriteOutcome;

    fn key(&self) -> WireKey<'_> {
        self.item.key
    }

    fn request(&self) -> Request<'_> {
        Request::Store {
            mode: self.mode,
            item: self.item,
            exptime: self.exptime,
            noreply: self.noreply,
        }
    }

    fn read(&self, reply: Reply, _: &Pipeline, server: &str) -> Result<WriteOutcome, Error> {
        store_outcome(reply, self.item.key, self.item.body.len(), server)
    }

    fn quiet_output(&self) -> WriteOutcome {
        WriteOutcome::Done
    }
}

operation!(
    Delete => bool,
    |delete| Request::Delete { key: delete.key, noreply: delete.noreply },
    |reply, _, server| Ok(write_outcome_of_reply(reply, server)? == WriteOutcome::Done),
    true
);

/// How a touch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touched {
    /// The key has no item.
    Missing,
    /// The item has the new expiry.
    Done,
    /// As [`Self::Done`], of the manifest of a value in pieces, which have an expiry of their own.
    Manifest,
}

operation!(
    Touch => Touched,
    |touch| Request::Touch { key: touch.key, exptime: touch.exptime, noreply: touch.noreply },
    |reply, _, server| touched_of_reply(reply, server),
    Touched::Done
);

operation!(
    Calculate => Option<u64>,
    |sum| Request::Arithmetic { key: sum.key, arithmetic: sum.arithmetic, noreply: sum.noreply },
    |reply, pipeline, server| number_of_reply(reply, pipeline, server),
    None
);

/// Interprets the reply to a touch. Only meta servers tell a manifest from a value.
pub fn touched_of_reply(reply: Reply, server: &str) -> Result<Touched, Error> {
    let client_flags = match reply {
        Reply::Meta(meta) => meta.client_flags,
        _ => 0,
    };
    Ok(match write_outcome_of_reply(reply, server)? {
        WriteOutcome::Done if client_flags == MANIFEST_FLAGS => Touched::Manifest,
        WriteOutcome::Done => Touched::Done,
        _ => Touched::Missing,
    })
}

impl<'a> Store<'a> {
    /// A write; from [`QUIET_BYTES_MAX`] on it is never quiet, so that a value that is too large is never dropped
    /// silently.
    pub fn new(mode: StoreMode, item: Item<'a>, exptime: i64, noreply: bool) -> Self {
        Self { mode, item, exptime, noreply: noreply && item.body.len() < QUIET_BYTES_MAX }
    }

    /// Why the value is not sent at all, if it is longer than this client sends.
    pub fn refusal(&self, value_bytes_max: u64) -> Option<Error> {
        let body_bytes = self.item.body.len();
        (body_bytes as u64 > value_bytes_max).then(|| Error::TooLarge {
            key: display_key(self.item.key),
            bytes: body_bytes,
            limit: value_bytes_max,
        })
    }
}

/// Interprets the reply to a store of this many bytes; a refusal for their length does not name the server's limit.
pub fn store_outcome(
    reply: Reply,
    key: WireKey<'_>,
    body_bytes: usize,
    server: &str,
) -> Result<WriteOutcome, Error> {
    match reply {
        Reply::Refused(refusal) if refusal.is_too_large() => {
            Err(Error::TooLarge { key: display_key(key), bytes: body_bytes, limit: 0 })
        }
        reply => write_outcome_of_reply(reply, server),
    }
}

fn display_key(key: WireKey<'_>) -> String {
    String::from_utf8_lossy(key.bytes).into_owned()
}
