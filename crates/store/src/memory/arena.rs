//! The arena: one lazily backed mapping, divided into segments of equal size.
//!
//! It is mapped once, larger than `-m` so that `cache_memlimit` can grow it; a page costs memory only when it is
//! first written, and `discard` returns a segment's pages to the system. Addresses are byte offsets from its start.
//! It may be part of a file instead, whose space the caller has allocated: then it has that size, keeps its pages, and
//! its bytes outlive the process (docs/decisions/operation.md, 0101).
//! Knows neither items nor the owners of segments: the rules of the parent module do.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use crate::error::Error;

/// Bytes of a cache line, and of a line of the index.
pub(crate) const LINE_BYTES: usize = 64;

/// Items start at even addresses, so that their state word is one aligned atomic.
pub(crate) const ITEM_ALIGN: usize = 2;

/// A byte offset in the arena, below 2^48. Offset 0 belongs to the index and never names an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Addr(pub(crate) u64);

impl Addr {
    /// The address `bytes` further on.
    pub(crate) fn plus(self, bytes: usize) -> Addr {
        Addr(self.0 + bytes as u64)
    }
}

/// The number of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId(pub(crate) u32);

/// The pages that should back a range.
#[derive(Clone, Copy)]
enum PageSize {
    Huge,
    Small,
}

/// The memory itself.
pub(crate) struct Arena {
    base: NonNull<u8>,
    /// The length of the mapping.
    mapped_bytes: usize,
    segment_shift: u32,
    /// Below this offset huge pages were requested.
    huge_pages_end: AtomicUsize,
    /// Whether it is part of a file: how its pages are backed is decided where the file is opened.
    is_in_file: bool,
}

/// A part of an open file that becomes the arena. Its space is allocated, and no other process uses it; one that still
/// does must have ended its use before anything but `Arena::populate` is called.
#[derive(Debug, Clone, Copy)]
pub struct MappedFile<'f> {
    /// The file, open for reading and writing.
    pub descriptor: BorrowedFd<'f>,
    /// Where the arena starts: a multiple of the page size.
    pub offset: u64,
}

