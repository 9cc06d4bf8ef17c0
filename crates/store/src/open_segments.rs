//! Appending: a worker's open segments, the choice of the segment for a record, and the writing of records.
//!
//! One segment is open per kind of record: new items by their TTL (so that segments tend to expire whole), promoted
//! items, compacted items that keep their position in the queue, and uploads. Only the worker appends, so there is
//! no lock; nothing in the segments is visible before a slot names it.

use std::cell::RefCell;
use std::sync::Arc;

use crate::item::{
    self, HEADER_BYTES_MAX, Header, PIECE_ADDRESS_BYTES, PIECE_COUNT_BYTES, PIECE_HEADER_BYTES,
    StoredUnique,
};
use crate::memory::{Addr, SegmentId};
use crate::request::{Expiry, KeyHash, Seconds};
use crate::segments::Queue;
use crate::store::Store;

/// What a worker writes into one of its open segments; it has one of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// New items that expire within ten minutes.
    ShortTtl,
    /// New items that expire within a day.
    MediumTtl,
    /// New items that live longer or never expire.
    LongTtl,
    /// Promoted items.
    Main,
    /// Compacted new items, which keep their position.
    SmallSurvivors,
    /// Compacted promoted items, which keep their position.
    MainSurvivors,
    /// Pieces of uploads.
    Upload,
}

const SEGMENT_KIND_COUNT: usize = SegmentKind::Upload as usize + 1;

/// TTLs up to this many seconds share segments: such items mostly expire within one pass of a small queue.
const SHORT_TTL_S_MAX: u32 = 600;
/// The bound of the middle class, in seconds.
const MEDIUM_TTL_S_MAX: u32 = 86_400;

/// An open segment older than this many seconds is sealed, so that its items can be evicted and expire whole.
const OPEN_SECONDS_MAX: u32 = 60;

/// A piece shorter than this is not worth its header: the value starts in the next segment.
const PIECE_BYTES_MIN: usize = 64;

/// Maximum number of bytes prefetched for the next record: a processor has about this many line fills in flight.
const PREFETCH_BYTES_MAX: usize = 1 << 10;

impl SegmentKind {
    /// The kind of segment for a new item with this expiry.
    pub(crate) fn for_new_item(expiry: Expiry, now: Seconds) -> SegmentKind {
        match expiry {
            Expiry::At(second) if second.0.saturating_sub(now.0) <= SHORT_TTL_S_MAX => {
                SegmentKind::ShortTtl
            }
            Expiry::At(second) if second.0.saturating_sub(now.0) <= MEDIUM_TTL_S_MAX => {
                SegmentKind::MediumTtl
            }
            _ => SegmentKind::LongTtl,
        }
    }

    /// The kind of segment for the head of a value whose pieces were uploaded: that of uploads, because a segment kept
    /// open for heads alone would stay nearly empty. Not if it expires within a day: pieces do not expire by
    /// themselves, but a segment of heads does, and removes their pieces.
    pub(crate) fn for_chain_head(self) -> SegmentKind {
        match self {
            SegmentKind::LongTtl => SegmentKind::Upload,
            kind => kind,
        }
    }

    fn queue(self) -> Queue {
        match self {
            SegmentKind::Main | SegmentKind::MainSurvivors => Queue::Main,
            _ => Queue::Small,
        }
    }

    /// Whether what is written into it enters the small queue at its young end.
    fn is_new(self) -> bool {
        self.queue() == Queue::Small && self != SegmentKind::SmallSurvivors
    }
}

/// A segment being filled.
struct OpenSegment {
    id: SegmentId,
    used_bytes: usize,
    base_time: Seconds,
    opened_at: Seconds,
    generation: u64,
    /// The latest expiry of the appended records.
    last_expiry_s: u32,
    /// The position in the queue that it inherits.
    queue_position: Option<u64>,
}

/// The origin of a new item's CAS unique.
#[derive(Debug, Clone, Copy)]
pub(crate) enum UniqueSource {
    /// The unique of the address if that is larger than the old item's, else a counted one.
    Above(u64),
    /// Exactly this.
    Exactly(u64),
    /// The unique of the address if that is larger than the old item's, which was not exposed; else the old item's.
    Renewed(u64),
}

