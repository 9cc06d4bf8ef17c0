//! memcached's slab classes, computed as the server itself computes them at start.
//!
//! memcached rounds every item up to the chunk size of its class, so the list of chunk sizes decides
//! how much memory is lost. The list follows from four settings (`-f`, `-n`, `-I`, `-o
//! slab_chunk_max`) or is given outright (`-o slab_sizes`); the arithmetic below reproduces what
//! `memcached -vv` prints, doubles and truncations included. `plan` computes the cost of a list for
//! given sizes.

use std::fmt;

/// Bytes of a slab page; memcached has no option for it.
pub const PAGE_BYTES: u32 = 1 << 20;
/// Chunk sizes are rounded up to a multiple of this many bytes.
pub const CHUNK_ALIGN_BYTES: u32 = 8;
/// Maximum number of classes in memcached: 62 by factor or from `-o slab_sizes`, and the class of the largest chunk.
pub const CLASSES_MAX: usize = 63;
/// Bytes of memcached's item header on a 64-bit machine, without the CAS unique.
pub const ITEM_HEADER_BYTES: u32 = 48;
/// Bytes of the CAS unique, which every item carries unless memcached runs with `-C`.
pub const CAS_BYTES: u32 = 8;
/// Bytes of the header of one piece of an item that is larger than the largest chunk.
pub const PIECE_HEADER_BYTES: u32 = 48;
/// Bytes of the line end that memcached stores after a value.
pub const LINE_END_BYTES: u32 = 2;

/// The settings of memcached that decide its slab classes. The default is memcached's own.
#[derive(Debug, Clone, PartialEq)]
pub struct SlabConfig {
    /// `-f`: each chunk size is the one before times this.
    pub factor: f64,
    /// `-n`: room for key, value and client flags in the smallest chunk, in bytes.
    pub chunk_bytes_min: u32,
    /// `-I`: largest item in bytes.
    pub item_bytes_max: u32,
    /// `-o slab_chunk_max`, here in bytes: the largest chunk; larger items are cut into pieces.
    pub slab_chunk_bytes_max: u32,
    /// `-o slab_sizes`: explicit chunk sizes; `factor` and `chunk_bytes_min` are then ignored.
    pub slab_sizes: Option<Vec<u32>>,
}

impl Default for SlabConfig {
    fn default() -> Self {
        Self {
            factor: 1.25,
            chunk_bytes_min: 48,
            item_bytes_max: 1 << 20,
            slab_chunk_bytes_max: PAGE_BYTES / 2,
            slab_sizes: None,
        }
    }
}

/// Why memcached would refuse to start with a [`SlabConfig`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SlabConfigError {
    /// `-f` is not above 1.
    #[error("factor must be greater than 1, not {0} (-f)")]
    Factor(f64),
    /// `-n` is 0.
    #[error("chunk space must be greater than 0 bytes (-n)")]
    ChunkRoom,
    /// `-I` is outside memcached's bounds.
    #[error("largest item must be from 1024 to 1073741824 bytes, not {0} (-I)")]
    ItemMax(u32),
    /// The largest chunk does not divide the page and the largest item.
    #[error(
        "largest chunk of {chunk_bytes} bytes must divide the page of {PAGE_BYTES} and the largest item of {item_bytes} bytes \
         (-o slab_chunk_max, -I)"
    )]
    ChunkMax {
        /// The largest chunk.
        chunk_bytes: u32,
        /// The largest item.
        item_bytes: u32,
    },
    /// A size of `-o slab_sizes` is out of range or too near to the one before.
    #[error(
        "slab size {size} must be from {low} to {high}: more than {CHUNK_ALIGN_BYTES} bytes above the one before and no \
         more than the largest chunk (-o slab_sizes)"
    )]
    SlabSize {
        /// The size refused.
        size: u32,
        /// The smallest size allowed here.
        low: u32,
        /// The largest chunk.
        high: u32,
    },
    /// More than 62 explicit sizes.
    #[error("{0} slab sizes, at most 62 (-o slab_sizes)")]
    TooManySizes(usize),
}

impl SlabConfig {
    /// Checks whether memcached would start with these settings, in memcached's order of checks.
    pub fn check(&self) -> Result<(), SlabConfigError> {
        if self.factor.is_nan() || self.factor <= 1.0 {
            return Err(SlabConfigError::Factor(self.factor));
        }
        if self.chunk_bytes_min == 0 {
            return Err(SlabConfigError::ChunkRoom);
        }
        if !(1024..=1 << 30).contains(&self.item_bytes_max) {
            return Err(SlabConfigError::ItemMax(self.item_bytes_max));
        }
        let chunk_bytes = self.slab_chunk_bytes_max;
        let divides_page_and_item = chunk_bytes > 0
            && PAGE_BYTES.is_multiple_of(chunk_bytes)
            && self.item_bytes_max.is_multiple_of(chunk_bytes);
        if !divides_page_and_item {
            return Err(SlabConfigError::ChunkMax { chunk_bytes, item_bytes: self.item_bytes_max });
        }
        self.slab_sizes.as_deref().map_or(Ok(()), |sizes| self.check_sizes(sizes))
    }

