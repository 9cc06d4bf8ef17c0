//! The shared part of the store: its components, its budget, and the operations that concern all workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

use crate::counters::{self, CounterBlock, Counters};
use crate::error::Error;
use crate::eviction_reports::EvictionReports;
use crate::flush::Flushes;
use crate::ghost::Ghost;
use crate::index::{Index, LINES_MAX, SegmentSource};
use crate::item::HEADER_BYTES_MAX;
use crate::memory::arena::LINE_BYTES;
use crate::memory::{Arena, Lines, SegmentId};
use crate::policy::{Policy, PolicyKind};
use crate::prefix_flushes::TableFull;
use crate::request::{KeyHash, Seconds};
use crate::sampling::Sampling;
use crate::segments::{Budget, SEGMENTS_FOR_EVICTION, Segments};
use crate::tuning::{ChangeableSettings, PolicySettings};
use crate::uploads::{IdleUpload, PIECE_BYTES_MAX, Uploads};

/// The settings of a store, fixed at start.
#[derive(Debug, Clone)]
pub struct Config {
    /// `-m` in bytes: items, buffers, and the index beyond its share outside of it.
    pub memory_bytes: u64,
    /// `-I`: largest item (memcached's measure: key + value + its header).
    pub item_bytes_max: u32,
    /// False under `-M`: refuse instead of evicting.
    pub evict: bool,
    /// Maximum number of [`crate::Worker`]s.
    pub workers: usize,
    /// Seed of the key hash; random in production, fixed in tests.
    pub hash_seed: u64,
    /// Whether operations are sampled for a [`crate::LiveModel`], which has to take the events.
    pub samples: bool,
    /// memcached's chunk sizes at the given -f and -n; the store counts the chunks that its items would occupy.
    pub slab_chunk_bytes: Vec<u32>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            workers: 4,
            hash_seed: 0,
            samples: false,
            slab_chunk_bytes: Vec::new(),
        }
    }
}

/// The minimum memory of a store.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Minimum number of segments in `-m`: their size is rounded down to a power of two.
const SEGMENTS_MIN: u64 = 512;
/// Smallest segment: a store of 2 MiB then has 256 of them, more than its workers hold open.
const SEGMENT_SHIFT_MIN: u32 = 13;
/// Largest segment, 1 MiB: larger ones would only make sweeps coarser.
const SEGMENT_SHIFT_MAX: u32 = 20;
/// Index and ghost are outside of `-m` up to `-m` divided by this, plus [`INDEX_OUTSIDE_BYTES`].
const INDEX_OUTSIDE_DIVISOR: u64 = 50;
/// Bytes of index and ghost that are outside of `-m` in addition, less the reserve. The program itself, its stacks and
/// 4,000 connections take up to 8 MiB, so that the whole stays below 1.02 x `-m` + 16 MiB with 3 MiB to spare.
const INDEX_OUTSIDE_BYTES: u64 = 5 << 20;
/// A small store keeps the proportion: at most an eighth is outside of it.
const INDEX_OUTSIDE_DIVISOR_MIN: u64 = 8;
/// How far `cache_memlimit` can raise the limit: the addresses of the arena are mapped at start, if available.
const MAPPED_LIMIT_FACTOR: u64 = 4;
/// Bytes that workers may write between two passes while nothing of their own past can be reclaimed.
const RESERVE_BYTES: usize = 128 << 10;
/// Uncommitted uploads may take this much even if it is more than an eighth of the memory.
const UPLOAD_BYTES_MIN: u64 = 8 << 20;
/// memcached's bytes for an item besides key and value: header, CAS unique, key's end, line end.
const MEMCACHED_HEADER_BYTES: usize = 48 + 8 + 1 + 2;
/// memcached's bytes for client flags other than 0.
const MEMCACHED_FLAGS_BYTES: usize = 4;