/// An item about to be written.
pub(crate) struct NewRecord<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) unique_source: UniqueSource,
    /// Stale, win and fetched.
    pub(crate) state_bits: u16,
    pub(crate) last_access: Seconds,
    pub(crate) body: RecordBody<'a>,
}

/// The value of a new record.
#[derive(Clone, Copy)]
pub(crate) enum RecordBody<'a> {
    /// These slices one after the other, inside the item.
    Inline(&'a [&'a [u8]]),
    /// A chain of pieces that were written before.
    Chain {
        /// Sum of the pieces' data.
        value_bytes: u32,
        /// Their addresses.
        pieces: &'a [Addr],
    },
}

impl RecordBody<'_> {
    fn value_bytes(&self) -> u32 {
        match self {
            RecordBody::Inline(slices) => {
                slices.iter().map(|slice| slice.len()).sum::<usize>() as u32
            }
            RecordBody::Chain { value_bytes, .. } => *value_bytes,
        }
    }

    fn stored_bytes(&self) -> usize {
        match self {
            RecordBody::Inline(slices) => slices.iter().map(|slice| slice.len()).sum(),
            RecordBody::Chain { pieces, .. } => {
                PIECE_COUNT_BYTES + pieces.len() * PIECE_ADDRESS_BYTES
            }
        }
    }
}

/// A record that is written and counted as live, but not published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendedRecord {
    pub(crate) addr: Addr,
    pub(crate) bytes: usize,
    pub(crate) unique: u64,
    segment_kind: SegmentKind,
}

/// How to get a segment when the open one is full.
#[derive(Clone, Copy)]
pub(crate) struct SegmentRequest {
    /// Segments that must stay spare.
    pub(crate) spare_min: usize,
    /// The base time of the new segment.
    pub(crate) base_time: Seconds,
    /// The position in the queue that it inherits.
    pub(crate) queue_position: Option<u64>,
    pub(crate) now: Seconds,
}

/// All open segments of one worker.
pub(crate) struct Appender {
    store: Arc<Store>,
    open_segments: RefCell<[Option<OpenSegment>; SEGMENT_KIND_COUNT]>,
}

