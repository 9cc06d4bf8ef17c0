//! The flags of a meta line: which letters are present, and their arguments.
//!
//! The tokens themselves stay in the line, because the reply returns them in the order of the request.

use crate::ascii;
use crate::limits::{META_TOKENS_MAX, OPAQUE_BYTES_MAX};
use crate::replies;

/// Maximum number of flags on a line: command and key are tokens too.
const FLAGS_MAX: usize = META_TOKENS_MAX - 2;

/// Flags without argument that change nothing.
const ARGUMENTLESS_LETTERS: u128 = letter_set(b"vkstcfhlq");

/// A set of flags, for [`MetaFlags::has_any`].
pub const fn letter_set(mut letters: &[u8]) -> u128 {
    let mut set = 0;
    while let [letter, remaining_letters @ ..] = letters {
        set |= 1 << (*letter & 127);
        letters = remaining_letters;
    }
    set
}

/// The flags of one meta line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetaFlags<'b> {
    /// The flag tokens as sent, for [`ascii::tokens`].
    pub text: &'b [u8],
    /// A bit for each letter that was given.
    letter_bits: u128,
    /// `T`: a new exptime, as on the wire.
    pub touch: i64,
    /// `N`: the exptime of an item made on a miss, as on the wire.
    pub vivify: i64,
    /// `R`: seconds of life below which one client wins the refill.
    pub recache: i64,
    /// `F`: client flags.
    pub client_flags: u32,
    /// `C`: the CAS unique that the item must have.
    pub required_cas: u64,
    /// `E`: the CAS unique that the item gets.
    pub new_unique: u64,
    /// `M`: the mode letter; 0 when none was given.
    pub mode: u8,
    /// `D`: the delta; 1 when none was given.
    pub delta: u64,
    /// `J`: the number that a missing item starts with.
    pub initial: u64,
}

impl<'b> MetaFlags<'b> {
    /// The same flags over another copy of their text, which the caller owns.
    pub fn with_text<'c>(&self, text: &'c [u8]) -> MetaFlags<'c> {
        MetaFlags {
            text,
            letter_bits: self.letter_bits,
            touch: self.touch,
            vivify: self.vivify,
            recache: self.recache,
            client_flags: self.client_flags,
            required_cas: self.required_cas,
            new_unique: self.new_unique,
            mode: self.mode,
            delta: self.delta,
            initial: self.initial,
        }
    }

    /// Whether the flag `letter` was given.
    #[inline]
    pub fn has(&self, letter: u8) -> bool {
        self.letter_bits >> (letter & 127) & 1 == 1
    }

    /// Whether one of the flags in `set`, made by [`letter_set`], was given.
    #[inline]
    pub fn has_any(&self, set: u128) -> bool {
        self.letter_bits & set != 0
    }

    /// Whether both flags were given, and `first` before `second`.
    pub fn has_in_order(&self, first: u8, second: u8) -> bool {
        let mut given_letters = ascii::tokens(self.text).filter_map(|token| token.first().copied());
        self.has(first)
            && self.has(second)
            && given_letters.find(|letter| [first, second].contains(letter)) == Some(first)
    }

    /// Parses flags that are single letters and only select fields of the reply, up to the end of the line; also
    /// the bytes parsed, line ending included. `None` for anything else, errors included.
    #[inline]
    pub fn parse_argumentless(text: &'b [u8]) -> Option<(MetaFlags<'b>, usize)> {
        let mut seen_letters = 0u128;
        let mut remaining_text = text;
        loop {
            let ending_bytes = match remaining_text {
                [b'\r', b'\n', ..] => 2,
                [b'\n', ..] => 1,
                [b' ', letter, tail @ ..] => {
                    let letter_bit = 1u128 << (letter & 127);
                    if letter & 128 != 0
                        || letter_bit & ARGUMENTLESS_LETTERS == 0
                        || letter_bit & seen_letters != 0
                    {
                        return None;
                    }
                    seen_letters |= letter_bit;
                    remaining_text = tail;
                    continue;
                }
                _ => return None,
            };
            let flags_bytes = text.len() - remaining_text.len();
            let flags = MetaFlags {
                text: text.get(..flags_bytes)?,
                letter_bits: seen_letters,
                delta: 1,
                ..MetaFlags::default()
            };
            return Some((flags, flags_bytes + ending_bytes));
        }
    }

    /// Parses the flag tokens of a line; an error is the reply line.
    pub fn parse(text: &'b [u8]) -> Result<MetaFlags<'b>, &'static [u8]> {
        let mut flags = MetaFlags { text, delta: 1, ..MetaFlags::default() };
        let mut error_reply = None;
        let mut flag_count = 0;
        for token in ascii::tokens(text) {
            let Some((letter, argument)) = token.split_first() else {
                continue;
            };
            flag_count += 1;
            if flag_count > FLAGS_MAX {
                return Err(replies::TOO_MANY_FLAGS);
            }
            if *letter >= 127 || flags.has(*letter) {
                return Err(replies::DUPLICATE_FLAG);
            }
            flags.letter_bits |= 1 << letter;
            match flags.read_argument(*letter, argument) {
                Some(Ok(())) => {}
                Some(Err(reply)) => error_reply = Some(reply),
                // memcached's tokenizer accepts letters, digits and the characters between them.
                None if !matches!(letter, 65..=122 | b'0'..=b'9') => {
                    return Err(replies::BAD_FORMAT);
                }
                None => return Err(replies::INVALID_FLAG),
            }
        }
        error_reply.map_or(Ok(flags), Err)
    }

    /// Reads one argument; `None` is an unknown letter.
    #[inline]
    fn read_argument(&mut self, letter: u8, argument: &[u8]) -> Option<Result<(), &'static [u8]>> {
        let parsed = match letter {
            b'O' if argument.len() >= OPAQUE_BYTES_MAX => Err(replies::OPAQUE_TOO_LONG),
            b'b' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'v' | b'h' | b'l' | b'u'
            | b'q' | b'x' | b'I' | b'O' => Ok(()),
            b'N' => store_argument(&mut self.vivify, parse_exptime(argument), replies::BAD_TOKEN),
            b'T' => store_argument(&mut self.touch, parse_exptime(argument), replies::BAD_TOKEN),
            b'R' => store_argument(&mut self.recache, parse_exptime(argument), replies::BAD_TOKEN),
            b'F' => store_argument(
                &mut self.client_flags,
                ascii::parse_u32(argument),
                replies::BAD_FORMAT,
            ),
            b'C' => store_argument(
                &mut self.required_cas,
                ascii::parse_u64(argument),
                replies::BAD_TOKEN,
            ),
            b'E' => {
                store_argument(&mut self.new_unique, ascii::parse_u64(argument), replies::BAD_TOKEN)
            }
            // Without a letter memcached reads the byte after the `M`, which is not a mode.
            b'M' => {
                store_argument(&mut self.mode, Some(argument.first().copied().unwrap_or(b' ')), b"")
            }
            b'J' => store_argument(
                &mut self.initial,
                ascii::parse_u64(argument),
                replies::BAD_ARITH_FLAG,
            ),
            b'D' => {
                store_argument(&mut self.delta, ascii::parse_u64(argument), replies::BAD_ARITH_FLAG)
            }
            _ => return None,
        };
        Some(parsed)
    }
}