// SAFETY: the arena is plain memory; who may touch which bytes is settled by the rules of the parent module.
unsafe impl Send for Arena {}
// SAFETY: as above; all shared mutation goes through atomics or through bytes with one owner.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `segment_count` segments of `1 << segment_shift` bytes, all zero and not yet backed.
    pub(crate) fn new(segment_count: usize, segment_shift: u32) -> Result<Self, Error> {
        let mapped_bytes = segment_count << segment_shift;
        let base = map(mapped_bytes)?;
        Ok(Arena {
            base,
            mapped_bytes,
            segment_shift,
            huge_pages_end: AtomicUsize::new(0),
            is_in_file: false,
        })
    }

    /// Maps `segment_count` segments of `1 << segment_shift` bytes of a file, with the bytes that it holds.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn in_file(
        file: MappedFile<'_>,
        segment_count: usize,
        segment_shift: u32,
    ) -> Result<Self, Error> {
        let mapped_bytes = segment_count << segment_shift;
        Ok(Arena {
            base: map_file(file, mapped_bytes)?,
            mapped_bytes,
            segment_shift,
            huge_pages_end: AtomicUsize::new(0),
            is_in_file: true,
        })
    }

    /// Requests that the system map all pages of a file now, so that no request waits for one. No byte changes, so
    /// another process may still use them. If it is refused, pages are mapped when they are first used.
    #[cfg(not(any(miri, loom)))]
    pub(crate) fn populate(&self) {
        use rustix::mm::{Advice, madvise};
        // SAFETY: our own mapping, whole; populating creates no reference and changes no byte.
        let _ = unsafe {
            madvise(self.base.as_ptr().cast(), self.mapped_bytes, Advice::LinuxPopulateRead)
        };
    }

    /// Requests huge pages for the first `segment_count` segments, those that the limit allows.
    ///
    /// Not for the others, of which only as many are written as index and ghost need: the last huge page would take
    /// up to 2 MiB without need.
    pub(crate) fn request_huge_pages(&self, segment_count: usize) {
        if self.mapped_bytes < HUGE_PAGES_BYTES_MIN || self.is_in_file {
            return;
        }
        let allowed_bytes = (segment_count << self.segment_shift).min(self.mapped_bytes);
        let partial_page_bytes = (self.base.addr().get() + allowed_bytes) % HUGE_PAGE_BYTES;
        let requested_end = allowed_bytes.saturating_sub(partial_page_bytes);
        let previous_end = self.huge_pages_end.fetch_max(requested_end, Ordering::Relaxed);
        let added_len = requested_end.saturating_sub(previous_end);
        self.advise_page_size(previous_end, added_len, PageSize::Huge);
    }

    /// How many segments one huge page backs; none if no huge pages were requested.
    pub(crate) fn segments_per_huge_page(&self) -> usize {
        if self.huge_pages_end.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        HUGE_PAGE_BYTES >> self.segment_shift
    }

    /// Whether huge pages were requested for a segment.
    pub(crate) fn has_huge_pages(&self, segment: SegmentId) -> bool {
        let start_offset = self.segment_start(segment).0 as usize;
        start_offset < self.huge_pages_end.load(Ordering::Relaxed)
    }

    /// Advises the system which pages should back a range of the mapping; if it is refused, small pages are used.
    fn advise_page_size(&self, offset: usize, len: usize, page_size: PageSize) {
        #[cfg(not(any(miri, loom)))]
        {
            use rustix::mm::{Advice, madvise};
            let advice = match page_size {
                PageSize::Huge => Advice::LinuxHugepage,
                PageSize::Small => Advice::LinuxNoHugepage,
            };
            let start = self.pointer(Addr(offset as u64), len);
            // SAFETY: about our own mapping, in bounds by `pointer`, and it changes no byte.
            let _ = unsafe { madvise(start.cast(), len, advice) };
        }
        #[cfg(any(miri, loom))]
        let _ = (offset, len, page_size);
    }

    /// Binary logarithm of the size of a segment in bytes.
    pub(crate) fn segment_shift(&self) -> u32 {
        self.segment_shift
    }

    /// Size of a segment in bytes.
    pub(crate) fn segment_bytes(&self) -> usize {
        1 << self.segment_shift
    }

    /// How many segments the mapping has.
    pub(crate) fn segment_count(&self) -> usize {
        self.mapped_bytes >> self.segment_shift
    }

    /// Where a segment starts.
    pub(crate) fn segment_start(&self, segment: SegmentId) -> Addr {
        Addr(u64::from(segment.0) << self.segment_shift)
    }

    /// The segment that contains an address.
    pub(crate) fn segment_of(&self, addr: Addr) -> SegmentId {
        SegmentId((addr.0 >> self.segment_shift) as u32)
    }

    /// The offset of an address in its segment.
    pub(crate) fn offset_of(&self, addr: Addr) -> usize {
        (addr.0 as usize) & (self.segment_bytes() - 1)
    }

    /// The `len` published bytes at an address (rules 2 to 4).
    #[inline]
    pub(crate) fn published_range(&self, addr: Addr, len: usize) -> &[u8] {
        let start = self.pointer(addr, len);
        // SAFETY: in bounds by `pointer`; by rules 2 to 4 no thread writes these bytes while they can be reached.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Copies bytes to an address that the caller owns and has not published (rule 1).
    #[inline]
    pub(crate) fn write(&self, addr: Addr, source: &[u8]) {
        let target = self.pointer(addr, source.len());
        // SAFETY: in bounds by `pointer`; unpublished bytes have one owner, so no other access exists, and
        // `source` is either outside the arena or published, hence disjoint.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) }
    }

    /// An unpublished range that its one owner fills (an upload's piece).
    #[allow(clippy::mut_from_ref, reason = "rule 1: the owner gets its own unpublished bytes")]
    pub(crate) fn unpublished_range(&self, addr: Addr, len: usize) -> &mut [u8] {
        let target = self.pointer(addr, len);
        // SAFETY: in bounds by `pointer`; by rule 1 the caller is the only one who can reach these bytes, and
        // it borrows them mutably through itself (`Reservation::space` takes `&mut self`).
        unsafe { std::slice::from_raw_parts_mut(target, len) }
    }

    /// The state word of an item.
    #[inline]
    pub(crate) fn state_word(&self, addr: Addr) -> &AtomicU16 {
        let pointer = self.pointer(addr, ITEM_ALIGN);
        assert!(addr.0.is_multiple_of(ITEM_ALIGN as u64), "items are aligned");
        #[allow(
            clippy::cast_ptr_alignment,
            reason = "just asserted, on a mapping that is page-aligned"
        )]
        // SAFETY: in bounds, aligned, and by rule 2 only ever touched as this atomic while reachable.
        unsafe {
            AtomicU16::from_ptr(pointer.cast::<u16>())
        }
    }

    /// Prefetches the line of `addr`; a wrong address costs only the fetch.
    #[inline]
    pub(crate) fn prefetch(&self, addr: Addr) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if (addr.0 as usize) < self.mapped_bytes {
            // SAFETY: in bounds of the mapping, and a prefetch reads nothing that the program can see.
            unsafe {
                let line = self.base.as_ptr().add(addr.0 as usize);
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
            }
        }
        #[cfg(any(not(target_arch = "x86_64"), miri))]
        let _ = addr;
    }

    /// Prefetches all lines of a range that is about to be written or read, as far as it is in the arena.
    #[inline]
    pub(crate) fn prefetch_range(&self, addr: Addr, len: usize) {
        for line in 0..len.div_ceil(LINE_BYTES) {
            self.prefetch(addr.plus(line * LINE_BYTES));
        }
    }

    /// Returns a free segment's pages to the system, except to a file, whose space stays allocated. Until
    /// [`Arena::restore`] it must not have huge pages either: the kernel would fill the gap again when it assembles
    /// huge pages.
    pub(crate) fn discard(&self, segment: SegmentId) {
        if self.is_in_file {
            return;
        }
        let len = self.segment_bytes();
        let start = self.pointer(self.segment_start(segment), len);
        // The kernel takes whole pages: if they are larger than a segment, those of its neighbours too.
        #[cfg(not(any(miri, loom)))]
        if len.is_multiple_of(rustix::param::page_size()) {
            discard_pages(start, len);
        }
        #[cfg(any(miri, loom))]
        // SAFETY: in bounds; the segment is free, so by rule 3 no thread can reach its bytes.
        unsafe {
            std::ptr::write_bytes(start, 0, len);
        }
        self.advise_segment_page_size(segment, PageSize::Small);
    }

    /// Makes a segment that no thread can reach yet read as zeros.
    pub(crate) fn clear(&self, segment: SegmentId) {
        self.unpublished_range(self.segment_start(segment), self.segment_bytes()).fill(0);
    }

    /// Undoes [`Arena::discard`] for a segment that is about to be used again.
    pub(crate) fn restore(&self, segment: SegmentId) {
        self.advise_segment_page_size(segment, PageSize::Huge);
    }

    fn advise_segment_page_size(&self, segment: SegmentId, page_size: PageSize) {
        let start_offset = self.segment_start(segment).0 as usize;
        let huge_pages_end = self.huge_pages_end.load(Ordering::Relaxed);
        let len = self.segment_bytes().min(huge_pages_end.saturating_sub(start_offset));
        if len > 0 {
            self.advise_page_size(start_offset, len, page_size);
        }
    }

    /// The line at a byte offset, as the index sees it.
    #[cfg(not(loom))]
    #[inline]
    pub(super) fn pointer_at<T>(&self, offset: usize) -> *const T {
        self.pointer(Addr(offset as u64), size_of::<T>()).cast_const().cast()
    }

    #[inline]
    fn pointer(&self, addr: Addr, len: usize) -> *mut u8 {
        let offset = addr.0 as usize;
        assert!(
            offset <= self.mapped_bytes && len <= self.mapped_bytes - offset,
            "address outside the arena"
        );
        // SAFETY: `offset + len` was just checked to lie within the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        unmap(self.base, self.mapped_bytes);
    }
}

