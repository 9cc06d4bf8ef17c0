//! Lookups of up to 16 keys at once: hash and prefetch buckets, prefetch items, then verify and reply.
//!
//! One by one, each lookup waits twice for memory; in three passes the waits overlap.

use arrayvec::ArrayVec;
use glasscache_protocol::binary::{Get, HEADER_BYTES, OpcodeAndOpaque};
use glasscache_protocol::command::GetHead;
use glasscache_protocol::meta::MetaLine;
use glasscache_protocol::replies;
use glasscache_store::{BucketPrefetch, KeyHash, LookupHint};

use super::get::{count_gets, execute_binary_get, execute_meta_get_hinted, execute_text_get};
use super::reply_memory;
use crate::session::context::Context;
use crate::session::output::{Output, OutputPosition};
use crate::shared::peer_memory::Pressure;

/// Lookups made together: more gains nothing, because a core has 10 to 16 line fills in flight.
const BATCH_LOOKUPS: usize = 16;

/// One key to look up.
pub(crate) struct Lookup<'b, 'w> {
    key: &'b [u8],
    hash: KeyHash,
    /// Its bucket, which is being prefetched.
    prefetch: BucketPrefetch<'w>,
    kind: LookupKind,
}

enum LookupKind {
    Text {
        head: GetHead,
        /// Whether it is the first key of its line.
        is_first: bool,
        /// Whether it is the last key of its line, which `END` follows.
        ends_line: bool,
    },
    /// The index of its line in the batch's meta lines; the line itself would make every lookup three times as
    /// large.
    Meta(u8),
    /// A read of the binary protocol and, of a gat or touch, the new exptime.
    Binary(OpcodeAndOpaque, Option<u32>),
}

impl<'b, 'w> Lookup<'b, 'w> {
    /// A key of a get line.
    #[inline]
    pub(crate) fn text(
        key: &'b [u8],
        head: GetHead,
        is_first: bool,
        context: &Context<'w>,
    ) -> Self {
        let kind = LookupKind::Text { head, is_first, ends_line: false };
        Self::new(key, kind, context)
    }

    /// The only key of a `get`.
    #[inline]
    pub(crate) fn single(key: &'b [u8], context: &Context<'w>) -> Self {
        let kind = LookupKind::Text { head: GetHead::default(), is_first: true, ends_line: true };
        Self::new(key, kind, context)
    }

    /// The key of a request of the binary protocol.
    #[inline]
    pub(crate) fn binary(request: OpcodeAndOpaque, get: &Get<'b>, context: &Context<'w>) -> Self {
        Self::new(get.key, LookupKind::Binary(request, get.touch), context)
    }

    #[inline]
    fn new(key: &'b [u8], kind: LookupKind, context: &Context<'w>) -> Self {
        let hash = context.store_worker.store().hash(key);
        Lookup { key, hash, prefetch: context.store_worker.prefetch_bucket(hash), kind }
    }
}

/// Lookups whose buckets are being prefetched.
pub(crate) struct Batch<'b, 'w> {
    lookups: ArrayVec<Lookup<'b, 'w>, BATCH_LOOKUPS>,
    /// The lines of the `mg` lookups.
    meta_lines: ArrayVec<MetaLine<'b>, BATCH_LOOKUPS>,
}

impl<'b, 'w> Batch<'b, 'w> {
    pub(crate) fn new() -> Self {
        Batch { lookups: ArrayVec::new(), meta_lines: ArrayVec::new() }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.lookups.is_full()
    }

    /// Adds a lookup; INVARIANT: the batch is not full.
    #[inline]
    pub(crate) fn push(&mut self, lookup: Lookup<'b, 'w>) {
        // A full batch would lose a reply; the caller checks first.
        debug_assert!(!self.is_full());
        let _ = self.lookups.try_push(lookup);
    }

    /// Adds an `mg` with a plain key; INVARIANT: the batch is not full.
    #[inline]
    pub(crate) fn push_meta(&mut self, line: MetaLine<'b>, context: &Context<'w>) {
        let kind = LookupKind::Meta(self.meta_lines.len() as u8);
        let _ = self.meta_lines.try_push(line);
        self.push(Lookup::new(line.key, kind, context));
    }

    /// Marks the last key as the last one of its line.
    #[inline]
    pub(crate) fn end_line(&mut self, out: &mut Output<'_>) {
        match self.lookups.last_mut() {
            Some(Lookup { kind: LookupKind::Text { ends_line, .. }, .. }) => *ends_line = true,
            _ => out.bytes.extend_from_slice(replies::END),
        }
    }

