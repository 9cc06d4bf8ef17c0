//! Lists of whole numbers, packed to the bits they need.
//!
//! Blocks of 128 numbers keep their least one and the rest as offsets of equal width (frame of reference; Zukowski et
//! al., "Super-Scalar RAM-CPU Cache Compression", 2006), over the numbers themselves or, where that is shorter, over
//! their differences. 140,000 random ids below 140,000 take 18 bits each and need no compressor afterwards.
//!
//! Layout: mode byte, count, then for each block its least number (zigzag), the width in bits and the offsets,
//! least significant bit first, padded to a byte. Counts and least numbers are LEB128.

/// Numbers in a block: small enough to follow local ranges, large enough to make its header cheap.
const BLOCK_NUMBERS: usize = 128;
/// The numbers as they are.
const MODE_PLAIN: u8 = 0;
/// The difference of each number from the one before it, the first from zero.
const MODE_DELTA: u8 = 1;

/// The least number of a block, and the bits of the widest offset from it.
type BlockFrame = (i64, u32);

/// Measured numbers: the shorter way to pack them, and the length of the packed form.
pub(super) struct MeasuredNumbers<'n> {
    numbers: &'n [i64],
    is_delta: bool,
    frames: Vec<BlockFrame>,
    /// Bytes of the packed form, or up to ten more.
    pub(super) packed_bytes_max: usize,
}

/// Appends the packed form of `numbers` to `out`.
pub(super) fn pack(numbers: &[i64], out: &mut Vec<u8>) {
    MeasuredNumbers::new(numbers).pack(out);
}

impl<'n> MeasuredNumbers<'n> {
    /// Measures both ways in one pass.
    pub(super) fn new(numbers: &'n [i64]) -> Self {
        let block_count = numbers.len().div_ceil(BLOCK_NUMBERS);
        let mut plain_frames = Vec::with_capacity(block_count);
        let mut delta_frames = Vec::with_capacity(block_count);
        let mut previous = 0;
        for block in numbers.chunks(BLOCK_NUMBERS) {
            let (mut plain_span, mut delta_span) = (MinMax::default(), MinMax::default());
            for &number in block {
                plain_span.include(number);
                delta_span.include(number.wrapping_sub(previous));
                previous = number;
            }
            plain_frames.push(plain_span.to_frame());
            delta_frames.push(delta_span.to_frame());
        }
        let packed_bytes_of = |frames: &[BlockFrame]| {
            let frames_and_blocks = frames.iter().zip(numbers.chunks(BLOCK_NUMBERS));
            frames_and_blocks
                .map(|((min, width), block)| {
                    let min_bits = u64::BITS - zigzag(*min).leading_zeros();
                    let min_bytes = min_bits.max(1).div_ceil(7) as usize;
                    min_bytes + 1 + (block.len() * *width as usize).div_ceil(8)
                })
                .sum::<usize>()
        };
        let (plain_bytes, delta_bytes) =
            (packed_bytes_of(&plain_frames), packed_bytes_of(&delta_frames));
        let is_delta = delta_bytes < plain_bytes;
        Self {
            numbers,
            is_delta,
            frames: if is_delta { delta_frames } else { plain_frames },
            packed_bytes_max: plain_bytes.min(delta_bytes) + 11,
        }
    }

    /// Appends the packed form to `out`.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.reserve(self.packed_bytes_max);
        out.push(if self.is_delta { MODE_DELTA } else { MODE_PLAIN });
        write_varint(self.numbers.len() as u64, out);
        let mut previous = 0i64;
        for (block, &(min, width)) in self.numbers.chunks(BLOCK_NUMBERS).zip(&self.frames) {
            write_varint(zigzag(min), out);
            out.push(width as u8);
            let mut offsets = [0; BLOCK_NUMBERS];
            for (offset, &number) in offsets.iter_mut().zip(block) {
                let base = if self.is_delta { previous } else { 0 };
                *offset = number.wrapping_sub(base).wrapping_sub(min) as u64;
                previous = number;
            }
            let offsets = offsets.get(..block.len()).unwrap_or_default();
            if width <= NARROW_BITS_MAX {
                write_narrow(offsets, width, out);
            } else {
                write_wide(offsets, width as usize, out);
            }
        }
    }
}