/// Huge pages avoid most TLB misses of index and items; below this size they would only round up the resident
/// memory of a small cache.
const HUGE_PAGES_BYTES_MIN: usize = 64 << 20;
/// The size of one, on nearly every machine that has them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

#[cfg(not(any(miri, loom)))]
fn map(bytes: usize) -> Result<NonNull<u8>, Error> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh private mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
    }
    .map_err(|error| Error::NoMemory(bytes as u64, error.to_string()))?;
    if bytes >= HUGE_PAGES_BYTES_MIN {
        // If they are requested they are used, elsewhere not even if the system gives them to all.
        // SAFETY: advice about our own mapping; if it is refused, the system's default applies.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxNoHugepage) };
    }
    NonNull::new(base.cast()).ok_or_else(|| Error::NoMemory(bytes as u64, "mapped at null".into()))
}

#[cfg(not(any(miri, loom)))]
fn map_file(file: MappedFile<'_>, bytes: usize) -> Result<NonNull<u8>, Error> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours. By the contract of
    // `MappedFile` no other process changes these bytes or the size of the file while it is mapped.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file.descriptor,
            file.offset,
        )
    }
    .map_err(|error| Error::NoMemory(bytes as u64, error.to_string()))?;
    NonNull::new(base.cast()).ok_or_else(|| Error::NoMemory(bytes as u64, "mapped at null".into()))
}