    /// Makes the lookups in order and returns where the reply of the last get line that began here begins.
    ///
    /// If the slice is full, a large value needs memory that is not available, or a read that writes has to wait
    /// for a segment, the batch is stopped: that lookup and those after it are not made.
    #[inline]
    pub(crate) fn execute_lookups(
        &mut self,
        context: &Context<'w>,
        out: &mut Output<'w>,
    ) -> (Option<OutputPosition>, Option<StoppedLookup<'b>>) {
        if self.lookups.is_empty() {
            return (None, None);
        }
        let store_worker = context.store_worker;
        let mut hints = [LookupHint::default(); BATCH_LOOKUPS];
        for (lookup, hint) in self.lookups.iter().zip(&mut hints) {
            *hint = store_worker.prefetch_item(lookup.hash, lookup.prefetch);
        }
        for (lookup, hint) in self.lookups.iter().zip(&mut hints) {
            *hint = store_worker.prefetch_next_line(lookup.hash, *hint);
        }
        if self.lookups.is_full() {
            context.counters.batches.bump();
        }
        let (mut last_line_start, mut stopped) = (None, None);
        let (mut gets, mut hits) = (0, 0);
        for (index, (lookup, hint)) in self.lookups.iter().zip(hints).enumerate() {
            if context.is_output_full(out) || context.pressure != Pressure::Low {
                stopped = self.stop_for_memory(index, context, out);
                if stopped.is_some() {
                    break;
                }
            }
            let located_key = (lookup.key, lookup.hash, hint);
            match &lookup.kind {
                LookupKind::Meta(line_index) => {
                    if let Some(line) = self.meta_lines.get(usize::from(*line_index))
                        && execute_meta_get_hinted(line, located_key, context, out).is_err()
                    {
                        stopped = self.stop_before(index, StopReason::Segment);
                        break;
                    }
                }
                LookupKind::Binary(request, touch) => {
                    let Ok(is_hit) =
                        execute_binary_get(*request, *touch, located_key, context, out)
                    else {
                        stopped = self.stop_before(index, StopReason::Segment);
                        break;
                    };
                    if touch.is_none() {
                        gets += 1;
                        hits += u64::from(is_hit);
                    }
                }
                LookupKind::Text { head, is_first, ends_line } => {
                    if *is_first {
                        last_line_start = Some(out.position());
                    }
                    let Ok(is_hit) = execute_text_get(head, located_key, context, out) else {
                        stopped = self.stop_before(index, StopReason::Segment);
                        break;
                    };
                    if head.touch.is_none() {
                        gets += 1;
                        hits += u64::from(is_hit);
                    }
                    if *ends_line {
                        out.bytes.extend_from_slice(replies::END);
                    }
                }
            }
        }
        count_gets(context, gets, hits);
        self.lookups.clear();
        self.meta_lines.clear();
        (last_line_start, stopped)
    }
}

/// The lookup at which a batch was stopped.
pub(crate) struct StoppedLookup<'b> {
    /// Its key, in the input.
    pub(crate) key: &'b [u8],
    pub(crate) command: StoppedCommand,
    /// Key bytes from it to the end of the batch, if all are of its line and the line continues.
    pub(crate) line_key_bytes: Option<usize>,
    pub(crate) reason: StopReason,
}

/// The command that a batch was stopped in.
#[derive(Clone, Copy)]
pub(crate) enum StoppedCommand {
    /// A get line: its head, and whether the key is the first key of the line.
    Text(GetHead, bool),
    /// An `mg` line.
    Meta,
    /// A packet of the binary protocol, in which this many bytes precede the key.
    Binary { bytes_before_key: usize },
}

/// What is missing for the lookup at which a batch was stopped.
#[derive(Clone, Copy)]
pub(crate) enum StopReason {
    /// The slice is full.
    SliceFull,
    /// This many bytes of the memory that peers may hold.
    Memory(usize),
    /// A segment for its write.
    Segment,
}

impl<'b> Batch<'b, '_> {
    /// Stops the batch before the lookup at `index`, if its reply gets no memory.
    #[cold]
    fn stop_for_memory(
        &self,
        index: usize,
        context: &Context<'_>,
        out: &mut Output<'_>,
    ) -> Option<StoppedLookup<'b>> {
        if context.is_output_full(out) {
            return self.stop_before(index, StopReason::SliceFull);
        }
        let lookup = self.lookups.get(index)?;
        match reply_memory::missing_bytes(lookup.key, lookup.hash, context, out) {
            0 => None,
            missing_bytes => self.stop_before(index, StopReason::Memory(missing_bytes)),
        }
    }

    /// Stops the batch before the lookup at `index`.
    #[cold]
    fn stop_before(&self, index: usize, reason: StopReason) -> Option<StoppedLookup<'b>> {
        let lookups_left = self.lookups.get(index..).unwrap_or_default();
        let lookup = lookups_left.first()?;
        let command = match lookup.kind {
            LookupKind::Meta(_) => StoppedCommand::Meta,
            LookupKind::Binary(_, touch) => StoppedCommand::Binary {
                bytes_before_key: HEADER_BYTES + touch.map_or(0, |_| size_of::<u32>()),
            },
            LookupKind::Text { head, is_first, .. } => StoppedCommand::Text(head, is_first),
        };
        let ends_line = |lookup: &Lookup<'_, '_>| {
            !matches!(lookup.kind, LookupKind::Text { ends_line: false, .. })
        };
        Some(StoppedLookup {
            key: lookup.key,
            command,
            line_key_bytes: (!lookups_left.iter().any(ends_line))
                .then(|| lookups_left.iter().map(|lookup| lookup.key.len()).sum()),
            reason,
        })
    }
}
