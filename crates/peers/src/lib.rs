//! What a client or a tool under test connects to: a listener whose replies a test scripts, a relay, a faulty server,
//! and certificates.
//!
//! It uses no other crate of the workspace, so the tests of each may use it. A peer runs until it is closed or the test
//! program ends.

mod authority;
mod connection;
mod faulty_server;
mod peer;

pub use authority::{Authority, Identity};
pub use connection::Connection;
pub use faulty_server::{BEHAVIOURS, Behaviour, FaultyServer, LATE_REPLY_DELAY, value_of};
pub use peer::{Direction, Peer};
