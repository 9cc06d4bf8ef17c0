//! How a write can end.

use glasscache_protocol::meta::reply::Code;

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

/// The outcome of a meta code, if it is one of a write.
pub fn outcome_of_code(code: Code) -> Option<Outcome> {
    match code {
        Code::Done => Some(Outcome::Done),
        Code::NotStored => Some(Outcome::NotStored),
        Code::Exists => Some(Outcome::Exists),
        // `mg` without a value, as a touch is sent, misses with `EN`.
        Code::NotFound | Code::Miss => Some(Outcome::NotFound),
        Code::Value | Code::Noop => None,
    }
}
