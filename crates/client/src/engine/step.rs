//! One request of a call that takes several.

use glasscache_protocol::meta::request::WireKey;

use super::interpret::{number, outcome, refused};
use super::operation::{Operation, stored};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::pipeline::{Answer, Pipeline};
use crate::request::Request;

/// A step of a call: a write of a value, a removal, an addition, or the question how long an item may be.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The key whose server is asked.
    pub key: WireKey<'a>,
    /// What is asked.
    pub request: Request<'a>,
}

/// What came of a [`Step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Of a write or a removal.
    Outcome(Outcome),
    /// Of an addition or a subtraction.
    Number(Option<u64>),
    /// The bytes that an item may have, 0 if the server does not say so.
    ItemBytesMax(u64),
}

/// What asks for [`Done::ItemBytesMax`].
pub(super) const SETTINGS: Request<'static> = Request::Stats {
    argument: b"settings",
};

impl Operation for Step<'_> {
    type Output = Done;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        self.request
    }

    fn read(&self, answer: Answer, pipeline: &Pipeline, server: &str) -> Result<Done, Error> {
        match self.request {
            Request::Store { item, .. } => {
                stored(answer, item.key, item.body.len(), server).map(Done::Outcome)
            }
            Request::Arithmetic { .. } => number(answer, pipeline, server).map(Done::Number),
            Request::Stats { .. } => refused(answer, server).map(|answer| {
                let bytes = item_bytes_max(&answer).unwrap_or(0);
                Done::ItemBytesMax(bytes)
            }),
            _ => outcome(answer, server).map(Done::Outcome),
        }
    }

    fn unasked(&self) -> Done {
        Done::Outcome(Outcome::Done)
    }
}

fn item_bytes_max(answer: &Answer) -> Option<u64> {
    let Answer::Rows(rows) = answer else {
        return None;
    };
    let row = rows.iter().find(|(name, _)| name == "item_size_max")?;
    row.1.parse().ok()
}