/// The least and the greatest of some numbers.
struct MinMax {
    min: i64,
    max: i64,
}

impl Default for MinMax {
    fn default() -> Self {
        Self { min: i64::MAX, max: i64::MIN }
    }
}

impl MinMax {
    fn include(&mut self, number: i64) {
        self.min = self.min.min(number);
        self.max = self.max.max(number);
    }

    fn to_frame(&self) -> BlockFrame {
        let range = self.max.wrapping_sub(self.min) as u64;
        (self.min, u64::BITS - range.leading_zeros())
    }
}

/// The numbers of a packed form; `None` when it is not one, or holds more than `bytes_max` bytes of numbers.
pub(super) fn unpack(packed: &[u8], bytes_max: usize) -> Option<Vec<i64>> {
    let mut numbers = Vec::new();
    unpack_blocks(packed, bytes_max, |count, block| {
        if numbers.is_empty() {
            numbers.reserve_exact(count);
        }
        numbers.extend_from_slice(block);
    })?;
    Some(numbers)
}

/// Passes the numbers of a packed form to `handle_block` block by block, with their total count; `None` as [`unpack`].
pub(super) fn unpack_blocks(
    packed: &[u8],
    bytes_max: usize,
    mut handle_block: impl FnMut(usize, &[i64]),
) -> Option<()> {
    let (mode, mut input) = packed.split_first()?;
    let count = usize::try_from(read_varint(&mut input)?).ok()?;
    if *mode > MODE_DELTA || count.checked_mul(size_of::<i64>())? > bytes_max {
        return None;
    }
    // A block costs at least two bytes, so a short text cannot claim a long list.
    if count.div_ceil(BLOCK_NUMBERS) * 2 > input.len() {
        return None;
    }
    let mut previous = 0i64;
    let mut numbers_left = count;
    let mut buffer = [0; BLOCK_NUMBERS];
    while numbers_left > 0 {
        let block = buffer.get_mut(..numbers_left.min(BLOCK_NUMBERS))?;
        read_block(&mut input, block)?;
        if *mode == MODE_DELTA {
            for number in block.iter_mut() {
                previous = previous.wrapping_add(*number);
                *number = previous;
            }
        }
        handle_block(count, block);
        numbers_left -= block.len();
    }
    input.is_empty().then_some(())
}

/// Offsets of this many bits and up to seven before them lie in one 8-byte word.
const NARROW_BITS_MAX: u32 = 56;

/// Writes offsets without a branch for each: every step stores a word and keeps the bits of its last byte.
fn write_narrow(offsets: &[u64], width: u32, out: &mut Vec<u8>) {
    let mut buffer = [0; BLOCK_NUMBERS * 7 + 8];
    let (mut pending, mut pending_bits, mut byte_index) = (0u64, 0, 0);
    for &offset in offsets {
        pending |= offset << pending_bits;
        pending_bits += width;
        if let Some(word) = buffer.get_mut(byte_index..byte_index + 8) {
            word.copy_from_slice(&pending.to_le_bytes());
        }
        byte_index += pending_bits as usize / 8;
        pending >>= pending_bits & !7;
        pending_bits &= 7;
    }
    let offset_bytes = (offsets.len() * width as usize).div_ceil(8);
    out.extend_from_slice(buffer.get(..offset_bytes).unwrap_or_default());
}

fn write_wide(offsets: &[u64], width: usize, out: &mut Vec<u8>) {
    let (mut pending, mut pending_bits) = (0u64, 0);
    for &offset in offsets {
        pending |= offset << pending_bits;
        if pending_bits + width >= 64 {
            out.extend_from_slice(&pending.to_le_bytes());
            // What did not fit; two shifts, for one by 64 would overflow.
            pending = offset >> (63 - pending_bits) >> 1;
            pending_bits += width;
            pending_bits -= 64;
        } else {
            pending_bits += width;
        }
    }
    let tail = pending.to_le_bytes();
    out.extend_from_slice(tail.get(..pending_bits.div_ceil(8)).unwrap_or_default());
}

