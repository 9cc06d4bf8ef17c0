//! What the user should know of a strategy that a client runs, each once.

use std::collections::VecDeque;

/// The warnings that were not taken yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    pending: VecDeque<String>,
    has_warned_of_ttls: bool,
}

impl Warnings {
    /// Adds a warning, if there is one.
    pub(super) fn add(&mut self, warning: Option<String>) {
        self.pending.extend(warning);
    }

    /// Adds, once, that values of a server cannot be kept.
    pub(super) fn add_missing_ttls(&mut self) {
        if !std::mem::replace(&mut self.has_warned_of_ttls, true) {
            self.pending.push_back(
                "a server sends values without their TTLs, as in classic text and in the binary protocol: the strategy \
                 keeps none of them in the process, where they could outlive their TTL"
                    .to_owned(),
            );
        }
    }

    /// The next warning.
    pub(super) fn take(&mut self) -> Option<String> {
        self.pending.pop_front()
    }
}