/// The store, shared by all workers.
pub struct Store {
    config: Config,
    secrets: RapidSecrets,
    pub(crate) segments: Segments,
    pub(crate) index: Index,
    pub(crate) ghost: Ghost,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) counter_blocks: Box<[CounterBlock]>,
    pub(crate) uploads: Uploads,
    pub(crate) reports: EvictionReports,
    pub(crate) sampling: Sampling,
    /// Approximate number of items; workers add their part from time to time.
    pub(crate) approximate_item_count: AtomicI64,
    /// Position of the last swept segment in its queue.
    pub(crate) last_swept_position: AtomicU64,
    /// Spare segments that eviction keeps ahead of the writers.
    reserve_segments: usize,
    memory_bytes: AtomicU64,
    buffer_bytes: AtomicI64,
    /// Bytes of the table of flushed prefixes that are charged as buffers.
    prefix_table_bytes: AtomicI64,
}

impl Store {
    /// Makes an empty store. Memory is mapped and not yet backed.
    pub fn new(config: Config) -> Result<Arc<Store>, Error> {
        Self::with_policy(config, PolicyKind::default())
    }

    /// Makes an empty store with another eviction policy, for comparison.
    pub fn with_policy(config: Config, policy_kind: PolicyKind) -> Result<Arc<Store>, Error> {
        let shift = segment_shift(&config)?;
        Self::with_segments(config, policy_kind, shift)
    }

    /// The same with segments of `1 << shift` bytes: tests have many of them in little memory.
    pub(crate) fn with_segments(
        config: Config,
        policy_kind: PolicyKind,
        shift: u32,
    ) -> Result<Arc<Store>, Error> {
        let layout = Layout::new(&config, shift)?;
        let arena = Arc::new(map_arena(layout.segment_count, segments_max(shift), shift)?);
        arena.request_huge_pages(layout.budget.segments);
        Ok(Self::new_empty(config, policy_kind, layout, &arena))
    }

    /// An empty store in an arena whose first segment reads as zeros.
    pub(crate) fn new_empty(
        config: Config,
        policy_kind: PolicyKind,
        layout: Layout,
        arena: &Arc<Arena>,
    ) -> Arc<Store> {
        let segments = layout.build_segments(&config, arena);
        let first_index_segment = segments.allocate_index_segment(0).unwrap_or(SegmentId(0));
        let index =
            Index::new(Lines::new(Arc::clone(arena)), first_index_segment, arena.segment_count());
        Arc::new(Self::from_parts(config, policy_kind, layout, segments, index))
    }

    /// A store of these parts.
    pub(crate) fn from_parts(
        config: Config,
        policy_kind: PolicyKind,
        layout: Layout,
        segments: Segments,
        index: Index,
    ) -> Store {
        let arena = Arc::clone(&segments.arena);
        let mapped_segments = arena.segment_count();
        let class_count = config.slab_chunk_bytes.len();
        Store {
            secrets: RapidSecrets::seed(config.hash_seed),
            index,
            ghost: Ghost::new(Lines::new(arena), mapped_segments),
            policy: policy_kind.new_policy(),
            counter_blocks: (0..config.workers).map(|_| CounterBlock::new(class_count)).collect(),
            uploads: Uploads::default(),
            reports: EvictionReports::default(),
            sampling: Sampling::new(config.samples, config.workers, config.memory_bytes),
            approximate_item_count: AtomicI64::new(0),
            last_swept_position: AtomicU64::new(0),
            reserve_segments: layout.reserve_segments,
            memory_bytes: AtomicU64::new(config.memory_bytes),
            buffer_bytes: AtomicI64::new(0),
            prefix_table_bytes: AtomicI64::new(0),
            segments,
            config,
        }
    }