    fn check_sizes(&self, sizes: &[u32]) -> Result<(), SlabConfigError> {
        if sizes.len() >= CLASSES_MAX {
            return Err(SlabConfigError::TooManySizes(sizes.len()));
        }
        let high = self.slab_chunk_bytes_max;
        let mut low = self.chunk_bytes_min.max(CHUNK_ALIGN_BYTES + 1);
        for &size in sizes {
            if size < low || size > high {
                return Err(SlabConfigError::SlabSize { size, low, high });
            }
            low = size + CHUNK_ALIGN_BYTES + 1;
        }
        Ok(())
    }
}

/// The slab classes of one configuration: chunk sizes in ascending order, class 1 first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabClasses {
    chunk_sizes: Vec<u32>,
    item_bytes_max: u32,
}

impl SlabClasses {
    /// Computes the classes; never fails, so call [`SlabConfig::check`] first on untrusted settings.
    pub fn new(config: &SlabConfig) -> Self {
        let mut chunk_sizes = match &config.slab_sizes {
            Some(sizes) => sizes.iter().map(|&size| align_chunk_size(size)).collect(),
            None => list_chunk_sizes_by_factor(config),
        };
        chunk_sizes.truncate(CLASSES_MAX - 1);
        chunk_sizes.push(config.slab_chunk_bytes_max);
        Self { chunk_sizes, item_bytes_max: config.item_bytes_max }
    }

    /// Chunk sizes in bytes; class `i` of memcached is at index `i - 1`.
    pub fn chunk_sizes(&self) -> &[u32] {
        &self.chunk_sizes
    }

    /// The largest chunk in bytes; an item above it is cut into pieces.
    pub fn chunk_bytes_max(&self) -> u32 {
        self.chunk_sizes.last().copied().unwrap_or(0)
    }

    /// The largest item in bytes (`-I`).
    pub fn item_bytes_max(&self) -> u32 {
        self.item_bytes_max
    }

    /// The chunk size of a class counted from 1, or `None` if there is no such class.
    pub fn chunk_bytes(&self, class: usize) -> Option<u32> {
        self.chunk_sizes.get(class.checked_sub(1)?).copied()
    }

    /// How many chunks of a class, counted from 1, a page holds.
    pub fn chunks_per_page(&self, class: usize) -> Option<u32> {
        self.chunk_bytes(class).map(|chunk_bytes| PAGE_BYTES / chunk_bytes)
    }

    /// The class, counted from 1, of an item of `item_bytes` as memcached counts them ([`item_bytes`]).
    ///
    /// `None` when the item is empty or larger than `-I`. An item between the largest chunk and `-I`
    /// belongs to the last class and is split into pieces ([`SlabClasses::for_each_chunk_class`]).
    pub fn class_of(&self, item_bytes: u32) -> Option<usize> {
        if item_bytes == 0 || item_bytes > self.item_bytes_max {
            return None;
        }
        let index = self.chunk_sizes.partition_point(|&chunk_bytes| chunk_bytes < item_bytes);
        Some(index.min(self.chunk_sizes.len() - 1) + 1)
    }

    /// Calls `visit` with the class of each chunk that an item occupies: one, or head and pieces of a large item.
    ///
    /// `head_bytes` is the item's size without its value and the two bytes that end it, `value_bytes` the value's.
    pub fn for_each_chunk_class(
        &self,
        head_bytes: u32,
        value_bytes: u32,
        visit: &mut dyn FnMut(usize),
    ) {
        let item_bytes = head_bytes.saturating_add(value_bytes).saturating_add(LINE_END_BYTES);
        let Some(class) = self.class_of(item_bytes) else {
            return;
        };
        let chunk_bytes_max = self.chunk_bytes_max();
        if item_bytes <= chunk_bytes_max {
            return visit(class);
        }
        if let Some(head_class) = self.class_of(head_bytes + PIECE_HEADER_BYTES) {
            visit(head_class);
        }
        let mut bytes_left = value_bytes + LINE_END_BYTES;
        while bytes_left > 0 {
            let chunk_bytes = (bytes_left + PIECE_HEADER_BYTES).min(chunk_bytes_max);
            if let Some(piece_class) = self.class_of(chunk_bytes) {
                visit(piece_class);
            }
            // A chunk no larger than its header could hold no data; memcached has the same lower bound.
            bytes_left =
                bytes_left.saturating_sub((chunk_bytes.saturating_sub(PIECE_HEADER_BYTES)).max(1));
        }
    }
}

