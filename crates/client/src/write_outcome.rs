//! How a write can end.

use glasscache_protocol::meta::reply::Code;

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was done.
    Done,
    /// The condition of the store did not hold.
    NotStored,
    /// The CAS unique has changed.
    Exists,
    /// There is no such item.
    NotFound,
}

/// The outcome of a meta code, if it is one of a write.
pub fn write_outcome_of_code(code: Code) -> Option<WriteOutcome> {
    match code {
        Code::Done => Some(WriteOutcome::Done),
        Code::NotStored => Some(WriteOutcome::NotStored),
        Code::Exists => Some(WriteOutcome::Exists),
        // `mg` without a value, as a touch is sent, misses with `EN`.
        Code::NotFound | Code::Miss => Some(WriteOutcome::NotFound),
        Code::Value | Code::Noop => None,
    }
}
