//! `FastLZ`, the small compressor inside php-memcached: both levels read, level 1 written.
//!
//! A stream is literal runs (a byte below 32: that many plus one bytes follow) and matches (three bits of length,
//! thirteen of distance). Level 2, named by the top bits of the first byte, lengthens both with 255-runs and a far
//! distance. The format carries no plain length; php-memcached puts it before the stream.

use super::decompress_error::DecompressError;

/// Longest literal run.
const LITERAL_RUN_MAX: usize = 32;
/// Longest match of level 1.
const MATCH_MAX: usize = 264;
/// Shortest match.
const MATCH_MIN: usize = 3;
/// Farthest match of level 1, which is also where level 2's longer distances begin.
const DISTANCE_MAX: usize = 8192;
/// Bits of the index of the table that remembers where three bytes were last seen.
const TABLE_BITS: u32 = 13;

/// The level 1 stream of `plain`.
pub(super) fn compress(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(plain.len() / 2 + 16);
    let mut last_positions = vec![usize::MAX; 1 << TABLE_BITS];
    let (mut position, mut literals_start) = (0, 0);
    while let Some(three_bytes) = three_bytes_at(plain, position) {
        let slot = (three_bytes.wrapping_mul(2_654_435_761) >> (32 - TABLE_BITS)) as usize;
        let earlier_position = last_positions.get(slot).copied().unwrap_or(usize::MAX);
        if let Some(last_position) = last_positions.get_mut(slot) {
            *last_position = position;
        }
        // The first byte of a stream must be a literal: its top bits name the level.
        let distance = position.wrapping_sub(earlier_position);
        let is_match = earlier_position < position
            && distance <= DISTANCE_MAX
            && three_bytes_at(plain, earlier_position) == Some(three_bytes);
        if !is_match {
            position += 1;
            continue;
        }
        let len = match_len(plain, earlier_position, position);
        write_literals(plain.get(literals_start..position).unwrap_or_default(), &mut out);
        write_back_reference(len, distance - 1, &mut out);
        position += len;
        literals_start = position;
    }
    write_literals(plain.get(literals_start..).unwrap_or_default(), &mut out);
    out
}

fn three_bytes_at(bytes: &[u8], position: usize) -> Option<u32> {
    let three_bytes = bytes.get(position..position + MATCH_MIN)?;
    Some(three_bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
}

fn match_len(plain: &[u8], earlier_position: usize, position: usize) -> usize {
    let earlier_bytes = plain.get(earlier_position..).unwrap_or_default();
    let current_bytes = plain.get(position..).unwrap_or_default();
    earlier_bytes.iter().zip(current_bytes).take(MATCH_MAX).take_while(|(a, b)| a == b).count()
}

fn write_literals(literals: &[u8], out: &mut Vec<u8>) {
    for literal_run in literals.chunks(LITERAL_RUN_MAX) {
        out.push((literal_run.len() - 1) as u8);
        out.extend_from_slice(literal_run);
    }
}

fn write_back_reference(len: usize, distance: usize, out: &mut Vec<u8>) {
    let (high, low) = ((distance >> 8) as u8, distance as u8);
    if len < 9 {
        out.extend([((len - 2) as u8) << 5 | high, low]);
    } else {
        out.extend([7 << 5 | high, (len - 9) as u8, low]);
    }
}

/// The plain bytes of a stream of either level, at most `bytes_max`.
pub(super) fn decompress(packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, DecompressError> {
    let Some(first_byte) = packed.first() else {
        return Ok(Vec::new());
    };
    let is_level_2 = match first_byte >> 5 {
        0 => false,
        1 => true,
        _ => return Err(DecompressError::Corrupt),
    };
    let mut input = PackedInput { unread: packed, is_level_2 };
    let mut plain = Vec::with_capacity(bytes_max.min(packed.len().saturating_mul(4)));
    let mut control = input.read_byte()? & 31;
    loop {
        if control >= 32 {
            let (len, distance) = input.read_back_reference(control)?;
            copy_match(&mut plain, len, distance, bytes_max)?;
        } else {
            let run = input.read_bytes(usize::from(control) + 1)?;
            if plain.len() + run.len() > bytes_max {
                return Err(DecompressError::TooLarge);
            }
            plain.extend_from_slice(run);
        }
        match input.unread.split_first() {
            Some((next_control, unread)) => (control, input.unread) = (*next_control, unread),
            None => return Ok(plain),
        }
    }
}

struct PackedInput<'b> {
    unread: &'b [u8],
    is_level_2: bool,
}

impl<'b> PackedInput<'b> {
    fn read_byte(&mut self) -> Result<u8, DecompressError> {
        self.read_bytes(1)?.first().copied().ok_or(DecompressError::Corrupt)
    }

    fn read_bytes(&mut self, len: usize) -> Result<&'b [u8], DecompressError> {
        let (run, unread) = self.unread.split_at_checked(len).ok_or(DecompressError::Corrupt)?;
        self.unread = unread;
        Ok(run)
    }

    /// Length and distance (1 is the byte just written) of the match that `control` begins.
    fn read_back_reference(&mut self, control: u8) -> Result<(usize, usize), DecompressError> {
        let mut len = usize::from(control >> 5) + 2;
        let high = usize::from(control & 31);
        if control >> 5 == 7 {
            len += self.read_length_extension()?;
        }
        let low = self.read_byte()?;
        let mut distance = (high << 8 | usize::from(low)) + 1;
        if self.is_level_2 && high == 31 && low == 255 {
            let long_distance = [self.read_byte()?, self.read_byte()?];
            distance = usize::from(u16::from_be_bytes(long_distance)) + DISTANCE_MAX;
        }
        Ok((len, distance))
    }

    fn read_length_extension(&mut self) -> Result<usize, DecompressError> {
        let mut extension = 0;
        loop {
            let byte = self.read_byte()?;
            extension += usize::from(byte);
            if !self.is_level_2 || byte != 255 {
                return Ok(extension);
            }
        }
    }
}

fn copy_match(
    plain: &mut Vec<u8>,
    len: usize,
    distance: usize,
    bytes_max: usize,
) -> Result<(), DecompressError> {
    let match_start = plain.len().checked_sub(distance).ok_or(DecompressError::Corrupt)?;
    if plain.len() + len > bytes_max {
        return Err(DecompressError::TooLarge);
    }
    if distance >= len {
        plain.extend_from_within(match_start..match_start + len);
        return Ok(());
    }
    for position in match_start..match_start + len {
        let byte = plain.get(position).copied().ok_or(DecompressError::Corrupt)?;
        plain.push(byte);
    }
    Ok(())
}
