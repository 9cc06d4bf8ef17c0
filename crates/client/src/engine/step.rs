//! One request of a call that takes several.

use glasscache_protocol::meta::request::WireKey;

use super::interpret::{
    flags_and_cas_of_reply, number_of_reply, refusal_to_error, write_outcome_of_reply,
};
use super::operation::{Operation, store_outcome};
use crate::error::Error;
use crate::pipeline::{Pipeline, Reply};
use crate::request::Request;
use crate::write_outcome::WriteOutcome;

/// A step of a call: a write of a value, a removal, an addition, or a query of the largest item size.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The key whose server gets the request.
    pub key: WireKey<'a>,
    /// The request.
    pub request: Request<'a>,
}

/// What the reply to a [`Step`] meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOutcome {
    /// The outcome of a write or a removal.
    WriteOutcome(WriteOutcome),
    /// The number after an increment or decrement; `None`: the key has no item.
    Number(Option<u64>),
    /// Client flags and CAS unique of the value under the key; `None`: there is none.
    Flags(Option<(u32, u64)>),
    /// The largest item size in bytes, 0 if the server does not report it.
    ItemBytesMax(u64),
}

/// The request for [`StepOutcome::ItemBytesMax`].
pub(super) const SETTINGS_REQUEST: Request<'static> = Request::Stats { argument: b"settings" };

impl Operation for Step<'_> {
    type Output = StepOutcome;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        self.request
    }

    fn read(&self, reply: Reply, pipeline: &Pipeline, server: &str) -> Result<StepOutcome, Error> {
        match self.request {
            Request::Flags { .. } => {
                flags_and_cas_of_reply(reply, pipeline, server).map(StepOutcome::Flags)
            }
            Request::Store { item, .. } | Request::Extend { item, .. } => {
                store_outcome(reply, item.key, item.body.len(), server)
                    .map(StepOutcome::WriteOutcome)
            }
            Request::Arithmetic { .. } => {
                number_of_reply(reply, pipeline, server).map(StepOutcome::Number)
            }
            Request::Stats { .. } => refusal_to_error(reply, server)
                .map(|reply| StepOutcome::ItemBytesMax(item_bytes_max(&reply).unwrap_or(0))),
            _ => write_outcome_of_reply(reply, server).map(StepOutcome::WriteOutcome),
        }
    }

    fn quiet_output(&self) -> StepOutcome {
        StepOutcome::WriteOutcome(WriteOutcome::Done)
    }
}

fn item_bytes_max(reply: &Reply) -> Option<u64> {
    let Reply::Rows(rows) = reply else {
        return None;
    };
    let (_, limit) = rows.iter().find(|(name, _)| name == "item_size_max")?;
    limit.parse().ok()
}
