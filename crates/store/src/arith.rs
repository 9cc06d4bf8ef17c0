//! Arithmetic on decimal values: `incr`, `decr` and meta `ma`.

use crate::Worker;
use crate::attempts::Attempts;
use crate::counters::Count;
use crate::item::bits;
use crate::log::Unique;
use crate::lookup::Located;
use crate::request::{ArithOptions, ArithOutcome, Expiry, KeyHash, NoRoomYet, Seconds};
use crate::room::Shortage;
use crate::write::{Found, New, Part, Swap};

impl Worker {
    /// As [`Worker::try_arith`], but refused where that would have to wait.
    pub fn arith(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &ArithOptions,
        now: Seconds,
    ) -> ArithOutcome {
        self.try_arith(key, hash, options, now)
            .unwrap_or_else(|NoRoomYet| self.refuse_arith())
    }

    fn refuse_arith(&self) -> ArithOutcome {
        self.count(Count::Refused, 1);
        ArithOutcome::NoMemory
    }

    /// Adds to or subtracts from a decimal value. A new number that is shorter than the old value is padded with
    /// spaces to its length, as memcached writes it.
    pub fn try_arith(
        &self,
        key: &[u8],
        hash: KeyHash,
        options: &ArithOptions,
        now: Seconds,
    ) -> Result<ArithOutcome, NoRoomYet> {
        if !self.begin(now) {
            return Ok(ArithOutcome::NoMemory);
        }
        let mut attempts = Attempts::default();
        loop {
            let found = self.look(key, hash, &attempts, now);
            let outcome = match found.alive() {
                Some(old) => self.change_number(key, hash, &found, &old, options, now),
                None => self.create_number(key, hash, &found, options, now),
            };
            match outcome {
                Ok(outcome) => return Ok(outcome),
                Err(Swap::NoRoom(shortage)) if self.may_retry(shortage, &mut attempts) => {}
                Err(Swap::NoRoom(Shortage::Passing)) => return Err(NoRoomYet),
                Err(Swap::Changed) if attempts.may_look_again() => {}
                Err(_) => return Ok(self.refuse_arith()),
            }
        }
    }

    fn change_number(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        old: &Located,
        options: &ArithOptions,
        now: Seconds,
    ) -> Result<ArithOutcome, Swap> {
        let text = self.store.inline_value(old);
        // An empty or a chained value is no number whatever its unique, as memcached judges.
        if text.is_empty() {
            return Ok(ArithOutcome::NotANumber);
        }
        if options
            .compare
            .is_some_and(|wanted| wanted.0 != self.store.unique_of(old))
        {
            return Ok(ArithOutcome::Exists);
        }
        let Some(number) = parse(text) else {
            return Ok(ArithOutcome::NotANumber);
        };
        let value = if options.decrement {
            number.saturating_sub(options.delta)
        } else {
            number.wrapping_add(options.delta)
        };
        let mut digits = itoa(value);
        let is_longer = digits.len() > text.len();
        digits.resize(digits.len().max(text.len()), b' ');
        let expiry = options.touch.unwrap_or(old.header.expiry);
        let new = New {
            flags: old.header.flags,
            expiry,
            unique: options
                .new_unique
                .map_or(self.above(found), |unique| Unique::Exactly(unique.0)),
            marks: bits::told(options.is_untold),
            // memcached changes a number in place when it fits, and with it the marks stay.
            keeps: if is_longer { 0 } else { bits::MARKS },
            access: now,
            parts: &[Part::Bytes(&digits)],
            is_growing: false,
        };
        let swap = self.swap(key, hash, found, &new, now);
        finish(swap, value, expiry, Some(old.header.expiry))
    }

    fn create_number(
        &self,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        options: &ArithOptions,
        now: Seconds,
    ) -> Result<ArithOutcome, Swap> {
        let Some((value, expiry)) = options.initial else {
            self.reap(hash, found);
            return Ok(ArithOutcome::NotFound);
        };
        let digits = itoa(value);
        let new = New {
            flags: 0,
            expiry,
            unique: options
                .new_unique
                .map_or(self.above(found), |unique| Unique::Exactly(unique.0)),
            marks: bits::told(options.is_untold),
            keeps: 0,
            access: now,
            parts: &[Part::Bytes(&digits)],
            is_growing: false,
        };
        finish(self.swap(key, hash, found, &new, now), value, expiry, None)
    }
}

/// `before` is the expiry of the item that was changed, `None` when one was created.
fn finish(
    swap: Swap,
    value: u64,
    expiry: Expiry,
    before: Option<Expiry>,
) -> Result<ArithOutcome, Swap> {
    match swap {
        Swap::Done { unique, .. } => Ok(ArithOutcome::Number {
            value,
            unique,
            expiry,
            expiry_before: before.unwrap_or(Expiry::Never),
            created: before.is_none(),
        }),
        failed => Err(failed),
    }
}

fn itoa(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The number at the start of a value: spaces, digits, then the end or a space (as strtoull with memcached's check).
fn parse(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_number_may_have_spaces_around_it_and_nothing_else() {
        assert_eq!(parse(b"12"), Some(12));
        assert_eq!(parse(b" 7   "), Some(7));
        assert_eq!(parse(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b" ",
            b"-1",
            b"12a",
            b"a12",
            b"18446744073709551616",
        ] {
            assert_eq!(parse(bad), None);
        }
    }
}
