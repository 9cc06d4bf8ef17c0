//! Calls that read the value under one key.

use glasscache_protocol::meta::request::WireKey;

use super::{Operation, Value};
use crate::engine::interpret::refused;
use crate::error::Error;
use crate::pipeline::{Answer, MetaAnswer, Pipeline};
use crate::request::Request;

/// Reads a value.
#[derive(Debug, Clone, Copy)]
pub struct Get<'a> {
    /// Under this key.
    pub key: WireKey<'a>,
    /// With its CAS unique.
    pub cas: bool,
}

/// Reads a value and sets its expiry.
#[derive(Debug, Clone, Copy)]
pub struct GetAndTouch<'a> {
    /// Under this key.
    pub key: WireKey<'a>,
    /// As on the wire.
    pub exptime: i64,
}

/// Reads a value and what the server knows of it.
#[derive(Debug, Clone, Copy)]
pub struct Inspect<'a> {
    /// Under this key.
    pub key: WireKey<'a>,
}

/// Asks how many bytes an item may have at the server of a key; 0 if it does not say so.
#[derive(Debug, Clone, Copy)]
pub struct ItemBytesMax<'a> {
    /// The key.
    pub key: WireKey<'a>,
}

impl Operation for Get<'_> {
    type Output = Option<Value>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Get {
            key: self.key,
            cas: self.cas,
        }
    }

    fn read(
        &self,
        answer: Answer,
        pipeline: &Pipeline,
        server: &str,
    ) -> Result<Self::Output, Error> {
        Ok(one_value(answer, pipeline, server)?.map(|(value, _)| value))
    }

    fn unasked(&self) -> Self::Output {
        None
    }
}

impl Operation for GetAndTouch<'_> {
    type Output = Option<Value>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::GetAndTouch {
            key: self.key,
            exptime: self.exptime,
        }
    }

    fn read(
        &self,
        answer: Answer,
        pipeline: &Pipeline,
        server: &str,
    ) -> Result<Self::Output, Error> {
        Ok(one_value(answer, pipeline, server)?.map(|(value, _)| value))
    }

    fn unasked(&self) -> Self::Output {
        None
    }
}

impl Operation for Inspect<'_> {
    type Output = Option<(Value, MetaAnswer)>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Inspect { key: self.key }
    }

    fn read(
        &self,
        answer: Answer,
        pipeline: &Pipeline,
        server: &str,
    ) -> Result<Self::Output, Error> {
        let found = one_value(answer, pipeline, server)?;
        Ok(found.and_then(|(value, meta)| Some((value, meta?))))
    }

    fn unasked(&self) -> Self::Output {
        None
    }
}

impl Operation for ItemBytesMax<'_> {
    type Output = u64;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Request::Stats {
            argument: b"settings",
        }
    }

    fn read(&self, answer: Answer, _: &Pipeline, server: &str) -> Result<u64, Error> {
        let Answer::Rows(rows) = refused(answer, server)? else {
            return Ok(0);
        };
        let row = rows.iter().find(|(name, _)| name == "item_size_max");
        Ok(row.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0))
    }

    fn unasked(&self) -> u64 {
        0
    }
}

fn one_value(
    answer: Answer,
    pipeline: &Pipeline,
    server: &str,
) -> Result<Option<(Value, Option<MetaAnswer>)>, Error> {
    let meta = match refused(answer, server)? {
        Answer::Meta(meta) => Some(meta),
        _ => None,
    };
    let found = pipeline.found().first();
    Ok(found.map(|found| {
        let bytes = pipeline.body(found).to_vec();
        let value = Value {
            flags: found.flags,
            cas: found.cas,
            bytes,
        };
        (value, meta)
    }))
}
