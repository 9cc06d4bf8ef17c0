//! One turn of a session: its input and output, and the lookups that are gathered before they are made.

use glasscache_protocol::meta::MetaLine;

use crate::execute::{Batch, Lookup};
use crate::output::{Mark, Output};
use crate::turn::Turn;

/// One turn of a session: the input, how far it is used, and the lookups not yet made.
pub(super) struct Run<'b, 'o, 'w> {
    pub(super) input: &'b [u8],
    pub(super) used: usize,
    pub(super) commands: u32,
    pub(super) batch: Batch<'b, 'w>,
    pub(super) turn: &'o Turn<'w>,
    pub(super) out: &'o mut Output<'w>,
}

impl<'b, 'w> Run<'b, '_, 'w> {
    #[inline]
    pub(super) fn rest(&self) -> &'b [u8] {
        self.input.get(self.used..).unwrap_or_default()
    }

    /// Adds a lookup to the batch, making the batch first when it is full; see [`Run::flush`].
    #[inline]
    pub(super) fn look_up(&mut self, lookup: Lookup<'b, 'w>) -> Option<Mark> {
        let mark = if self.batch.is_full() {
            self.flush()
        } else {
            None
        };
        self.batch.push(lookup);
        mark
    }

    /// Adds the lookup of an `mg`.
    #[inline]
    pub(super) fn look_up_meta(&mut self, line: MetaLine<'b>) {
        if self.batch.is_full() {
            self.flush();
        }
        self.batch.push_meta(line, self.turn);
    }

    /// Makes the lookups gathered so far. Returns where the reply of the last get that began among
    /// them begins.
    #[inline]
    pub(super) fn flush(&mut self) -> Option<Mark> {
        self.batch.flush(self.turn, self.out)
    }
}