    /// The settings of the store.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The seeded hash of a key, which every operation on the key needs.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(rapidhash_v3_micro_inline::<true, false>(key, &self.secrets))
    }

    /// Makes everything written before the clock reaches `flush_at` dead from then on (`flush_all [delay]`).
    pub fn flush(&self, flush_at: Seconds, now: Seconds) {
        self.segments.flushes.flush(flush_at, now);
    }

    /// Makes everything written before under keys that start with `prefix` dead, at once and without a walk.
    ///
    /// Up to 65,536 prefixes are remembered, each for as long as something written before its flush may be stored; in a
    /// store of less than 48 MiB fewer. [`Worker::flush_prefix`](crate::Worker::flush_prefix) also makes room for more.
    ///
    /// # Errors
    /// [`Error::PrefixesFull`] if no further one can be; then nothing changed.
    pub fn flush_prefix(&self, prefix: &[u8], now: Seconds) -> Result<(), Error> {
        self.apply_due_flush(now);
        let (segments, flushes) = (&self.segments, &self.segments.flushes);
        let outcome = flushes.flush_prefix(prefix, || segments.oldest_generation());
        self.charge_prefix_table();
        outcome.map_err(|TableFull| Error::PrefixesFull(flushes.prefixes_max()))
    }

    /// Counts the table of flushed prefixes as it is now.
    pub(crate) fn charge_prefix_table(&self) {
        let (_, table_bytes) = self.segments.flushes.prefix_count_and_bytes();
        let table_bytes_before =
            self.prefix_table_bytes.swap(table_bytes as i64, Ordering::Relaxed);
        if table_bytes_before != table_bytes as i64 {
            self.charge_buffers(table_bytes as i64 - table_bytes_before);
        }
    }

    /// Number of prefixes that are remembered because they were flushed.
    pub fn flushed_prefixes(&self) -> usize {
        let (prefix_count, _) = self.segments.flushes.prefix_count_and_bytes();
        prefix_count
    }

    /// Lets a pending flush take effect; every operation calls this first.
    #[inline]
    pub(crate) fn apply_due_flush(&self, now: Seconds) {
        self.segments.flushes.apply_due_flush(now);
    }

    /// `cache_memlimit`: a new limit in bytes, at most four times the first; if the addresses were not available at
    /// the start, hardly more than the first.
    pub fn set_memory(&self, memory_bytes: u64) -> Result<(), Error> {
        let mapped_bytes = (self.arena().segment_count() * self.arena().segment_bytes()) as u64;
        if memory_bytes < MEMORY_BYTES_MIN {
            return Err(Error::MemoryTooSmall(memory_bytes));
        }
        if memory_bytes > mapped_bytes {
            return Err(Error::MemoryTooLarge(memory_bytes, mapped_bytes));
        }
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        self.apply_budget();
        let allowed_segments =
            memory_bytes as usize / self.arena().segment_bytes() + self.reserve_segments;
        self.arena().request_huge_pages(allowed_segments);
        Ok(())
    }

    /// The current limit in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Counts memory outside the store that belongs inside `-m` (connection buffers); any thread may call it.
    pub fn charge_buffers(&self, delta_bytes: i64) {
        let buffer_bytes_before = self.buffer_bytes.fetch_add(delta_bytes, Ordering::Relaxed);
        let segment_bytes = self.arena().segment_bytes() as i64;
        if buffer_bytes_before / segment_bytes
            != (buffer_bytes_before + delta_bytes) / segment_bytes
        {
            self.apply_budget();
        }
    }

    /// The settings of the eviction policy; `None` if it has one queue, and so none of them.
    pub fn policy_settings(&self) -> Option<PolicySettings> {
        self.policy.settings().map(ChangeableSettings::get)
    }

    /// Changes the settings of the eviction policy; nothing that is stored is moved. Without effect in a policy with one
    /// queue.
    ///
    /// From now on victims are taken, items of victims kept and new items placed by these settings; the ghost grows or
    /// shrinks by a segment with each victim; in a segment that is open or opened later, uses count from the new age.
    pub fn set_policy_settings(&self, settings: PolicySettings) {
        if let Some(changeable) = self.policy.settings() {
            changeable.set(settings);
        }
    }

    /// Bytes of new items that have to be written after one before its uses count.
    pub(crate) fn young_bytes(&self) -> u64 {
        self.policy.young_bytes(self.segments.item_bytes_max())
    }

    fn apply_budget(&self) {
        let buffer_bytes = self.buffer_bytes.load(Ordering::Relaxed).max(0) as u64;
        let shift = self.arena().segment_bytes().ilog2();
        let budget =
            compute_budget(self.memory_bytes(), buffer_bytes, self.reserve_segments, shift);
        self.segments.set_budget(budget);
    }

    /// For how many seconds the oldest items have been held since they were written, or kept by the eviction policy; a
    /// walk over the segments.
    pub fn oldest_items_age_s(&self, now: Seconds) -> Option<u32> {
        let opening = self.segments.oldest_opening()?;
        Some(now.0.saturating_sub(opening.0))
    }

    /// A snapshot of the contents and counters of the store.
    pub fn counters(&self) -> Counters {
        let segment_bytes = self.arena().segment_bytes() as u64;
        let (index_segments, ghost_segments) =
            (self.index.segment_count() as u64, self.ghost.segment_count() as u64);
        Counters {
            index_bytes: index_segments * segment_bytes,
            ghost_bytes: ghost_segments * segment_bytes,
            segment_bytes: (self.segments.usage.in_use() as u64)
                .saturating_sub(index_segments + ghost_segments)
                * segment_bytes,
            buffer_bytes: self.buffer_bytes.load(Ordering::Relaxed).max(0) as u64,
            held_segments: self.segments.held.count() as u64,
            ready_bytes: self.segments.pools.backed_ahead_count() as u64 * segment_bytes,
            upload_bytes: self.uploads.held_bytes(),
            ..counters::sum_blocks(self.counter_blocks.iter())
        }
    }

    /// The upload without progress for longest: the one to close when uploads are full. One that waits for memory
    /// is named only if all do.
    pub fn idlest_upload(&self) -> Option<IdleUpload> {
        self.uploads.idlest()
    }

    /// Whether a value that is being received is kept in pieces in the store, and not in a buffer of its reservation.
    pub fn receives_in_pieces(&self, key_bytes: usize, value_bytes: usize) -> bool {
        HEADER_BYTES_MAX + key_bytes + value_bytes > self.inline_bytes_max()
    }

    /// Whether a small value may be received in pieces too: all uncommitted uploads together leave half of their memory
    /// to large values, which cannot be received elsewhere.
    pub fn has_room_for_small_upload(&self, value_bytes: usize) -> bool {
        self.uploads.held_bytes() + value_bytes as u64 <= self.upload_bytes_max() / 2
    }

    /// Whether uncommitted uploads hold the maximum: another gets no memory until one ends.
    pub fn uploads_are_full(&self) -> bool {
        self.uploads.held_bytes() + PIECE_BYTES_MAX as u64 > self.upload_bytes_max()
    }

    /// When an upload that holds anything had its last piece; `None` if there is none.
    pub fn uploads_last_progress(&self) -> Option<Seconds> {
        self.uploads.last_progress()
    }

    /// Whether memory should be backed ahead of the writers: time for [`Store::back_memory_ahead`].
    #[inline]
    pub fn needs_backing(&self) -> bool {
        self.segments.pools.needs_backing()
    }

    /// Backs a little memory that the next writes will need, so that none of them waits until the kernel has found
    /// and cleared a huge page; true while more should follow. For a thread that serves no requests: it takes
    /// milliseconds.
    pub fn back_memory_ahead(&self) -> bool {
        self.segments.back_memory_ahead()
    }

    /// Whether [`crate::Item::hold`] will soon fail: memory for a large value should be requested before it is
    /// read.
    pub fn holds_are_scarce(&self) -> bool {
        self.segments.held.are_scarce(self.segments.usage.limit())
    }

    /// From now on evicted items are reported to `take_evicted` (for `watch evictions`); off by default.
    pub fn report_evictions(&self, is_enabled: bool) {
        self.reports.set_enabled(is_enabled);
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.segments.arena
    }

    /// Spare segments to keep ahead.
    pub(crate) fn reserve_segments(&self) -> usize {
        self.reserve_segments
    }

    /// Whether fewer segments are spare than eviction should keep ahead.
    pub(crate) fn reserve_is_low(&self) -> bool {
        self.segments.usage.spare() < self.reserve_segments
    }

    /// Whether a write into a full store evicts at once although enough is spare. A watcher of evictions expects
    /// one with the write that caused it, not when the segment it went to is full; at most the reserve again is
    /// freed ahead of need.
    #[inline]
    pub(crate) fn evicts_with_writes(&self) -> bool {
        self.reports.is_enabled() && self.segments.usage.spare() < 2 * self.reserve_segments
    }

    /// Whether nearly dead segments should be emptied, so that no unused one is opened.
    #[inline]
    pub(crate) fn should_sweep_sparse(&self) -> bool {
        self.segments.should_sweep_sparse(self.reserve_segments)
    }

    /// Above this an item that does not fit the open segment continues in the next.
    pub(crate) fn inline_bytes_max(&self) -> usize {
        self.arena().segment_bytes() / 16
    }

    /// All uncommitted uploads together may take this many bytes: an eighth, in a small store up to a quarter, so
    /// that a few clients can send large values at once; at least enough for the largest possible value.
    pub(crate) fn upload_bytes_max(&self) -> u64 {
        let memory_bytes = self.memory_bytes();
        let largest_item_bytes = u64::from(self.config.item_bytes_max).min(memory_bytes / 2);
        (memory_bytes / 8).max((memory_bytes / 4).min(UPLOAD_BYTES_MIN)).max(largest_item_bytes)
    }

    /// The bytes that memcached would count for an item.
    pub(crate) fn memcached_item_bytes(key_bytes: usize, value_bytes: usize, flags: u32) -> usize {
        let flags_bytes = if flags == 0 { 0 } else { MEMCACHED_FLAGS_BYTES };
        MEMCACHED_HEADER_BYTES + key_bytes + value_bytes + flags_bytes
    }

    /// Whether an item is over `-I`, or can never fit.
    pub(crate) fn is_too_large(&self, key: &[u8], value_bytes: usize, flags: u32) -> bool {
        let item_bytes = Self::memcached_item_bytes(key.len(), value_bytes, flags);
        item_bytes > self.config.item_bytes_max as usize
            || item_bytes as u64 > self.memory_bytes() / 2
    }

    /// The slab class that memcached would put an item of this size in.
    pub(crate) fn slab_class(&self, memcached_item_bytes: usize) -> usize {
        let chunks = &self.config.slab_chunk_bytes;
        chunks
            .partition_point(|&chunk| (chunk as usize) < memcached_item_bytes)
            .min(chunks.len().saturating_sub(1))
    }
}

