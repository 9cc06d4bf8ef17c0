//! Interprets replies: the value, the outcome of a write or the number that a caller gets, or its error.

use glasscache_protocol::meta::reply::MetaCode;
use glasscache_protocol::text::reply::{ReplyFault, WriteStatus, parse_number};

use crate::error::Error;
use crate::pipeline::{FoundValue, MetaReply, Pipeline, Reply};
use crate::write_outcome::{WriteOutcome, write_outcome_of_code};

/// The reply, unless it is a refusal.
pub fn refusal_to_error(reply: Reply, server: &str) -> Result<Reply, Error> {
    match reply {
        Reply::Refused(refusal) => Err(Error::Refused { server: server.to_owned(), refusal }),
        reply => Ok(reply),
    }
}

fn unexpected_reply(server: &str) -> Error {
    Error::Protocol { server: server.to_owned(), fault: ReplyFault::Unexpected.into() }
}

/// A value in the receive buffer: to keep it longer than its reply, one copy is needed.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedValue<'p> {
    /// Its flags and its CAS unique.
    pub found: FoundValue,
    /// Its bytes.
    pub bytes: &'p [u8],
    /// Its metadata, from a meta reply.
    pub meta: Option<MetaReply>,
}

/// Interprets the reply to a read of one key; `None` on a miss.
#[inline]
pub fn value_of_reply<'p>(
    reply: Reply,
    pipeline: &'p Pipeline,
    server: &str,
) -> Result<Option<ReceivedValue<'p>>, Error> {
    let meta = match reply {
        Reply::Values => None,
        Reply::Meta(meta) => Some(meta),
        reply => {
            refusal_to_error(reply, server)?;
            None
        }
    };
    Ok(pipeline.found_values().first().map(|&found| ReceivedValue {
        found,
        bytes: pipeline.body(&found),
        meta,
    }))
}

/// Interprets the reply to a read of flags: they and the CAS unique; `None` on a miss.
pub fn flags_and_cas_of_reply(
    reply: Reply,
    pipeline: &Pipeline,
    server: &str,
) -> Result<Option<(u32, u64)>, Error> {
    let found = pipeline.found_values().first();
    Ok(match (refusal_to_error(reply, server)?, found) {
        (Reply::Meta(meta), None) if meta.code == MetaCode::Done => {
            Some((meta.client_flags, meta.cas.unwrap_or_default()))
        }
        (_, found) => found.map(|found| (found.flags, found.cas)),
    })
}

/// Interprets the reply to a write.
pub fn write_outcome_of_reply(reply: Reply, server: &str) -> Result<WriteOutcome, Error> {
    let outcome = match &reply {
        Reply::Status(status) => Some(match status {
            WriteStatus::Done => WriteOutcome::Done,
            WriteStatus::NotStored => WriteOutcome::NotStored,
            WriteStatus::Exists => WriteOutcome::Exists,
            WriteStatus::NotFound => WriteOutcome::NotFound,
        }),
        Reply::Meta(meta) => write_outcome_of_code(meta.code),
        _ => None,
    };
    match outcome {
        Some(outcome) => Ok(outcome),
        None => {
            Err(refusal_to_error(reply, server).err().unwrap_or_else(|| unexpected_reply(server)))
        }
    }
}

/// Interprets the reply to `incr` or `decr`; `None` if the item does not exist.
pub fn number_of_reply(
    reply: Reply,
    pipeline: &Pipeline,
    server: &str,
) -> Result<Option<u64>, Error> {
    match refusal_to_error(reply, server)? {
        Reply::Number(number) => Ok(Some(number)),
        Reply::Status(WriteStatus::NotFound) => Ok(None),
        Reply::Meta(meta) => match (meta.code, pipeline.found_values().first()) {
            (MetaCode::NotFound, _) => Ok(None),
            (MetaCode::Value, Some(found)) => {
                parse_number(pipeline.body(found)).map(Some).ok_or_else(|| unexpected_reply(server))
            }
            _ => Err(unexpected_reply(server)),
        },
        _ => Err(unexpected_reply(server)),
    }
}
