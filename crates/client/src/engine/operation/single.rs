//! Calls about one key whose reply is interpreted without knowledge of the request.

use glasscache_protocol::meta::request::{Arithmetic, WireKey};

use super::{Operation, Value};
use crate::engine::interpret::{Received, number, outcome, value};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::pipeline::{MetaReply, Pipeline, Reply};
use crate::request::Request;

/// A request about one key, and the meaning of its reply.
#[derive(Debug, Clone, Copy)]
pub struct Single<'a, T> {
    key: WireKey<'a>,
    request: Request<'a>,
    read: fn(Reply, &Pipeline, &str) -> Result<T, Error>,
    without_reply: T,
}

impl<T: Clone> Operation for Single<'_, T> {
    type Output = T;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        self.request
    }

    fn read(&self, reply: Reply, pipeline: &Pipeline, server: &str) -> Result<T, Error> {
        (self.read)(reply, pipeline, server)
    }

    fn without_reply(&self) -> T {
        self.without_reply.clone()
    }
}

/// Reads the value under a key; with its CAS unique if `cas`.
pub fn get(key: WireKey<'_>, cas: bool) -> Single<'_, Option<Value>> {
    read_value(key, Request::Get { key, cas })
}

/// Reads the value under a key and sets its expiry, `exptime` as on the wire.
pub fn get_and_touch(key: WireKey<'_>, exptime: i64) -> Single<'_, Option<Value>> {
    read_value(key, Request::GetAndTouch { key, exptime })
}

fn read_value<'a>(key: WireKey<'a>, request: Request<'a>) -> Single<'a, Option<Value>> {
    Single {
        key,
        request,
        read: |reply, pipeline, server| Ok(value(reply, pipeline, server)?.map(Value::from)),
        without_reply: None,
    }
}

/// Reads the value under a key and its metadata.
pub fn inspect(key: WireKey<'_>) -> Single<'_, Option<(Value, MetaReply)>> {
    Single {
        key,
        request: Request::Inspect { key },
        read: |reply, pipeline, server| {
            let received = value(reply, pipeline, server)?;
            Ok(received.and_then(|received| Some((received.into(), received.meta?))))
        },
        without_reply: None,
    }
}

/// Removes a key; whether it was there.
pub fn delete(key: WireKey<'_>, noreply: bool) -> Single<'_, bool> {
    done_or_not(key, Request::Delete { key, noreply })
}

/// Gives a key a new expiry, `exptime` as on the wire; whether it was there.
pub fn touch(key: WireKey<'_>, exptime: i64, noreply: bool) -> Single<'_, bool> {
    let request = Request::Touch {
        key,
        exptime,
        noreply,
    };
    done_or_not(key, request)
}

fn done_or_not<'a>(key: WireKey<'a>, request: Request<'a>) -> Single<'a, bool> {
    Single {
        key,
        request,
        read: |reply, _, server| Ok(outcome(reply, server)? == Outcome::Done),
        without_reply: true,
    }
}

/// Adds to or subtracts from a number; `None` if there is none, or if it is quiet.
pub fn calculate(key: WireKey<'_>, by: Arithmetic, noreply: bool) -> Single<'_, Option<u64>> {
    Single {
        key,
        request: Request::Arithmetic { key, by, noreply },
        read: number,
        without_reply: None,
    }
}

impl From<Received<'_>> for Value {
    fn from(received: Received<'_>) -> Self {
        Self {
            flags: received.found.flags,
            cas: received.found.cas,
            bytes: received.bytes.to_vec(),
        }
    }
}