/// The segments of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Spare segments that eviction keeps ahead of the writers.
    reserve_segments: usize,
    budget: Budget,
    /// As many as the limit allows, with those of the index outside of it.
    pub(crate) segment_count: usize,
}

impl Layout {
    pub(crate) fn new(config: &Config, shift: u32) -> Result<Self, Error> {
        let reserve_segments = reserve_segments_for(config.workers, shift);
        let budget = compute_budget(config.memory_bytes, 0, reserve_segments, shift);
        let segment_count = budget.segments + budget.extra_line_segments;
        if segment_count > segments_max(shift) {
            return Err(Error::MemoryNotAddressable(config.memory_bytes));
        }
        Ok(Layout { reserve_segments, budget, segment_count })
    }

    /// The table of the segments of `arena`, all free.
    pub(crate) fn build_segments(&self, config: &Config, arena: &Arc<Arena>) -> Segments {
        Segments::new(
            Arc::clone(arena),
            config.workers,
            self.budget,
            config.item_bytes_max,
            Flushes::new(config.hash_seed, config.memory_bytes),
        )
    }
}

/// Bytes of a segment for the memory of these settings, as a power of two.
pub(crate) fn segment_shift(config: &Config) -> Result<u32, Error> {
    if config.memory_bytes < MEMORY_BYTES_MIN {
        return Err(Error::MemoryTooSmall(config.memory_bytes));
    }
    Ok(shift_for(config.memory_bytes))
}

