//! Arithmetic on decimal values: the decisions of `incr`, `decr` and meta `ma`.

use crate::accounting::ItemAccounting;
use crate::chain::ValuePart;
use crate::counters::CounterId;
use crate::item::bits;
use crate::lookup::LocatedItem;
use crate::request::{ArithOptions, ArithOutcome, Expiry, NoRoomYet};
use crate::write::{NewCopy, RetryReason, WriteOperation};

/// Adds to or subtracts from a decimal value. A new number that is shorter than the old value is padded with
/// spaces to its length, as memcached writes it.
pub(crate) fn run_arith(
    write: &mut WriteOperation<'_>,
    options: &ArithOptions,
) -> Result<ArithOutcome, NoRoomYet> {
    write.run(
        |write| match write.found.live_item() {
            Some(old) => change_number(write, &old, options),
            None => create_number(write, options),
        },
        |write, _| refuse(write.allocator.context.accounting),
    )
}

/// Counts a refusal and returns the outcome of an operation that got no segment.
#[cold]
pub(crate) fn refuse(accounting: &ItemAccounting) -> ArithOutcome {
    accounting.count(CounterId::Refused, 1);
    ArithOutcome::NoMemory
}

fn change_number(
    write: &WriteOperation<'_>,
    old: &LocatedItem,
    options: &ArithOptions,
) -> Result<ArithOutcome, RetryReason> {
    let store = write.store();
    let old_text = store.inline_value(old);
    // An empty or a chained value is not a number for any unique, as in memcached.
    if old_text.is_empty() {
        return Ok(ArithOutcome::NotANumber);
    }
    if options.required_cas.is_some_and(|required_unique| required_unique.0 != store.unique_of(old))
    {
        return Ok(ArithOutcome::Exists);
    }
    let Some(old_number) = parse_number(old_text) else {
        return Ok(ArithOutcome::NotANumber);
    };
    let new_number = if options.is_decrement {
        old_number.saturating_sub(options.delta)
    } else {
        old_number.wrapping_add(options.delta)
    };
    let mut digits = decimal_digits(new_number);
    let is_longer = digits.len() > old_text.len();
    digits.resize(digits.len().max(old_text.len()), b' ');
    let expiry = options.touch.unwrap_or(old.header.expiry);
    let stored = write.publish(&NewCopy {
        flags: old.header.flags,
        expiry,
        unique_source: write.unique_source(options.new_unique),
        state_bits: bits::exposed_bit(options.hides_unique),
        // memcached changes a number in place when it fits, which keeps the marks.
        inherited_bits: if is_longer { 0 } else { bits::COPIED_MARKS },
        last_access: write.now(),
        parts: &[ValuePart::Bytes(&digits)],
        is_growing: false,
        is_same_item: !is_longer,
    })?;
    Ok(ArithOutcome::Number {
        value: new_number,
        unique: stored.unique,
        expiry,
        expiry_before: old.header.expiry,
        created: false,
    })
}

fn create_number(
    write: &WriteOperation<'_>,
    options: &ArithOptions,
) -> Result<ArithOutcome, RetryReason> {
    let Some((initial_number, expiry)) = options.initial else {
        write.remove_dead();
        return Ok(ArithOutcome::NotFound);
    };
    let stored = write.publish(&NewCopy {
        flags: 0,
        expiry,
        unique_source: write.unique_source(options.new_unique),
        state_bits: bits::exposed_bit(options.hides_unique),
        inherited_bits: 0,
        last_access: write.now(),
        parts: &[ValuePart::Bytes(&decimal_digits(initial_number))],
        is_growing: false,
        is_same_item: false,
    })?;
    Ok(ArithOutcome::Number {
        value: initial_number,
        unique: stored.unique,
        expiry,
        expiry_before: Expiry::Never,
        created: true,
    })
}

fn decimal_digits(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The number at the start of a value: spaces, digits, then the end or a space (as strtoull with memcached's check).
fn parse_number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, after_digits) = text.split_at(end);
    if after_digits.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_number;

    #[test]
    fn a_number_may_have_only_spaces_around_it() {
        assert_eq!(parse_number(b"12"), Some(12));
        assert_eq!(parse_number(b" 7   "), Some(7));
        assert_eq!(parse_number(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b" ", b"-1", b"12a", b"a12", b"18446744073709551616"] {
            assert_eq!(parse_number(bad), None);
        }
    }
}
