//! Lists of whole numbers, packed to the bits they need.
//!
//! Blocks of 128 numbers keep their least one and the rest as offsets of equal width (frame of reference; Zukowski et
//! al., "Super-Scalar RAM-CPU Cache Compression", 2006), over the numbers themselves or, where that is shorter, over
//! their differences. 140,000 random ids below 140,000 take 18 bits each and need no compressor afterwards.
//!
//! Layout: mode byte, count, then for each block its least number (zigzag), the width in bits and the offsets,
//! least significant bit first, padded to a byte. Counts and least numbers are LEB128.

/// Numbers in a block: small enough to follow local ranges, large enough to make its header cheap.
const BLOCK: usize = 128;
/// The numbers as they are.
const MODE_PLAIN: u8 = 0;
/// The difference of each number from the one before it, the first from nought.
const MODE_DELTA: u8 = 1;

/// Appends the packed form of `numbers` to `out`.
pub(super) fn pack(numbers: &[i64], out: &mut Vec<u8>) {
    let is_delta = packed_bits(numbers, true) < packed_bits(numbers, false);
    out.reserve(numbers.len() * 3 + 16);
    out.push(if is_delta { MODE_DELTA } else { MODE_PLAIN });
    write_varint(numbers.len() as u64, out);
    let mut before = 0;
    for block in numbers.chunks(BLOCK) {
        let mut offsets = [0; BLOCK];
        let (least, width) = frame(block, is_delta, &mut before, &mut offsets);
        write_varint(zigzag(least), out);
        out.push(width as u8);
        write_bits(offsets.get(..block.len()).unwrap_or_default(), width, out);
    }
}

/// The numbers of a packed form; `None` when it is not one, or holds more than `bytes_max` bytes of numbers.
pub(super) fn unpack(packed: &[u8], bytes_max: usize) -> Option<Vec<i64>> {
    let (mode, mut rest) = packed.split_first()?;
    let count = usize::try_from(read_varint(&mut rest)?).ok()?;
    if *mode > MODE_DELTA || count.checked_mul(size_of::<i64>())? > bytes_max {
        return None;
    }
    // A block costs at least two bytes, so a short text cannot claim a long list.
    if count.div_ceil(BLOCK) * 2 > rest.len() {
        return None;
    }
    let mut numbers = Vec::with_capacity(count);
    let mut before = 0i64;
    while numbers.len() < count {
        let from = numbers.len();
        read_block((count - from).min(BLOCK), &mut rest, &mut numbers)?;
        if *mode == MODE_DELTA {
            for number in numbers.get_mut(from..)? {
                before = before.wrapping_add(*number);
                *number = before;
            }
        }
    }
    rest.is_empty().then_some(numbers)
}

fn packed_bits(numbers: &[i64], is_delta: bool) -> usize {
    let mut before = 0;
    let mut offsets = [0; BLOCK];
    let block_bits =
        |block: &[i64]| frame(block, is_delta, &mut before, &mut offsets).1 * block.len();
    numbers.chunks(BLOCK).map(block_bits).sum()
}

/// Fills `offsets` above the block's least number; returns that number and the width of the widest offset.
fn frame(
    block: &[i64],
    is_delta: bool,
    before: &mut i64,
    offsets: &mut [u64; BLOCK],
) -> (i64, usize) {
    let mut values = [0; BLOCK];
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for (value, &number) in values.iter_mut().zip(block) {
        *value = if is_delta {
            number.wrapping_sub(*before)
        } else {
            number
        };
        *before = number;
        least = least.min(*value);
        most = most.max(*value);
    }
    for (offset, value) in offsets.iter_mut().zip(values).take(block.len()) {
        *offset = value.wrapping_sub(least) as u64;
    }
    (
        least,
        64 - (most.wrapping_sub(least) as u64).leading_zeros() as usize,
    )
}

fn write_bits(offsets: &[u64], width: usize, out: &mut Vec<u8>) {
    let (mut pending, mut bits) = (0u64, 0);
    for &offset in offsets {
        pending |= offset << bits;
        if bits + width >= 64 {
            out.extend_from_slice(&pending.to_le_bytes());
            // What did not fit; two shifts, for one by 64 would overflow.
            pending = offset >> (63 - bits) >> 1;
            bits += width;
            bits -= 64;
        } else {
            bits += width;
        }
    }
    let tail = pending.to_le_bytes();
    out.extend_from_slice(tail.get(..bits.div_ceil(8)).unwrap_or_default());
}

fn read_block(count: usize, rest: &mut &[u8], numbers: &mut Vec<i64>) -> Option<()> {
    let least = unzigzag(read_varint(rest)?);
    let (width, after) = rest.split_first()?;
    let width = usize::from(*width);
    if width > 64 {
        return None;
    }
    let (block, after) = after.split_at_checked((count * width).div_ceil(8))?;
    *rest = after;
    let mask = if width == 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    };
    // Nine bytes behind the block, so that the last number is read like the first.
    let mut padded = [0; BLOCK * 8 + 9];
    padded.get_mut(..block.len())?.copy_from_slice(block);
    numbers.extend((0..count).map(|i| {
        let (byte, bit) = (i * width / 8, i * width % 8);
        let low = padded.get(byte..byte + 8).map_or(0, eight_bytes);
        let high = padded.get(byte + 8).map_or(0, |byte| u64::from(*byte));
        // Two shifts: by 64 at once, where bit is 0, would overflow.
        let offset = (low >> bit | high << (63 - bit) << 1) & mask;
        least.wrapping_add(offset as i64)
    }));
    Some(())
}

fn eight_bytes(bytes: &[u8]) -> u64 {
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

/// Takes a LEB128 number from the front of `rest`; `None` when it is cut or passes 64 bits.
pub(super) fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        let seven = u64::from(byte & 0x7f);
        if seven << shift >> shift != seven {
            return None;
        }
        number |= seven << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(numbers: &[i64]) -> Vec<u8> {
        let mut out = Vec::new();
        pack(numbers, &mut out);
        out
    }

    #[test]
    fn sorted_ids_take_their_differences() {
        let numbers: Vec<i64> = (0..10_000).map(|i| 1_000_000_000 + i * 3).collect();
        assert!(packed(&numbers).len() < 1_000);
    }

    #[test]
    fn random_ids_take_the_bits_of_the_greatest() {
        let numbers: Vec<i64> = (0..140_000).map(|i| i * 7919 % 140_000).collect();
        let bytes = packed(&numbers).len();
        assert!(bytes < 140_000 * 19 / 8, "{bytes}");
    }

    #[test]
    fn a_claim_beyond_the_bound_is_refused() {
        let zeros = packed(&vec![0; 100_000]);
        assert_eq!(
            unpack(&zeros, 800_000).map(|numbers| numbers.len()),
            Some(100_000)
        );
        assert_eq!(unpack(&zeros, 799_999), None);
        assert_eq!(
            unpack(&[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0], usize::MAX),
            None
        );
    }

    proptest! {
        #[test]
        fn unpack_undoes_pack(numbers in prop::collection::vec(
            prop_oneof![any::<i64>(), -100i64..100, Just(i64::MIN), Just(i64::MAX)], 0..400)) {
            prop_assert_eq!(unpack(&packed(&numbers), usize::MAX), Some(numbers));
        }

        #[test]
        fn any_bytes_unpack_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(numbers) = unpack(&bytes, 1 << 20) {
                prop_assert!(numbers.len() <= 1 << 17);
            }
        }
    }
}
