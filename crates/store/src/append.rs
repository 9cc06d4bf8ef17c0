//! Appending: a worker's open segments, where its next records go, and how they get there.
//!
//! One segment is open per kind of record: newcomers by how long they will live (so that segments tend to
//! expire whole), proven items, what compaction rewrites in its old place in the queue, and uploads. Only
//! the worker appends, so there is no lock; nothing in them can be seen before a slot names it.

use std::cell::RefCell;
use std::sync::Arc;

use crate::item::{self, HEADER_MAX, Header, PIECE_ADDRESS, PIECE_COUNT, PIECE_HEADER};
use crate::memory::{Addr, SegmentId};
use crate::request::{Expiry, KeyHash, Seconds};
use crate::segments::Queue;
use crate::store::Store;

/// The open segments of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    /// Newcomers that die within ten minutes.
    Brief,
    /// Newcomers that die within a day.
    Daily,
    /// Newcomers that live longer, or for ever.
    Lasting,
    /// Items that proved themselves.
    Main,
    /// Compacted newcomers, in their old place.
    AgedSmall,
    /// Compacted proven items, in their old place.
    AgedMain,
    /// Pieces of uploads.
    Upload,
}

const LOGS: usize = Log::Upload as usize + 1;

/// TTLs up to this many seconds share segments: what lives that long mostly dies within one turn of a small queue.
const BRIEF_S: u32 = 600;
/// The bound of the middle class, in seconds.
const DAILY_S: u32 = 86_400;

/// An open segment older than this many seconds is sealed, so that what it holds can be evicted and expire whole.
const OPEN_MAX_S: u32 = 60;

/// A piece shorter than this is not worth its header: the value starts in the next segment.
const PIECE_MIN: usize = 64;

/// Bytes asked for ahead of the next record, at most: a processor has about this many line fills in flight.
const AHEAD_BYTES_MAX: usize = 1 << 10;

impl Log {
    /// Where a newcomer with this expiry goes.
    pub(crate) fn of(expiry: Expiry, now: Seconds) -> Log {
        match expiry {
            Expiry::At(at) if at.0.saturating_sub(now.0) <= BRIEF_S => Log::Brief,
            Expiry::At(at) if at.0.saturating_sub(now.0) <= DAILY_S => Log::Daily,
            _ => Log::Lasting,
        }
    }

    /// Where the head of a value goes whose pieces were uploaded: beside them, for a segment held open for heads alone
    /// would stay nearly empty. Not if it dies within a day: pieces do not expire by themselves, but a segment of heads
    /// does, and takes their pieces along.
    pub(crate) fn of_head(self) -> Log {
        match self {
            Log::Lasting => Log::Upload,
            other => other,
        }
    }

    fn queue(self) -> Queue {
        match self {
            Log::Main | Log::AgedMain => Queue::Main,
            _ => Queue::Small,
        }
    }
}

/// A segment being filled.
struct Open {
    id: SegmentId,
    used: usize,
    base: Seconds,
    opened: Seconds,
    generation: u64,
    /// The latest expiry of what was appended.
    expires: u32,
    /// The place in the queue that it inherits.
    order: Option<u64>,
}

/// Where a new item's unique comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unique {
    /// What the address gives if that is larger than the old item's, else one that is counted.
    Above(u64),
    /// Exactly this.
    Exactly(u64),
    /// What the address gives if that is larger than the old item's, which nobody was told; else the old item's.
    Renewed(u64),
}

/// An item about to be written.
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) unique: Unique,
    /// Stale, win and fetched.
    pub(crate) marks: u16,
    pub(crate) access: Seconds,
    pub(crate) body: Body<'a>,
}

/// The value of a draft.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// One after the other, in the item itself.
    Inline(&'a [&'a [u8]]),
    /// Pieces that were written before.
    Chain {
        /// Sum of the pieces' data.
        value_bytes: u32,
        /// Their addresses.
        pieces: &'a [Addr],
    },
}

