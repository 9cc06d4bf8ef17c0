//! What an answer means for the caller of a write.

use glasscache_protocol::meta::reply::Code;
use glasscache_protocol::text::reply::{ReplyFault, Status, number as digits};

use crate::error::Error;
use crate::pipeline::{Answer, Pipeline};

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The condition of the store did not hold.
    NotStored,
    /// The CAS unique has changed.
    Exists,
    /// There is no such item.
    NotFound,
}

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

/// The outcome that a meta code stands for, if it is one of a write.
pub fn of_code(code: Code) -> Option<Outcome> {
    match code {
        Code::Done => Some(Outcome::Done),
        Code::NotStored => Some(Outcome::NotStored),
        Code::Exists => Some(Outcome::Exists),
        // `mg` without a value, as a touch is sent, misses with `EN`.
        Code::NotFound | Code::Miss => Some(Outcome::NotFound),
        Code::Value | Code::Noop => None,
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