/// Tags that the ghost of a store of `memory_bytes` has if its policy wants `target_tags`.
pub(crate) fn ghost_tags_for(target_tags: usize, memory_bytes: u64) -> usize {
    Ghost::tags_for(target_tags, shift_for(memory_bytes))
}

fn shift_for(memory_bytes: u64) -> u32 {
    (memory_bytes / SEGMENTS_MIN).max(1).ilog2().clamp(SEGMENT_SHIFT_MIN, SEGMENT_SHIFT_MAX)
}

/// Segments that links of the index can name.
fn segments_max(segment_shift: u32) -> usize {
    ((LINES_MAX * LINE_BYTES as u64) >> segment_shift) as usize
}

/// Maps [`MAPPED_LIMIT_FACTOR`] times `segment_count`, at most `segments_max`, or only these if the system does not
/// promise more addresses than it has memory for (`vm.overcommit_memory=2`) or the process may not have them
/// (`ulimit -v`): then the limit cannot be raised.
fn map_arena(segment_count: usize, segments_max: usize, shift: u32) -> Result<Arena, Error> {
    if cfg!(miri) {
        return Arena::new(segment_count, shift);
    }
    Arena::new((segment_count * MAPPED_LIMIT_FACTOR as usize).min(segments_max), shift)
        .or_else(|_| Arena::new(segment_count, shift))
}