fn read_block(input: &mut &[u8], numbers: &mut [i64]) -> Option<()> {
    let min = unzigzag(read_varint(input)?);
    let (width, remaining) = input.split_first()?;
    let width = usize::from(*width);
    if width > 64 {
        return None;
    }
    let (packed_block, remaining) =
        remaining.split_at_checked((numbers.len() * width).div_ceil(8))?;
    *input = remaining;
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    // Nine bytes after the block, so that the last number is read like the first.
    let mut padded = [0; BLOCK_NUMBERS * 8 + 9];
    padded.get_mut(..packed_block.len())?.copy_from_slice(packed_block);
    let word_at =
        |byte_index: usize| padded.get(byte_index..byte_index + 8).map_or(0, word_from_bytes);
    if width <= NARROW_BITS_MAX as usize {
        for (i, number) in numbers.iter_mut().enumerate() {
            let offset = word_at(i * width / 8) >> (i * width % 8) & mask;
            *number = min.wrapping_add(offset as i64);
        }
        return Some(());
    }
    for (i, number) in numbers.iter_mut().enumerate() {
        let (byte_index, bit_index) = (i * width / 8, i * width % 8);
        let high = padded.get(byte_index + 8).map_or(0, |byte| u64::from(*byte));
        // Two shifts: by 64 at once, where `bit_index` is 0, would overflow.
        let offset = (word_at(byte_index) >> bit_index | high << (63 - bit_index) << 1) & mask;
        *number = min.wrapping_add(offset as i64);
    }
    Some(())
}

fn word_from_bytes(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// LEB128, least significant seven bits first.
pub(super) fn write_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a LEB128 number from the front of `input`; `None` when it is cut or passes 64 bits.
pub(super) fn read_varint(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, remaining) = input.split_first()?;
        *input = remaining;
        let low_bits = u64::from(byte & 0x7f);
        if low_bits << shift >> shift != low_bits {
            return None;
        }
        number |= low_bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

pub(super) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack_to_vec(numbers: &[i64]) -> Vec<u8> {
        let mut out = Vec::new();
        pack(numbers, &mut out);
        out
    }

    #[test]
    fn sorted_ids_are_packed_as_differences() {
        let numbers: Vec<i64> = (0..10_000).map(|i| 1_000_000_000 + i * 3).collect();
        assert!(pack_to_vec(&numbers).len() < 1_000);
    }

    #[test]
    fn random_ids_take_as_many_bits_as_the_greatest() {
        let numbers: Vec<i64> = (0..140_000).map(|i| i * 7919 % 140_000).collect();
        let packed_bytes = pack_to_vec(&numbers).len();
        assert!(packed_bytes < 140_000 * 19 / 8, "{packed_bytes}");
    }

    #[test]
    fn a_count_beyond_the_limit_is_refused() {
        let zeros = pack_to_vec(&vec![0; 100_000]);
        assert_eq!(unpack(&zeros, 800_000).map(|numbers| numbers.len()), Some(100_000));
        assert_eq!(unpack(&zeros, 799_999), None);
        assert_eq!(unpack(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], usize::MAX), None);
    }

    proptest! {
        #[test]
        fn unpack_undoes_pack(numbers in prop::collection::vec(
            prop_oneof![any::<i64>(), -100i64..100, Just(i64::MIN), Just(i64::MAX)], 0..400)) {
            prop_assert_eq!(unpack(&pack_to_vec(&numbers), usize::MAX), Some(numbers));
        }

        #[test]
        fn any_bytes_unpack_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(numbers) = unpack(&bytes, 1 << 20) {
                prop_assert!(numbers.len() <= 1 << 17);
            }
        }
    }
}