impl fmt::Display for SlabClasses {
    /// Writes the lines of `memcached -vv`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &chunk_bytes) in self.chunk_sizes.iter().enumerate() {
            let chunks_per_page = PAGE_BYTES / chunk_bytes;
            writeln!(
                f,
                "slab class {:3}: chunk size {chunk_bytes:9} perslab {chunks_per_page:7}",
                index + 1
            )?;
        }
        Ok(())
    }
}

/// Bytes of an item in memcached's measure: header, CAS unique, key and its end, client flags if not 0, value and `\r\n`.
pub fn item_bytes(key_bytes: u32, value_bytes: u32, has_flags: bool) -> u32 {
    head_bytes(key_bytes, has_flags).saturating_add(value_bytes).saturating_add(LINE_END_BYTES)
}

/// Bytes of an item in memcached's measure without its value and the two bytes that end it.
pub fn head_bytes(key_bytes: u32, has_flags: bool) -> u32 {
    let flags_bytes = if has_flags { 4 } else { 0 };
    ITEM_HEADER_BYTES + CAS_BYTES + key_bytes + 1 + flags_bytes
}

/// Classes by factor: the size before is multiplied as a double, cut to an integer, then rounded up to 8.
fn list_chunk_sizes_by_factor(config: &SlabConfig) -> Vec<u32> {
    let growth_end = f64::from(config.slab_chunk_bytes_max) / config.factor;
    let mut chunk_sizes = Vec::new();
    let mut size = ITEM_HEADER_BYTES.saturating_add(config.chunk_bytes_min);
    while chunk_sizes.len() < CLASSES_MAX - 1 && f64::from(size) < growth_end {
        size = align_chunk_size(size);
        chunk_sizes.push(size);
        size = (f64::from(size) * config.factor) as u32;
    }
    chunk_sizes
}

fn align_chunk_size(size: u32) -> u32 {
    size.next_multiple_of(CHUNK_ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_classes_equal_memcacheds() {
        let classes = SlabClasses::new(&SlabConfig::default());
        assert_eq!(&classes.chunk_sizes()[..6], &[96, 120, 152, 192, 240, 304]);
        assert_eq!(classes.chunk_sizes().len(), 39);
        assert_eq!(&classes.chunk_sizes()[37..], &[394_840, 524_288]);
    }

    #[test]
    fn small_factor_ends_early_and_leaves_a_gap() {
        let classes = SlabClasses::new(&SlabConfig { factor: 1.05, ..SlabConfig::default() });
        assert_eq!(classes.chunk_sizes().len(), CLASSES_MAX);
        assert_eq!(&classes.chunk_sizes()[60..], &[2688, 2824, 524_288]);
    }

    #[test]
    fn a_first_chunk_of_the_largest_size_leaves_one_class() {
        let classes =
            SlabClasses::new(&SlabConfig { chunk_bytes_min: 500_000, ..SlabConfig::default() });
        assert_eq!(classes.chunk_sizes(), &[524_288]);
    }

    #[test]
    fn an_item_is_in_the_first_class_that_fits() {
        let classes = SlabClasses::new(&SlabConfig::default());
        assert_eq!(classes.class_of(0), None);
        assert_eq!(classes.class_of(96), Some(1));
        assert_eq!(classes.class_of(97), Some(2));
        assert_eq!(classes.class_of(1 << 20), Some(39));
        assert_eq!(classes.class_of((1 << 20) + 1), None);
        assert_eq!(item_bytes(8, 32, false), 48 + 8 + 9 + 34);
        assert_eq!(item_bytes(8, 32, true), 48 + 8 + 9 + 4 + 34);
    }

    #[test]
    fn a_large_item_has_a_head_and_pieces() {
        let classes = SlabClasses::new(&SlabConfig::default());
        let mut seen_classes = Vec::new();
        classes.for_each_chunk_class(head_bytes(8, false), 600_000, &mut |class| {
            seen_classes.push(class);
        });
        let last_piece_class = classes.class_of(600_002 - (524_288 - 48) + 48).unwrap();
        assert_eq!(seen_classes, [2, 39, last_piece_class]);
    }

    #[test]
    fn explicit_sizes_follow_memcacheds_rules() {
        let explicit = |sizes: &[u32]| SlabConfig {
            slab_sizes: Some(sizes.to_vec()),
            ..SlabConfig::default()
        };
        assert_eq!(explicit(&[96, 112, 1000]).check(), Ok(()));
        assert!(matches!(
            explicit(&[96, 104]).check(),
            Err(SlabConfigError::SlabSize { size: 104, .. })
        ));
        assert!(matches!(explicit(&[40]).check(), Err(SlabConfigError::SlabSize { size: 40, .. })));
        assert_eq!(SlabClasses::new(&explicit(&[96, 1001])).chunk_sizes(), &[96, 1008, 524_288]);
    }
}
