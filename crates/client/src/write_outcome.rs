//! How a write can end.

use glasscache_protocol::meta::reply::MetaCode;

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It was done.
    Done,
    /// The condition of the store did not hold.
    NotStored,
    /// The CAS unique has changed.
    Exists,
    /// The key has no item.
    NotFound,
}

/// The outcome of a meta code, if it is one of a write.
pub fn write_outcome_of_code(code: MetaCode) -> Option<WriteOutcome> {
    match code {
        MetaCode::Done => Some(WriteOutcome::Done),
        MetaCode::NotStored => Some(WriteOutcome::NotStored),
        MetaCode::Exists => Some(WriteOutcome::Exists),
        // `mg` without a value, as a touch is sent, misses with `EN`.
        MetaCode::NotFound | MetaCode::Miss => Some(WriteOutcome::NotFound),
        MetaCode::Value | MetaCode::Noop => None,
    }
}
