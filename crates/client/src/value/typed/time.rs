//! Dates and times of typed values, and their form in bytes.
//!
//! Ranges are those of Python's `datetime`. A zone is a fixed offset or a name of the IANA database; the name travels
//! and not the offset it had, so that both sides follow their own copy of the rules.

use crate::value::ints::{read_varint, unzigzag, write_varint, zigzag};

/// A day of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// 1 to 9999.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
}

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time<'b> {
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59.
    pub second: u8,
    /// 0 to 999,999.
    pub microsecond: u32,
    /// Whether this is the second of two equal wall clock times, when a clock was set back.
    pub is_second_fold: bool,
    /// Its time zone.
    pub zone: Zone<'b>,
}

/// What a time is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone<'b> {
    /// Not given.
    Naive,
    /// An offset from UTC, in microseconds to the east, with its name if it has one.
    Fixed(i64, Option<&'b str>),
    /// A name of the IANA database.
    Named(&'b str),
}

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Whole days, which may be below 0.
    pub days: i64,
    /// 0 to 86,399.
    pub seconds: u32,
    /// 0 to 999,999.
    pub microseconds: u32,
}

const ZONE_NAIVE: u8 = 0;
const ZONE_FIXED: u8 = 1;
const ZONE_FIXED_WITH_NAME: u8 = 2;
const ZONE_NAMED: u8 = 3;
/// Bit of the zone tag for the second of two equal wall clock times.
const SECOND_FOLD: u8 = 0x80;

const DAY_S: u32 = 86_400;
const SECOND_US: u32 = 1_000_000;
const OFFSET_US_MAX: u64 = DAY_S as u64 * SECOND_US as u64;
/// Most days of a `datetime.timedelta`.
const DAYS_MAX: u64 = 999_999_999;

impl Date {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.year.to_le_bytes());
        out.extend([self.month, self.day]);
    }

    pub(super) fn read(input: &mut &[u8]) -> Option<Self> {
        let (&[low, high, month, day], remaining) = input.split_first_chunk()?;
        *input = remaining;
        let year = u16::from_le_bytes([low, high]);
        let is_valid = (1..=9999).contains(&year) && (1..=12).contains(&month);
        (is_valid && (1..=31).contains(&day)).then_some(Self { year, month, day })
    }
}

impl<'b> Time<'b> {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend([self.hour, self.minute, self.second]);
        write_varint(self.microsecond.into(), out);
        let fold_bit = if self.is_second_fold { SECOND_FOLD } else { 0 };
        match self.zone {
            Zone::Naive => out.push(ZONE_NAIVE | fold_bit),
            Zone::Fixed(offset_us, None) => {
                out.push(ZONE_FIXED | fold_bit);
                write_varint(zigzag(offset_us), out);
            }
            Zone::Fixed(offset_us, Some(name)) => {
                out.push(ZONE_FIXED_WITH_NAME | fold_bit);
                write_varint(zigzag(offset_us), out);
                write_text(name, out);
            }
            Zone::Named(name) => {
                out.push(ZONE_NAMED | fold_bit);
                write_text(name, out);
            }
        }
    }

    pub(super) fn read(input: &mut &'b [u8]) -> Option<Self> {
        let (&[hour, minute, second], remaining) = input.split_first_chunk()?;
        *input = remaining;
        let microsecond = read_below(input, SECOND_US)?;
        let (&zone_tag, remaining) = input.split_first()?;
        *input = remaining;
        let zone = match zone_tag & !SECOND_FOLD {
            ZONE_NAIVE => Zone::Naive,
            ZONE_FIXED => Zone::Fixed(read_offset(input)?, None),
            ZONE_FIXED_WITH_NAME => Zone::Fixed(read_offset(input)?, Some(read_text(input)?)),
            ZONE_NAMED => Zone::Named(read_text(input)?),
            _ => return None,
        };
        (hour < 24 && minute < 60 && second < 60).then_some(Self {
            hour,
            minute,
            second,
            microsecond,
            is_second_fold: zone_tag & SECOND_FOLD != 0,
            zone,
        })
    }
}

impl Delta {
    pub(super) fn write(self, out: &mut Vec<u8>) {
        write_varint(zigzag(self.days), out);
        write_varint(self.seconds.into(), out);
        write_varint(self.microseconds.into(), out);
    }

    pub(super) fn read(input: &mut &[u8]) -> Option<Self> {
        let days = unzigzag(read_varint(input)?);
        let seconds = read_below(input, DAY_S)?;
        let microseconds = read_below(input, SECOND_US)?;
        (days.unsigned_abs() <= DAYS_MAX).then_some(Self { days, seconds, microseconds })
    }
}

fn read_offset(input: &mut &[u8]) -> Option<i64> {
    let offset_us = unzigzag(read_varint(input)?);
    (offset_us.unsigned_abs() < OFFSET_US_MAX).then_some(offset_us)
}

fn read_below(input: &mut &[u8], bound: u32) -> Option<u32> {
    let number = u32::try_from(read_varint(input)?).ok()?;
    (number < bound).then_some(number)
}

/// Length and bytes.
pub(super) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    write_bytes(text.as_bytes(), out);
}

pub(super) fn read_bytes<'b>(input: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = usize::try_from(read_varint(input)?).ok()?;
    let (bytes, remaining) = input.split_at_checked(len)?;
    *input = remaining;
    Some(bytes)
}

pub(super) fn read_text<'b>(input: &mut &'b [u8]) -> Option<&'b str> {
    std::str::from_utf8(read_bytes(input)?).ok()
}