/// Returns the pages of an unreachable range to the system. After a refusal they stay, which is allowed.
///
/// Plain `MADV_DONTNEED` is refused for locked memory (`-k`); `MADV_DONTNEED_LOCKED` came with Linux 5.18, before
/// that the range is briefly unlocked.
#[cfg(not(any(miri, loom)))]
fn discard_pages(start: *mut u8, len: usize) {
    use rustix::mm::{Advice, MlockFlags, madvise, mlock_with, munlock};
    let start = start.cast();
    // SAFETY: page-aligned and in bounds by the caller, whose segment is free: by rule 3 no thread reaches its bytes.
    let advise = |advice| unsafe { madvise(start, len, advice) };
    let is_refused = advise(Advice::LinuxDontNeed).is_err();
    if is_refused && advise(Advice::LinuxDontneedLocked).is_err() {
        // SAFETY: as above; unlocking changes no byte.
        if unsafe { munlock(start, len) }.is_ok() {
            let _ = advise(Advice::LinuxDontNeed);
            // SAFETY: as above; with ONFAULT nothing becomes resident by it.
            let _ = unsafe { mlock_with(start, len, MlockFlags::ONFAULT) };
        }
    }
}

#[cfg(not(any(miri, loom)))]
fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: exactly what `map` returned, and the arena is being dropped.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), bytes) };
}

#[cfg(any(miri, loom))]
fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes.max(64), 4096)
        .unwrap_or(std::alloc::Layout::new::<u64>())
}

#[cfg(any(miri, loom))]
fn map(bytes: usize) -> Result<NonNull<u8>, Error> {
    // SAFETY: the layout is never of size zero.
    let base = unsafe { std::alloc::alloc_zeroed(layout(bytes)) };
    NonNull::new(base).ok_or_else(|| Error::NoMemory(bytes as u64, "heap refused".into()))
}

#[cfg(any(miri, loom))]
fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: allocated by `map` with the same layout.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout(bytes)) }
}
