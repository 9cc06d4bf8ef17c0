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

impl Operation for Get<'_> {
    type Output = Option<Value>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Get { key: self.key, cas: self.cas }
    }

    fn read(&self, reply: Reply, pipeline: &Pipeline, server: &str) -> Result<Self::Output, Error> {
        Ok(value_of_reply(reply, pipeline, server)?.map(Value::from))
    }

    fn quiet_output(&self) -> Self::Output {
        None
    }
}

impl Operation for GetAndTouch<'_> {
    type Output = Option<Value>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::GetAndTouch { key: self.key, exptime: self.exptime }
    }

    fn read(&self, reply: Reply, pipeline: &Pipeline, server: &str) -> Result<Self::Output, Error> {
        Ok(value_of_reply(reply, pipeline, server)?.map(Value::from))
    }

    fn quiet_output(&self) -> Self::Output {
        None
    }
}

impl Operation for Inspect<'_> {
    type Output = Option<(Value, MetaReply)>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Inspect { key: self.key }
    }

    fn read(&self, reply: Reply, pipeline: &Pipeline, server: &str) -> Result<Self::Output, Error> {
        let received = value_of_reply(reply, pipeline, server)?;
        Ok(received.and_then(|received| Some((received.into(), received.meta?))))
    }

    fn quiet_output(&self) -> Self::Output {
        None
    }
}

impl From<ReceivedValue<'_>> for Value {
    fn from(received: ReceivedValue<'_>) -> Self {
        Self {
            flags: received.found.flags,
            cas: received.found.cas,
            bytes: received.bytes.to_vec(),
        }
    }
}
