//! Bad calls to a server as the world counts them, to see that it counts as down only for a cause.

use crate::plan::Micros;

/// What may have made a server count as down, since its last good reply.
#[derive(Default)]
pub(super) struct BadCalls {
    /// How often calls on a connection failed; those that fail together count once.
    pub(super) count: u32,
    /// It could not be connected to.
    pub(super) was_unreachable: bool,
    last: Option<(usize, Micros, &'static str)>,
}

impl BadCalls {
    /// Counts a failure of this name on a connection.
    pub(super) fn add(&mut self, socket: usize, now: Micros, name: &'static str) {
        let failure = Some((socket, now, name));
        if self.last != failure {
            self.last = failure;
            self.count += 1;
        }
    }
}
