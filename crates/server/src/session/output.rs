//! What a run of the session wants to send: rendered bytes, and large values by reference.
//!
//! A small value is copied, for gathering cold items one by one costs the kernel more (15 % of a
//! multi-get); a large one is handed to the kernel where it lies.

use glasscache_store::{Held, Item};

use crate::session::gathered::Gathered;

/// Values above this many bytes are sent from where they lie.
pub(crate) const COPY_BYTES_MAX: u32 = 8 << 10;

/// The output of one run, borrowing large items until the worker passes.
pub(crate) struct Output<'w> {
    /// Rendered replies.
    pub(crate) bytes: Vec<u8>,
    large: Vec<Large<'w>>,
    large_bytes: usize,
    /// What keeps values of this output where they lie in case that they have to wait.
    kept: Vec<Held>,
    /// Length up to which everything is an answered `mn` or stands before one.
    settled: usize,
}

/// A value to be sent after the first `at` rendered bytes.
struct Large<'w> {
    at: usize,
    item: Item<'w>,
}

/// A place in the output to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    bytes: usize,
    large: usize,
    large_bytes: usize,
}

/// One stretch of the output.
pub(crate) enum Part<'o, 'w> {
    /// Rendered bytes.
    Bytes(&'o [u8]),
    /// A value.
    Value(&'o Item<'w>),
}

impl<'w> Output<'w> {
    /// An empty output that renders into `bytes`, which it clears.
    pub(crate) fn new(mut bytes: Vec<u8>) -> Output<'w> {
        bytes.clear();
        Output {
            bytes,
            large: Vec::new(),
            large_bytes: 0,
            kept: Vec::new(),
            settled: 0,
        }
    }

    /// An output that is already rendered.
    pub(crate) fn rendered(bytes: Vec<u8>) -> Output<'w> {
        Output {
            bytes,
            large: Vec::new(),
            large_bytes: 0,
            kept: Vec::new(),
            settled: 0,
        }
    }

    /// Gives the rendering buffer back.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Keeps a value where it lies until the output is sent.
    pub(crate) fn keep(&mut self, held: Held) {
        self.kept.push(held);
    }

    /// Lets go of what was kept; whether that was anything.
    pub(crate) fn release_kept(&mut self) -> bool {
        let had_any = !self.kept.is_empty();
        self.kept.clear();
        had_any
    }

    /// Bytes to be sent.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }

    /// An `mn` was answered: what stands before it is as good as sent.
    pub(crate) fn settle(&mut self) {
        self.settled = self.len();
    }

    /// Whether no command but an `mn` was answered last.
    pub(crate) fn is_settled(&self) -> bool {
        self.len() == self.settled
    }

    /// Appends an item's value and the line ending behind it.
    #[inline]
    pub(crate) fn value(&mut self, item: Item<'w>) {
        match item.value() {
            Some(value) if item.value_bytes() <= COPY_BYTES_MAX => {
                self.bytes.extend_from_slice(value);
            }
            _ => {
                self.large_bytes += item.value_bytes() as usize;
                self.large.push(Large {
                    at: self.bytes.len(),
                    item,
                });
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            large: self.large.len(),
            large_bytes: self.large_bytes,
        }
    }

    /// Forgets what was appended since `mark`.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.large.truncate(mark.large);
        self.large_bytes = mark.large_bytes;
    }

    /// Whether everything lies in `bytes`.
    #[inline]
    pub(crate) fn is_flat(&self) -> bool {
        self.large.is_empty()
    }

    /// The output in order, values by reference.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_, 'w>> {
        let mut from = 0;
        let heads = self.large.iter().flat_map(move |large| {
            let bytes = self.bytes.get(from..large.at).unwrap_or_default();
            from = large.at;
            [Part::Bytes(bytes), Part::Value(&large.item)]
        });
        let tail_from = self.large.last().map_or(0, |large| large.at);
        let tail = self.bytes.get(tail_from..).unwrap_or_default();
        heads.chain(std::iter::once(Part::Bytes(tail)))
    }

    /// What of it `most` says, less the first `sent` bytes, for one `sendmsg`.
    pub(crate) fn gather(&self, sent: usize, most: usize) -> Gathered<'_> {
        let mut gathered = Gathered::new(sent, most);
        for part in self.parts() {
            let go_on = match part {
                Part::Bytes(bytes) => gathered.push(bytes),
                Part::Value(item) => item.pieces().all(|piece| gathered.push(piece)),
            };
            if !go_on {
                break;
            }
        }
        gathered
    }
}