impl Body<'_> {
    fn value_bytes(&self) -> u32 {
        match self {
            Body::Inline(parts) => parts.iter().map(|part| part.len()).sum::<usize>() as u32,
            Body::Chain { value_bytes, .. } => *value_bytes,
        }
    }

    fn stored_bytes(&self) -> usize {
        match self {
            Body::Inline(parts) => parts.iter().map(|part| part.len()).sum(),
            Body::Chain { pieces, .. } => PIECE_COUNT + pieces.len() * PIECE_ADDRESS,
        }
    }
}

/// A record that was written and counted as live, but not published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) at: Addr,
    pub(crate) bytes: usize,
    pub(crate) unique: u64,
    log: Log,
}

/// How to find a segment when the open one is full.
#[derive(Clone, Copy)]
pub(crate) struct Refill {
    /// Segments that must stay spare.
    pub(crate) floor: usize,
    /// The base second of the new segment.
    pub(crate) base: Seconds,
    /// The place in the queue that it inherits.
    pub(crate) order: Option<u64>,
    pub(crate) now: Seconds,
}

/// All open segments of one worker.
pub(crate) struct Appender {
    store: Arc<Store>,
    open: RefCell<[Option<Open>; LOGS]>,
}

impl Appender {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Appender {
            store,
            open: RefCell::default(),
        }
    }

    /// Writes an item; `None` if a segment is needed and none is to be had.
    pub(crate) fn place(&self, log: Log, draft: &Draft<'_>, refill: Refill) -> Option<Placed> {
        let store = &*self.store;
        let stored = draft.body.stored_bytes();
        let bytes_max = item::padded(HEADER_MAX + draft.key.len() + stored);
        if bytes_max > store.arena().segment_bytes() {
            return None;
        }
        let (at, base) = self.room(log, bytes_max, refill)?;
        let implied = store.segments.implied_unique(at);
        let stored_unique = match draft.unique {
            Unique::Above(old) | Unique::Renewed(old) if implied > old => None,
            Unique::Above(old) => Some(store.segments.counted_unique(old)),
            // INVARIANT: stored even where the address would give the same, for the next copy keeps what is stored.
            Unique::Exactly(unique) | Unique::Renewed(unique) => Some(unique),
        };
        let header = Header {
            key_bytes: draft.key.len(),
            value_bytes: draft.body.value_bytes(),
            is_chained: matches!(draft.body, Body::Chain { .. }),
            flags: draft.flags,
            expiry: draft.expiry,
            unique: stored_unique,
        };
        let mut bytes = [0; HEADER_MAX];
        let header_bytes = header.write(base, &mut bytes);
        let total = item::padded(header_bytes + draft.key.len() + stored);
        let arena = store.arena();
        let access = item::encode_access(draft.access.0.saturating_sub(base.0));
        arena
            .mutable(at)
            .store(draft.marks | access, std::sync::atomic::Ordering::Relaxed);
        arena.write(at.plus(2), bytes.get(2..header_bytes).unwrap_or_default());
        arena.write(at.plus(header_bytes), draft.key);
        write_body(store, at.plus(header_bytes + draft.key.len()), &draft.body);
        self.advance(log, at, total, draft.expiry);
        // The next record is probably about as long: until it comes its lines have the time of a request.
        arena.prefetch_all(at.plus(total), total.min(AHEAD_BYTES_MAX));
        Some(Placed {
            at,
            bytes: total,
            unique: stored_unique.unwrap_or(implied),
            log,
        })
    }

    /// Writes the head of a piece and leaves its data to be filled; pinned until the value is committed.
    ///
    /// Takes at most `wanted` bytes of data, less when the open segment ends before.
    pub(crate) fn place_piece(
        &self,
        log: Log,
        hash: KeyHash,
        wanted: usize,
        refill: Refill,
    ) -> Option<(Addr, usize)> {
        let store = &*self.store;
        let least = item::padded(PIECE_HEADER + wanted.min(PIECE_MIN));
        let (at, _) = self.room(log, least, refill)?;
        let rest = store.arena().segment_bytes() - store.arena().offset_of(at);
        let data_bytes = wanted.min(rest - PIECE_HEADER);
        store.arena().write(at, &item::piece(data_bytes, hash.0));
        store.segments.pin(at);
        // What a piece's life is worth its head says; the segment cannot expire whole by itself.
        self.advance(log, at, item::piece_bytes(data_bytes), Expiry::Never);
        Some((at, data_bytes))
    }

    /// Takes back the record that was written last, if nothing was appended since; else it stays as dead bytes.
    pub(crate) fn undo(&self, placed: &Placed) {
        let store = &*self.store;
        if let Some(Some(open)) = self.open.borrow_mut().get_mut(placed.log as usize)
            && store.arena().start(open.id).plus(open.used) == placed.at.plus(placed.bytes)
        {
            open.used -= placed.bytes;
        }
        store.segments.unlive(placed.at, placed.bytes);
    }

    /// How many bytes the open segment of `log` has left.
    pub(crate) fn rest(&self, log: Log) -> usize {
        let open = self.open.borrow();
        let open = open.get(log as usize).and_then(Option::as_ref);
        open.map_or(0, |open| self.store.arena().segment_bytes() - open.used)
    }

    /// Seals what is older than the bound or expired as a whole; without a time, everything.
    pub(crate) fn seal(&self, now: Option<Seconds>) {
        for open in self.open.borrow_mut().iter_mut() {
            let is_due = |open: &Open| {
                now.is_none_or(|now| open.opened.0 + OPEN_MAX_S <= now.0 || open.expires <= now.0)
            };
            if open.as_ref().is_some_and(is_due)
                && let Some(old) = open.take()
            {
                self.store
                    .segments
                    .seal(old.id, old.used, old.expires, old.order);
            }
        }
    }

    fn room(&self, log: Log, bytes: usize, refill: Refill) -> Option<(Addr, Seconds)> {
        let store = &*self.store;
        let mut all = self.open.borrow_mut();
        let place = all.get_mut(log as usize)?;
        let fits = |open: &Open| {
            open.used + bytes <= store.arena().segment_bytes()
                && open.generation == store.segments.generation()
        };
        if !place.as_ref().is_some_and(fits) {
            if let Some(full) = place.take() {
                store
                    .segments
                    .seal(full.id, full.used, full.expires, full.order);
            }
            let generation = store.segments.generation();
            let base = Seconds(refill.base.0.min(refill.now.0));
            let id = store.segments.open(refill.floor, log.queue(), base)?;
            *place = Some(Open {
                id,
                used: 0,
                base,
                opened: refill.now,
                generation,
                expires: 0,
                order: refill.order,
            });
        }
        let open = place.as_ref()?;
        Some((store.arena().start(open.id).plus(open.used), open.base))
    }

    fn advance(&self, log: Log, at: Addr, bytes: usize, expiry: Expiry) {
        self.store.segments.live(at, bytes);
        if let Some(Some(open)) = self.open.borrow_mut().get_mut(log as usize) {
            open.used += bytes;
            open.expires = open.expires.max(match expiry {
                Expiry::Never => u32::MAX,
                Expiry::At(at) => at.0,
            });
        }
    }

    /// Segment and bytes used of every open segment, for the audit.
    #[cfg(any(test, feature = "strict"))]
    pub(crate) fn each(&self, mut visit: impl FnMut(SegmentId, usize)) {
        self.open
            .borrow()
            .iter()
            .flatten()
            .for_each(|open| visit(open.id, open.used));
    }
}

fn write_body(store: &Store, mut at: Addr, body: &Body<'_>) {
    let arena = store.arena();
    match body {
        Body::Inline(parts) => {
            for part in *parts {
                arena.write(at, part);
                at = at.plus(part.len());
            }
        }
        Body::Chain { pieces, .. } => {
            arena.write(at, &(pieces.len() as u32).to_le_bytes());
            at = at.plus(PIECE_COUNT);
            for piece in *pieces {
                arena.write(
                    at,
                    piece
                        .0
                        .to_le_bytes()
                        .get(..PIECE_ADDRESS)
                        .unwrap_or_default(),
                );
                at = at.plus(PIECE_ADDRESS);
            }
        }
    }
}
