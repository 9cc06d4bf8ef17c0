//! What is known of one server, by whatever connection it was learnt.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::health::Health;
use super::uncertain::UncertainKeys;
use crate::request::Dialect;

/// The state of one server, which its connections share.
#[derive(Debug, Default)]
pub struct ServerState {
    /// Its name in errors and counters.
    pub name: String,
    /// Whether it is worth asking.
    pub health: Health,
    /// Protocol faults seen.
    pub faults: AtomicU64,
    /// Refusals and lost quiet writes, found out when the next call had the connection.
    pub noreply_failures: AtomicU64,
    /// Keys to be removed before anything else is asked.
    pub uncertain: UncertainKeys,
    dialect: AtomicU8,
}

impl ServerState {
    /// The state of a server of which nothing is known but its name.
    pub fn new(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Which commands the server understands; `None` until the first connection has found out.
    pub fn dialect(&self) -> Option<Dialect> {
        // Relaxed: the number is all there is.
        match self.dialect.load(Ordering::Relaxed) {
            1 => Some(Dialect::Meta),
            2 => Some(Dialect::Classic),
            _ => None,
        }
    }

    /// Notes which commands the server understands.
    pub fn learn_dialect(&self, dialect: Dialect) {
        let number = if dialect == Dialect::Meta { 1 } else { 2 };
        self.dialect.store(number, Ordering::Relaxed);
    }
}
