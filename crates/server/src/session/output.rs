//! The output of a run of the session: rendered bytes, and large values by reference.
//!
//! A small value is copied, because gathering cold items one by one costs the kernel more; a
//! large one is passed to the kernel in place.

use glasscache_store::{HeldValue, Item};

use crate::session::send_vector::SendVector;

/// Values above this many bytes are sent in place.
pub(crate) const COPY_BYTES_MAX: u32 = 8 << 10;

/// The output of one run, which borrows large items until the worker releases them ([`Worker::pass`]).
pub(crate) struct Output<'w> {
    /// Rendered replies.
    pub(crate) bytes: Vec<u8>,
    large_values: Vec<LargeValue<'w>>,
    large_value_bytes: usize,
    /// Holds on values of this output, in case that they have to wait for the socket.
    held_values: Vec<HeldValue>,
    /// Length up to which everything is the reply of an `mn` or comes before one.
    mn_reply_end: usize,
}

/// A value to be sent after the first `offset` rendered bytes.
struct LargeValue<'w> {
    offset: usize,
    item: Item<'w>,
}

/// A position in the output to rewind to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputPosition {
    rendered_bytes: usize,
    large_value_count: usize,
    large_value_bytes: usize,
}

/// One part of the output.
pub(crate) enum OutputPart<'o, 'w> {
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
            large_values: Vec::new(),
            large_value_bytes: 0,
            held_values: Vec::new(),
            mn_reply_end: 0,
        }
    }

    /// An output that is already rendered.
    pub(crate) fn from_rendered(bytes: Vec<u8>) -> Output<'w> {
        Output {
            bytes,
            large_values: Vec::new(),
            large_value_bytes: 0,
            held_values: Vec::new(),
            mn_reply_end: 0,
        }
    }

    /// Returns the rendering buffer.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Keeps a value in place until the output is sent.
    pub(crate) fn keep_held_value(&mut self, held_value: HeldValue) {
        self.held_values.push(held_value);
    }

    /// Releases the kept values; returns whether there were any.
    pub(crate) fn release_held_values(&mut self) -> bool {
        let had_any = !self.held_values.is_empty();
        self.held_values.clear();
        had_any
    }

    /// Bytes to send.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.large_value_bytes
    }

    /// Records that an `mn` was executed: everything before its reply counts as sent.
    pub(crate) fn mark_mn_reply(&mut self) {
        self.mn_reply_end = self.len();
    }

    /// Whether the last command was an `mn`.
    pub(crate) fn ends_with_mn_reply(&self) -> bool {
        self.len() == self.mn_reply_end
    }

    /// Appends an item's value and its line ending.
    #[inline]
    pub(crate) fn append_value_line(&mut self, item: Item<'w>) {
        self.append_value(item);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Appends an item's value.
    #[inline]
    pub(crate) fn append_value(&mut self, item: Item<'w>) {
        match item.value() {
            Some(value) if item.value_bytes() <= COPY_BYTES_MAX => {
                self.bytes.extend_from_slice(value);
            }
            _ => {
                self.large_value_bytes += item.value_bytes() as usize;
                self.large_values.push(LargeValue { offset: self.bytes.len(), item });
            }
        }
    }

    pub(crate) fn position(&self) -> OutputPosition {
        OutputPosition {
            rendered_bytes: self.bytes.len(),
            large_value_count: self.large_values.len(),
            large_value_bytes: self.large_value_bytes,
        }
    }

    /// Removes what was appended since `position`.
    pub(crate) fn rewind(&mut self, position: OutputPosition) {
        self.bytes.truncate(position.rendered_bytes);
        self.large_values.truncate(position.large_value_count);
        self.large_value_bytes = position.large_value_bytes;
    }

    /// Whether everything is in `bytes`.
    #[inline]
    pub(crate) fn is_all_rendered(&self) -> bool {
        self.large_values.is_empty()
    }

    /// The output in order, values by reference.
    pub(crate) fn parts(&self) -> impl Iterator<Item = OutputPart<'_, 'w>> {
        let mut part_start = 0;
        let earlier_parts = self.large_values.iter().flat_map(move |large_value| {
            let bytes = self.bytes.get(part_start..large_value.offset).unwrap_or_default();
            part_start = large_value.offset;
            [OutputPart::Bytes(bytes), OutputPart::Value(&large_value.item)]
        });
        let tail_start = self.large_values.last().map_or(0, |large_value| large_value.offset);
        let tail = self.bytes.get(tail_start..).unwrap_or_default();
        earlier_parts.chain(std::iter::once(OutputPart::Bytes(tail)))
    }

    /// The first `bytes_max` bytes of it, without the first `sent_bytes` bytes, for one `sendmsg`.
    pub(crate) fn gather(&self, sent_bytes: usize, bytes_max: usize) -> SendVector<'_> {
        let mut send_vector = SendVector::new(sent_bytes, bytes_max);
        for part in self.parts() {
            let has_room = match part {
                OutputPart::Bytes(bytes) => send_vector.push(bytes),
                OutputPart::Value(item) => item.pieces().all(|piece| send_vector.push(piece)),
            };
            if !has_room {
                break;
            }
        }
        send_vector
    }
}