fn parse_exptime(argument: &[u8]) -> Option<i64> {
    ascii::parse_i64(argument).filter(|exptime| i32::try_from(*exptime).is_ok())
}

fn store_argument<T>(
    target: &mut T,
    value: Option<T>,
    error_reply: &'static [u8],
) -> Result<(), &'static [u8]> {
    *target = value.ok_or(error_reply)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_arguments_are_read_in_any_order() {
        let flags = MetaFlags::parse(b"v T30 k C5 Oabc F7 N-1").unwrap();
        assert!(flags.has(b'v') && flags.has(b'k') && !flags.has(b's'));
        assert_eq!(
            (flags.touch, flags.required_cas, flags.client_flags, flags.vivify),
            (30, 5, 7, -1)
        );
        assert_eq!(flags.delta, 1);
    }

    #[test]
    fn the_order_of_two_flags_is_known() {
        let flags = MetaFlags::parse(b"t T30 R5").unwrap();
        assert!(flags.has_in_order(b'T', b'R') && flags.has_in_order(b't', b'R'));
        assert!(!flags.has_in_order(b'R', b'T') && !flags.has_in_order(b'T', b'N'));
    }

    #[test]
    fn argumentless_flags_parse_as_in_the_general_parser() {
        for line in ["\r\n", "\n", " v\r\n", " v k s t c f h l q\n"] {
            let (flags, used) = MetaFlags::parse_argumentless(line.as_bytes()).unwrap();
            assert_eq!(Ok(flags), MetaFlags::parse(line.trim_end().as_bytes()));
            assert_eq!(used, line.len());
        }
        for line in [" v", "", " v v\n", " O1\n", " b\n", "  v\n", " v \n", " ö\n", " v\r"] {
            assert_eq!(MetaFlags::parse_argumentless(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn bad_flags_get_the_error_texts_of_memcached() {
        assert_eq!(MetaFlags::parse(b"v v"), Err(replies::DUPLICATE_FLAG));
        assert_eq!(MetaFlags::parse(b"Q"), Err(replies::INVALID_FLAG));
        assert_eq!(MetaFlags::parse(b"T"), Err(replies::BAD_TOKEN));
        assert_eq!(MetaFlags::parse(b"T4294967296"), Err(replies::BAD_TOKEN));
        assert_eq!(MetaFlags::parse(b"F4294967296"), Err(replies::BAD_FORMAT));
        assert_eq!(MetaFlags::parse(&[b'O'; 33]), Err(replies::OPAQUE_TOO_LONG));
        assert_eq!(MetaFlags::parse(&[b'O'; 32]).map(|flags| flags.has(b'O')), Ok(true));
    }
}