/// Segments that are kept free ahead of the writers.
fn reserve_segments_for(workers: usize, segment_shift: u32) -> usize {
    workers + 2 + RESERVE_BYTES.div_ceil(1 << segment_shift)
}

/// Bytes of the index that are outside the memory of a store of `workers` workers, if the index is that large.
pub fn index_outside_bytes(memory_bytes: u64, workers: usize) -> u64 {
    let shift = shift_for(memory_bytes);
    let budget = compute_budget(memory_bytes, 0, reserve_segments_for(workers, shift), shift);
    (budget.extra_line_segments as u64) << shift
}

/// The segments that `memory_bytes` allows with `buffer_bytes`: half of it stays with the segments in any case. Outside
/// of `-m` are the segments kept free ahead of need and, as memcached's hash table is, index and ghost up to the bounds
/// above.
fn compute_budget(
    memory_bytes: u64,
    buffer_bytes: u64,
    reserve_segments: usize,
    segment_shift: u32,
) -> Budget {
    let bytes_left = memory_bytes - buffer_bytes.min(memory_bytes / 2);
    let outside_bytes = (memory_bytes / INDEX_OUTSIDE_DIVISOR + INDEX_OUTSIDE_BYTES)
        .saturating_sub((reserve_segments as u64) << segment_shift)
        .min(memory_bytes / INDEX_OUTSIDE_DIVISOR_MIN);
    Budget {
        segments: (bytes_left >> segment_shift) as usize + reserve_segments,
        extra_line_segments: (outside_bytes >> segment_shift) as usize,
    }
}

/// The index takes segments while items do not need the last ones.
impl SegmentSource for Store {
    fn allocate_segment(&self) -> Option<SegmentId> {
        self.segments.allocate_index_segment(SEGMENTS_FOR_EVICTION)
    }

    fn free_segment(&self, segment: SegmentId) {
        self.segments.free_index_segment(segment);
    }
}
