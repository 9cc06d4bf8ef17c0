//! The output of a run of the session: rendered bytes, and large values by reference.
//!
//! A small value is copied, because gathering cold items one by one costs the kernel more; a
//! large one is passed to the kernel in place.

use glasscache_store::{Held, Item};

use crate::session::send_vector::SendVector;

/// Values above this many bytes are sent in place.
pub(crate) const COPY_BYTES_MAX: u32 = 8 << 10;

/// The output of one run, borrowing large items until the worker passes.
pub(crate) struct Output<'w> {
    /// Rendered replies.
    pub(crate) bytes: Vec<u8>,
    large: Vec<Large<'w>>,
    large_bytes: usize,
    /// Holds on values of this output, in case that they have to wait for the socket.
    kept: Vec<Held>,
    /// Length up to which everything is the reply of an `mn` or comes before one.
    delivered: usize,
}

/// A value to be sent after the first `at` rendered bytes.
struct Large<'w> {
    at: usize,
    item: Item<'w>,
}

/// A position in the output to rewind to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    bytes: usize,
    large: usize,
    large_bytes: usize,
}

/// One piece of the output.
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
            delivered: 0,
        }
    }

    /// An output that is already rendered.
    pub(crate) fn rendered(bytes: Vec<u8>) -> Output<'w> {
        Output {
            bytes,
            large: Vec::new(),
            large_bytes: 0,
            kept: Vec::new(),
            delivered: 0,
        }
    }

    /// Returns the rendering buffer.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Keeps a value in place until the output is sent.
    pub(crate) fn keep(&mut self, held: Held) {
        self.kept.push(held);
    }

    /// Releases the kept values; returns whether there were any.
    pub(crate) fn release_kept(&mut self) -> bool {
        let had_any = !self.kept.is_empty();
        self.kept.clear();
        had_any
    }

    /// Bytes to send.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.large_bytes
    }

    /// An `mn` was executed: everything before its reply counts as sent.
    pub(crate) fn mark_delivered(&mut self) {
        self.delivered = self.len();
    }

    /// Whether the last command was an `mn`.
    pub(crate) fn is_delivered(&self) -> bool {
        self.len() == self.delivered
    }

    /// Appends an item's value and its line ending.
    #[inline]
    pub(crate) fn value(&mut self, item: Item<'w>) {
        self.short_value(item);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Appends an item's value.
    #[inline]
    pub(crate) fn short_value(&mut self, item: Item<'w>) {
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
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            large: self.large.len(),
            large_bytes: self.large_bytes,
        }
    }

    /// Removes what was appended since `mark`.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.large.truncate(mark.large);
        self.large_bytes = mark.large_bytes;
    }

    /// Whether everything is in `bytes`.
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

    /// The first `most` bytes of it, without the first `sent` bytes, for one `sendmsg`.
    pub(crate) fn gather(&self, sent: usize, most: usize) -> SendVector<'_> {
        let mut gathered = SendVector::new(sent, most);
        for part in self.parts() {
            let resume = match part {
                Part::Bytes(bytes) => gathered.push(bytes),
                Part::Value(item) => item.pieces().all(|piece| gathered.push(piece)),
            };
            if !resume {
                break;
            }
        }
        gathered
    }
}
