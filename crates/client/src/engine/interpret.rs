//! What an answer means for the caller.

use glasscache_protocol::meta::reply::Code;
use glasscache_protocol::text::reply::{ReplyFault, Status, number as digits};

use crate::error::Error;
use crate::outcome::{Outcome, of_code};
use crate::pipeline::{Answer, Found, MetaAnswer, Pipeline};

/// The answer, unless it is a refusal.
pub fn refused(answer: Answer, server: &str) -> Result<Answer, Error> {
    match answer {
        Answer::Refused(refusal) => Err(Error::Refused {
            server: server.to_owned(),
            refusal,
        }),
        answer => Ok(answer),
    }
}

fn unexpected(server: &str) -> Error {
    Error::Protocol {
        server: server.to_owned(),
        fault: ReplyFault::Unexpected.into(),
    }
}

/// A value where it was received: who wants it longer than its reply makes of it what it likes, with one copy.
#[derive(Debug, Clone, Copy)]
pub struct Received<'p> {
    /// Its flags and its CAS unique.
    pub found: Found,
    /// Its bytes.
    pub bytes: &'p [u8],
    /// What the server told of it beside, in meta.
    pub meta: Option<MetaAnswer>,
}

/// Reads the answer to a read of one key; `None`: there is no value.
pub fn value<'p>(
    answer: Answer,
    pipeline: &'p Pipeline,
    server: &str,
) -> Result<Option<Received<'p>>, Error> {
    let meta = match refused(answer, server)? {
        Answer::Meta(meta) => Some(meta),
        _ => None,
    };
    Ok(pipeline.found().first().map(|&found| Received {
        found,
        bytes: pipeline.body(&found),
        meta,
    }))
}

/// Reads the answer to a write.
pub fn outcome(answer: Answer, server: &str) -> Result<Outcome, Error> {
    match refused(answer, server)? {
        Answer::Status(status) => Ok(match status {
            Status::Done => Outcome::Done,
            Status::NotStored => Outcome::NotStored,
            Status::Exists => Outcome::Exists,
            Status::NotFound => Outcome::NotFound,
        }),
        Answer::Meta(meta) => of_code(meta.code).ok_or_else(|| unexpected(server)),
        _ => Err(unexpected(server)),
    }
}

/// Reads the answer to an addition; `None`: there is no such item.
pub fn number(answer: Answer, pipeline: &Pipeline, server: &str) -> Result<Option<u64>, Error> {
    match refused(answer, server)? {
        Answer::Number(number) => Ok(Some(number)),
        Answer::Status(Status::NotFound) => Ok(None),
        Answer::Meta(meta) => match (meta.code, pipeline.found().first()) {
            (Code::NotFound, _) => Ok(None),
            (Code::Value, Some(found)) => digits(pipeline.body(found))
                .map(Some)
                .ok_or_else(|| unexpected(server)),
            _ => Err(unexpected(server)),
        },
        _ => Err(unexpected(server)),
    }
}
