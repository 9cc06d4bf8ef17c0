//! Calls that read the value under one key.

use glasscache_protocol::meta::request::WireKey;

use super::{Operation, Value};
use crate::engine::interpret::{ReceivedValue, value_of_reply};
use crate::error::Error;
use crate::pipeline::{MetaReply, Pipeline, Reply};
use crate::request::Request;

/// Reads a value.
#[derive(Debug, Clone, Copy)]
pub struct Get<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// With its CAS unique.
    pub cas: bool,
}

/// Reads a value and sets its expiry.
#[derive(Debug, Clone, Copy)]
pub struct GetAndTouch<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// The exptime, as on the wire.
    pub exptime: i64,
}

/// Reads a value and what the server knows of it.
#[derive(Debug, Clone, Copy)]
pub struct Inspect<'a> {
    /// The key.
    pub key: WireKey<'a>,
}

operation!(
    Get => Option<Value>,
    |get| Request::Get { key: get.key, cas: get.cas },
    |reply, pipeline, server| Ok(value_of_reply(reply, pipeline, server)?.map(Value::from)),
    None
);

operation!(
    GetAndTouch => Option<Value>,
    |get| Request::GetAndTouch { key: get.key, exptime: get.exptime },
    |reply, pipeline, server| Ok(value_of_reply(reply, pipeline, server)?.map(Value::from)),
    None
);

operation!(
    Inspect => Option<(Value, MetaReply)>,
    |inspect| Request::Inspect { key: inspect.key },
    |reply, pipeline, server| {
        let received = value_of_reply(reply, pipeline, server)?;
        Ok(received.and_then(|received| Some((received.into(), received.meta?))))
    },
    None
);

impl From<ReceivedValue<'_>> for Value {
    fn from(received: ReceivedValue<'_>) -> Self {
        Self {
            flags: received.found.flags,
            cas: received.found.cas,
            bytes: received.bytes.to_vec(),
        }
    }
}