impl Appender {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Appender { store, open_segments: RefCell::default() }
    }

    /// Writes an item; `None` if a new segment is needed and none is available.
    pub(crate) fn append(
        &self,
        segment_kind: SegmentKind,
        new_record: &NewRecord<'_>,
        request: SegmentRequest,
    ) -> Option<AppendedRecord> {
        let store = &*self.store;
        let body_bytes = new_record.body.stored_bytes();
        let record_bytes_max =
            item::padded_bytes(HEADER_BYTES_MAX + new_record.key.len() + body_bytes);
        if record_bytes_max > store.arena().segment_bytes() {
            return None;
        }
        let flushes = &store.segments.flushes;
        let (addr, base_time) =
            self.find_record_space(segment_kind, record_bytes_max, request, |generation| {
                flushes.is_flushed(generation, || new_record.key)
            })?;
        let implied_unique = store.segments.implied_unique(addr);
        let stored_unique = match new_record.unique_source {
            UniqueSource::Above(old) | UniqueSource::Renewed(old) if implied_unique > old => None,
            UniqueSource::Above(old) => Some(store.segments.uniques.next_counted(old)),
            // INVARIANT: stored even if the address would give the same, because the next copy keeps the stored
            // one.
            UniqueSource::Exactly(unique) | UniqueSource::Renewed(unique) => Some(unique),
        };
        let header = Header {
            key_bytes: new_record.key.len(),
            value_bytes: new_record.body.value_bytes(),
            is_chained: matches!(new_record.body, RecordBody::Chain { .. }),
            flags: new_record.flags,
            expiry: new_record.expiry,
            unique: stored_unique.map(|unique| StoredUnique::new(unique, implied_unique)),
        };
        let mut header_buffer = [0; HEADER_BYTES_MAX];
        let header_bytes = header.write(base_time, &mut header_buffer);
        let record_bytes = item::padded_bytes(header_bytes + new_record.key.len() + body_bytes);
        let arena = store.arena();
        let access = item::encode_access(new_record.last_access.0.saturating_sub(base_time.0));
        arena
            .state_word(addr)
            .store(new_record.state_bits | access, std::sync::atomic::Ordering::Relaxed);
        arena.write(addr.plus(2), header_buffer.get(2..header_bytes).unwrap_or_default());
        arena.write(addr.plus(header_bytes), new_record.key);
        write_body(store, addr.plus(header_bytes + new_record.key.len()), &new_record.body);
        self.count_appended(segment_kind, addr, record_bytes, new_record.expiry);
        // The next record is probably about as long: its lines can be prefetched until it arrives.
        arena.prefetch_range(addr.plus(record_bytes), record_bytes.min(PREFETCH_BYTES_MAX));
        Some(AppendedRecord {
            addr,
            bytes: record_bytes,
            unique: stored_unique.unwrap_or(implied_unique),
            segment_kind,
        })
    }

    /// Writes the head of a piece and leaves its data to be filled; pinned until the value is committed.
    ///
    /// Takes at most `wanted_bytes` bytes of data, less when the open segment ends before.
    pub(crate) fn append_piece(
        &self,
        segment_kind: SegmentKind,
        hash: KeyHash,
        wanted_bytes: usize,
        request: SegmentRequest,
    ) -> Option<(Addr, usize)> {
        let store = &*self.store;
        let record_bytes_min =
            item::padded_bytes(PIECE_HEADER_BYTES + wanted_bytes.min(PIECE_BYTES_MIN));
        // A piece lives as long as its head does, in whatever segment it is.
        let (addr, _) =
            self.find_record_space(segment_kind, record_bytes_min, request, |generation| {
                generation < store.segments.flushes.living_generation_min()
            })?;
        let segment_bytes_left = store.arena().segment_bytes() - store.arena().offset_of(addr);
        let data_bytes = wanted_bytes.min(segment_bytes_left - PIECE_HEADER_BYTES);
        store.arena().write(addr, &item::piece_header(data_bytes, hash.0));
        store.segments.pin(addr);
        // The head of a piece decides how long the piece lives; the segment cannot expire whole by itself.
        self.count_appended(
            segment_kind,
            addr,
            item::piece_record_bytes(data_bytes),
            Expiry::Never,
        );
        Some((addr, data_bytes))
    }

    /// Removes the record that was written last, if nothing was appended since; otherwise its bytes stay as dead
    /// ones.
    pub(crate) fn undo_append(&self, appended: &AppendedRecord) {
        let store = &*self.store;
        if let Some(Some(open)) =
            self.open_segments.borrow_mut().get_mut(appended.segment_kind as usize)
            && store.arena().segment_start(open.id).plus(open.used_bytes)
                == appended.addr.plus(appended.bytes)
        {
            open.used_bytes -= appended.bytes;
        }
        store.segments.count_dead(appended.addr, appended.bytes);
    }

    /// How many bytes the open segment of `segment_kind` has left.
    pub(crate) fn open_bytes_left(&self, segment_kind: SegmentKind) -> usize {
        let open_segments = self.open_segments.borrow();
        let current_segment = open_segments.get(segment_kind as usize);
        current_segment
            .and_then(Option::as_ref)
            .map_or(0, |open| self.store.arena().segment_bytes() - open.used_bytes)
    }

    /// Seals segments that are older than the bound or expired as a whole; without a time, all.
    pub(crate) fn seal(&self, now: Option<Seconds>) {
        self.seal_where(|open| {
            now.is_none_or(|now| {
                open.opened_at.0 + OPEN_SECONDS_MAX <= now.0 || open.last_expiry_s <= now.0
            })
        });
    }

    /// Closes the segments of a lower generation.
    pub(crate) fn seal_outdated(&self, generation_min: u64) {
        self.seal_where(|open| open.generation < generation_min);
    }

    fn seal_where(&self, is_due: impl Fn(&OpenSegment) -> bool) {
        for current_segment in self.open_segments.borrow_mut().iter_mut() {
            if current_segment.as_ref().is_some_and(&is_due)
                && let Some(due) = current_segment.take()
            {
                self.store.segments.seal(
                    due.id,
                    due.used_bytes,
                    due.last_expiry_s,
                    due.queue_position,
                );
            }
        }
    }

    /// Finds where the next record of `segment_kind` goes, and the base time of the segment: in the open segment, or
    /// in a new one if that has too few bytes left or a record in a segment of its generation `is_flushed` already.
    fn find_record_space(
        &self,
        segment_kind: SegmentKind,
        record_bytes_min: usize,
        request: SegmentRequest,
        is_flushed: impl FnOnce(u64) -> bool,
    ) -> Option<(Addr, Seconds)> {
        let store = &*self.store;
        let mut open_segments = self.open_segments.borrow_mut();
        let current_segment = open_segments.get_mut(segment_kind as usize)?;
        let has_room = |open: &OpenSegment| {
            open.used_bytes + record_bytes_min <= store.arena().segment_bytes()
                && !is_flushed(open.generation)
        };
        if !current_segment.as_ref().is_some_and(has_room) {
            if let Some(full) = current_segment.take() {
                store.segments.seal(
                    full.id,
                    full.used_bytes,
                    full.last_expiry_s,
                    full.queue_position,
                );
            }
            let base_time = Seconds(request.base_time.0.min(request.now.0));
            let id = store.segments.open(request.spare_min, segment_kind.queue(), base_time)?;
            if segment_kind.is_new() {
                store.segments.record_age(id, 0, store.young_bytes());
            }
            let (generation, _) =
                store.segments.generation_and_base_time(store.arena().segment_start(id));
            *current_segment = Some(OpenSegment {
                id,
                used_bytes: 0,
                base_time,
                opened_at: request.now,
                generation,
                last_expiry_s: 0,
                queue_position: request.queue_position,
            });
        }
        let open = current_segment.as_ref()?;
        Some((store.arena().segment_start(open.id).plus(open.used_bytes), open.base_time))
    }

    fn count_appended(&self, segment_kind: SegmentKind, addr: Addr, bytes: usize, expiry: Expiry) {
        self.store.segments.count_live(addr, bytes);
        if let Some(Some(open)) = self.open_segments.borrow_mut().get_mut(segment_kind as usize) {
            open.used_bytes += bytes;
            let segments = &self.store.segments;
            if segment_kind.is_new() && segments.entered.count(open.used_bytes, bytes) {
                segments.record_age(open.id, open.used_bytes, self.store.young_bytes());
            }
            open.last_expiry_s = open.last_expiry_s.max(match expiry {
                Expiry::Never => u32::MAX,
                Expiry::At(second) => second.0,
            });
        }
    }

    /// Segment and bytes used of every open segment, for the audit.
    #[cfg(any(test, feature = "strict"))]
    pub(crate) fn list_segments(&self, mut visit: impl FnMut(SegmentId, usize)) {
        self.open_segments
            .borrow()
            .iter()
            .flatten()
            .for_each(|open| visit(open.id, open.used_bytes));
    }
}

fn write_body(store: &Store, mut addr: Addr, body: &RecordBody<'_>) {
    let arena = store.arena();
    match body {
        RecordBody::Inline(slices) => {
            for slice in *slices {
                arena.write(addr, slice);
                addr = addr.plus(slice.len());
            }
        }
        RecordBody::Chain { pieces, .. } => {
            arena.write(addr, &(pieces.len() as u32).to_le_bytes());
            addr = addr.plus(PIECE_COUNT_BYTES);
            for piece in *pieces {
                arena.write(
                    addr,
                    piece.0.to_le_bytes().get(..PIECE_ADDRESS_BYTES).unwrap_or_default(),
                );
                addr = addr.plus(PIECE_ADDRESS_BYTES);
            }
        }
    }
}
