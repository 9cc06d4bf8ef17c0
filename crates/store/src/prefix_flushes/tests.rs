//! The table of flushed prefixes alone: what matches, what is refused, and lookups beside a writer.

use super::*;

const NONE_FORGETTABLE: fn() -> u64 = || 0;

fn record_prefixes(prefixes: &[&[u8]]) -> PrefixFlushes {
    let flushes = PrefixFlushes::new(7);
    for (number, prefix) in (1..).zip(prefixes) {
        flushes.record(prefix, number, NONE_FORGETTABLE).unwrap();
    }
    flushes
}

#[test]
fn a_key_matches_exactly_the_prefixes_that_it_starts_with() {
    let key: Vec<u8> = (0..250).map(|index| b'a' + (index % 26) as u8).collect();
    for length in 1..=250 {
        let flushes = record_prefixes(&[&key[..length]]);
        for end in 0..=250 {
            let is_flushed = flushes.is_flushed_since(&key[..end], 0);
            assert_eq!(is_flushed, end >= length, "{length} of {end}");
        }
        let mut other_key = key.clone();
        other_key[length - 1] ^= 1;
        assert!(!flushes.is_flushed_since(&other_key, 0), "{length}");
    }
}

#[test]
fn the_latest_flush_among_all_prefixes_of_a_key_decides() {
    let flushes = record_prefixes(&[b"a:b:", b"a:", b"x"]);
    assert!(flushes.is_flushed_since(b"a:b:c", 0));
    assert!(flushes.is_flushed_since(b"a:b:c", 1));
    assert!(!flushes.is_flushed_since(b"a:b:c", 2));
    flushes.record(b"a:b:", 4, NONE_FORGETTABLE).unwrap();
    assert!(flushes.is_flushed_since(b"a:b:c", 3));
    assert!(!flushes.is_flushed_since(b"a:c", 2));
    assert_eq!(flushes.prefix_count(), 3);
}

#[test]
fn prefixes_up_to_the_maximum_are_found_and_the_next_is_refused() {
    let flushes = PrefixFlushes::new(7);
    let prefix = |number: u64| format!("tenant{number}:").into_bytes();
    for number in 1..=PREFIXES_MAX as u64 {
        flushes.record(&prefix(number), number, || 0).unwrap();
    }
    let (next_number, refused_prefix) = (PREFIXES_MAX as u64 + 1, b"one more".as_slice());
    assert_eq!(flushes.record(refused_prefix, next_number, || 0), Err(TableFull));
    assert!(!flushes.is_flushed_since(refused_prefix, 0));
    assert_eq!(flushes.record(&prefix(5), next_number, || 0), Ok(()));
    for number in 1..=PREFIXES_MAX as u64 {
        assert!(flushes.is_flushed_since(&prefix(number), number - 1));
    }
    assert!(flushes.table_bytes() <= 6 << 20);
}

#[test]
fn prefixes_older_than_every_item_are_forgotten_for_new_ones() {
    let flushes = PrefixFlushes::new(7);
    let prefix = |number: u64| number.to_le_bytes();
    let last_number = 3 * PREFIXES_MAX as u64;
    for number in 1..=last_number {
        let last_forgettable = || number.saturating_sub(1000);
        flushes.record(&prefix(number), number, last_forgettable).unwrap();
    }
    for number in last_number - 1000..=last_number {
        assert!(flushes.is_flushed_since(&prefix(number), number - 1));
    }
    assert!(flushes.prefix_count() <= PREFIXES_MAX);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a writer beside a reader is a thread of the test")]
fn a_lookup_finds_its_prefix_while_a_writer_reuses_tables() {
    let flushes = PrefixFlushes::new(7);
    flushes.record(b"kept:", u64::MAX, NONE_FORGETTABLE).unwrap();
    let prefix = |number: u64| number.to_le_bytes();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..=6 * PREFIXES_MAX as u64 {
                flushes.record(&prefix(number), number, || number - 1).unwrap();
            }
        });
        while !writer.is_finished() {
            assert!(flushes.is_flushed_since(b"kept:key", 1));
        }
    });
}
