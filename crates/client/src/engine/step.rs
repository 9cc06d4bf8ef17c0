//! One request of a call that takes several.

use glasscache_protocol::meta::request::WireKey;

use super::operation::{Calculate, Delete, ItemBytesMax, Operation, Store};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::pipeline::{Answer, Pipeline};
use crate::request::Request;

/// A step of a call.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// Store a value.
    Store(Store<'a>),
    /// Remove a key.
    Delete(Delete<'a>),
    /// Add to or subtract from a number.
    Calculate(Calculate<'a>),
    /// Ask how long an item may be.
    ItemBytesMax(ItemBytesMax<'a>),
}

/// What came of a [`Step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Of a store.
    Stored(Outcome),
    /// Of a removal: whether the key was there.
    Removed(bool),
    /// Of an addition or a subtraction.
    Number(Option<u64>),
    /// The bytes that an item may have, 0 if the server does not say so.
    ItemBytesMax(u64),
}

impl Operation for Step<'_> {
    type Output = Done;

    fn key(&self) -> WireKey<'_> {
        match self {
            Self::Store(store) => store.key(),
            Self::Delete(delete) => delete.key(),
            Self::Calculate(calculate) => calculate.key(),
            Self::ItemBytesMax(limit) => limit.key(),
        }
    }

    fn request(&self) -> Request<'_> {
        match self {
            Self::Store(store) => store.request(),
            Self::Delete(delete) => delete.request(),
            Self::Calculate(calculate) => calculate.request(),
            Self::ItemBytesMax(limit) => limit.request(),
        }
    }

    fn read(&self, answer: Answer, pipeline: &Pipeline, server: &str) -> Result<Done, Error> {
        Ok(match self {
            Self::Store(store) => Done::Stored(store.read(answer, pipeline, server)?),
            Self::Delete(delete) => Done::Removed(delete.read(answer, pipeline, server)?),
            Self::Calculate(calculate) => Done::Number(calculate.read(answer, pipeline, server)?),
            Self::ItemBytesMax(limit) => Done::ItemBytesMax(limit.read(answer, pipeline, server)?),
        })
    }

    fn unasked(&self) -> Done {
        match self {
            Self::Store(store) => Done::Stored(store.unasked()),
            Self::Delete(delete) => Done::Removed(delete.unasked()),
            Self::Calculate(calculate) => Done::Number(calculate.unasked()),
            Self::ItemBytesMax(limit) => Done::ItemBytesMax(limit.unasked()),
        }
    }
}
