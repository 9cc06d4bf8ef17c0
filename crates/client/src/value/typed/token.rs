//! The tokens of typed values: one tag with its payload each, written and read.

use super::BYTES_PER_VALUE;
use super::time::{Date, Delta, Time, read_bytes, read_text, write_bytes, write_text};
use crate::value::ints::{read_varint, unzigzag, write_varint, zigzag};

/// One tag with its payload; the items of a container follow it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'b> {
    /// The absence of a value.
    None,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond `i64`: two's complement, little-endian.
    BigInt(&'b [u8]),
    /// A binary64 number, every bit of it.
    Float(f64),
    /// Text.
    Str(&'b str),
    /// Bytes.
    Bytes(&'b [u8]),
    /// Bytes that their owner may change: Python's `bytearray`.
    ByteArray(&'b [u8]),
    /// A list of this many items.
    List(usize),
    /// A tuple of this many items.
    Tuple(usize),
    /// A set of this many items, in no order.
    Set(usize),
    /// An immutable set of this many items.
    FrozenSet(usize),
    /// A dict of this many pairs of a key and a value, in the order of insertion.
    Dict(usize),
    /// A day.
    Date(Date),
    /// A time of day.
    Time(Time<'b>),
    /// A day and a time.
    DateTime(Date, Time<'b>),
    /// A length of time.
    Delta(Delta),
    /// A decimal number in scientific notation.
    Decimal(&'b str),
    /// A UUID.
    Uuid([u8; 16]),
    /// A member of the enumeration of this name; its own name follows, or its number if it is a combination of flags.
    Enum(&'b str),
    /// A record of the type of this name with this many fields, each a name and a value.
    Record(&'b str, usize),
}

const NONE: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const BIG_INT: u8 = 4;
const FLOAT: u8 = 5;
const STR: u8 = 6;
const BYTES: u8 = 7;
const BYTE_ARRAY: u8 = 8;
const LIST: u8 = 9;
const TUPLE: u8 = 10;
const SET: u8 = 11;
const FROZEN_SET: u8 = 12;
const DICT: u8 = 13;
const DATE: u8 = 14;
const TIME: u8 = 15;
const DATE_TIME: u8 = 16;
const DELTA: u8 = 17;
const DECIMAL: u8 = 18;
const UUID: u8 = 19;
const ENUM: u8 = 20;
const RECORD: u8 = 21;

impl<'b> Token<'b> {
    /// Appends the tag and its payload.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match *self {
            Self::None | Self::Bool(_) => {}
            Self::Int(number) => write_varint(zigzag(number), out),
            Self::Float(number) => out.extend_from_slice(&number.to_le_bytes()),
            Self::Str(text) | Self::Decimal(text) | Self::Enum(text) => write_text(text, out),
            Self::BigInt(bytes) | Self::Bytes(bytes) | Self::ByteArray(bytes) => {
                write_bytes(bytes, out);
            }
            Self::List(count)
            | Self::Tuple(count)
            | Self::Set(count)
            | Self::FrozenSet(count)
            | Self::Dict(count) => write_varint(count as u64, out),
            Self::Date(date) => date.write(out),
            Self::Time(time) => time.write(out),
            Self::DateTime(date, time) => {
                date.write(out);
                time.write(out);
            }
            Self::Delta(delta) => delta.write(out),
            Self::Uuid(bytes) => out.extend_from_slice(&bytes),
            Self::Record(type_name, count) => {
                write_text(type_name, out);
                write_varint(count as u64, out);
            }
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::None => NONE,
            Self::Bool(false) => FALSE,
            Self::Bool(true) => TRUE,
            Self::Int(_) => INT,
            Self::BigInt(_) => BIG_INT,
            Self::Float(_) => FLOAT,
            Self::Str(_) => STR,
            Self::Bytes(_) => BYTES,
            Self::ByteArray(_) => BYTE_ARRAY,
            Self::List(_) => LIST,
            Self::Tuple(_) => TUPLE,
            Self::Set(_) => SET,
            Self::FrozenSet(_) => FROZEN_SET,
            Self::Dict(_) => DICT,
            Self::Date(_) => DATE,
            Self::Time(_) => TIME,
            Self::DateTime(..) => DATE_TIME,
            Self::Delta(_) => DELTA,
            Self::Decimal(_) => DECIMAL,
            Self::Uuid(_) => UUID,
            Self::Enum(_) => ENUM,
            Self::Record(..) => RECORD,
        }
    }

    fn read(input: &mut &'b [u8]) -> Option<Self> {
        let (&tag, remaining) = input.split_first()?;
        *input = remaining;
        Some(match tag {
            NONE => Self::None,
            FALSE => Self::Bool(false),
            TRUE => Self::Bool(true),
            INT => Self::Int(unzigzag(read_varint(input)?)),
            BIG_INT => Self::BigInt(read_bytes(input)?),
            FLOAT => Self::Float(f64::from_le_bytes(read_fixed_bytes(input)?)),
            STR => Self::Str(read_text(input)?),
            BYTES => Self::Bytes(read_bytes(input)?),
            BYTE_ARRAY => Self::ByteArray(read_bytes(input)?),
            LIST => Self::List(read_count(input, 1)?),
            TUPLE => Self::Tuple(read_count(input, 1)?),
            SET => Self::Set(read_count(input, 1)?),
            FROZEN_SET => Self::FrozenSet(read_count(input, 1)?),
            DICT => Self::Dict(read_count(input, 2)?),
            DATE => Self::Date(Date::read(input)?),
            TIME => Self::Time(Time::read(input)?),
            DATE_TIME => Self::DateTime(Date::read(input)?, Time::read(input)?),
            DELTA => Self::Delta(Delta::read(input)?),
            DECIMAL => Self::Decimal(read_text(input)?),
            UUID => Self::Uuid(read_fixed_bytes(input)?),
            ENUM => Self::Enum(read_text(input)?),
            RECORD => Self::Record(read_text(input)?, read_count(input, 2)?),
            _ => return None,
        })
    }

    /// How many values follow that belong to this one, the names of a record's fields included.
    pub fn item_count(&self) -> usize {
        match *self {
            Self::List(count) | Self::Tuple(count) | Self::Set(count) | Self::FrozenSet(count) => {
                count
            }
            Self::Dict(count) | Self::Record(_, count) => count.saturating_mul(2),
            Self::Enum(_) => 1,
            _ => 0,
        }
    }

    /// Whether the item at this index must be text: the name of a record's field.
    pub(super) fn is_name_at(&self, index: usize) -> bool {
        matches!(self, Self::Record(..)) && index.is_multiple_of(2)
    }
}

fn read_fixed_bytes<const LENGTH: usize>(input: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (fixed_bytes, remaining) = input.split_first_chunk()?;
    *input = remaining;
    Some(*fixed_bytes)
}

/// A count of items, each of which takes at least `item_bytes_min`: a short text cannot claim a long list.
fn read_count(input: &mut &[u8], item_bytes_min: usize) -> Option<usize> {
    let count = usize::try_from(read_varint(input)?).ok()?;
    (count <= input.len() / item_bytes_min).then_some(count)
}

/// Reads one token after the other, within a bound of values.
#[derive(Clone, Debug)]
pub struct Tokens<'b> {
    input: &'b [u8],
    values_left: usize,
}

impl<'b> Tokens<'b> {
    /// The tokens of these bytes, of which no more are read than an unpacked value of `bytes_max` bytes has.
    pub fn new(bytes: &'b [u8], bytes_max: usize) -> Self {
        Self { input: bytes, values_left: bytes_max / BYTES_PER_VALUE }
    }

    /// The next token; `None` when it is cut, malformed or one too many.
    pub fn read(&mut self) -> Option<Token<'b>> {
        self.values_left = self.values_left.checked_sub(1)?;
        Token::read(&mut self.input)
    }

    /// The next token, which must be text.
    pub fn read_name(&mut self) -> Option<&'b str> {
        match self.read()? {
            Token::Str(name) => Some(name),
            _ => None,
        }
    }

    /// Whether everything was read.
    pub fn is_at_end(&self) -> bool {
        self.input.is_empty()
    }
}
