//! Calls that belong to a request of the application: its record, which a [`Budget`](crate::Budget) names, notes each.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The record of one request of an application, such as `glasscache_record::Request`.
///
/// Its methods delay the calls that they note, so they must not wait.
pub trait RequestRecord: fmt::Debug + Send + Sync {
    /// Notes that a call begins which reads these keys (without their namespace), children of `parent` if the caller
    /// names one. Returns the positions of the reads in the record, fewer than there are keys once it is full.
    fn begin_read(
        &self,
        keys: &mut dyn Iterator<Item = Cow<'_, [u8]>>,
        parent: Option<&[u8]>,
    ) -> Range<usize>;

    /// Notes that a call begins which writes.
    fn begin_write(&self);

    /// Notes that the application changes a key (without its namespace) in place, as by `add`, `cas` or `incr`, or reads
    /// the unique for it: a strategy that is chosen by the record does not keep it.
    fn note_changed_key(&self, key: &[u8]);

    /// Notes that the application stores a key (without its namespace) with a TTL in seconds: a kept value ends with it.
    fn note_ttl(&self, key: &[u8], ttl_s: u32);

    /// Notes the bytes of the value that the read at a position found, as stored remotely.
    fn set_size(&self, read_position: usize, value_bytes: usize);

    /// Notes that the caller of a call has resumed.
    fn end_call(&self);
}

/// A call that a record notes, if there is one; its drop notes that the caller has resumed or given up.
#[derive(Debug, Default)]
pub(crate) struct RecordedCall<'g> {
    record: Option<&'g dyn RequestRecord>,
    read_positions: Range<usize>,
}

impl<'g> RecordedCall<'g> {
    pub(crate) fn begin_read<'k>(
        record: Option<&'g dyn RequestRecord>,
        mut keys: impl Iterator<Item = Cow<'k, [u8]>>,
        parent: Option<&[u8]>,
    ) -> Self {
        let read_positions = record.map(|record| record.begin_read(&mut keys, parent));
        Self { record, read_positions: read_positions.unwrap_or_default() }
    }

    pub(crate) fn begin_write(record: Option<&'g dyn RequestRecord>) -> Self {
        if let Some(record) = record {
            record.begin_write();
        }
        Self { record, read_positions: 0..0 }
    }

    /// Notes the bytes of the value under the key at `index`.
    pub(crate) fn set_size(&self, index: usize, value_bytes: usize) {
        if let (Some(record), Some(read_position)) =
            (self.record, self.read_positions.clone().nth(index))
        {
            record.set_size(read_position, value_bytes);
        }
    }
}

impl Drop for RecordedCall<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record {
            record.end_call();
        }
    }
}
