//! The table of flushed prefixes alone: what matches, what is refused, and lookups beside a writer.

use super::*;

const NONE_FORGETTABLE: fn() -> u64 = || 0;

fn record_prefixes(prefixes: &[&[u8]]) -> PrefixFlushes {
    let flushes = PrefixFlushes::new(7, u64::MAX);
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
    let flushes = PrefixFlushes::new(7, u64::MAX);
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
    let flushes = PrefixFlushes::new(7, u64::MAX);
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
    let flushes = PrefixFlushes::new(7, u64::MAX);
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

#[test]
fn the_tables_take_at_most_an_eighth_of_a_small_memory() {
    for (memory_mib, expected_max) in
        [(1, 1024), (2, 2048), (8, 8192), (47, 32_768), (48, PREFIXES_MAX)]
    {
        let flushes = PrefixFlushes::new(7, memory_mib << 20);
        assert_eq!(flushes.prefixes_max(), expected_max, "{memory_mib}");
        let prefix = |number: u64| number.to_le_bytes();
        // Twice as many, so that both tables of the largest size are used.
        for number in 1..=2 * expected_max as u64 {
            flushes.record(&prefix(number), number, || number - 1).unwrap();
        }
        let group_bytes = GROUP_COUNT * size_of::<AtomicU64>();
        let table_bytes = (flushes.table_bytes() - group_bytes) as u64;
        assert!(table_bytes <= (memory_mib << 20) / 8, "{table_bytes} of {memory_mib} MiB");
    }
}

#[test]
fn a_table_that_is_three_quarters_full_awaits_the_median_of_its_flushes_until_it_is_rebuilt() {
    let flushes = PrefixFlushes::new(7, 1 << 20);
    let prefixes_max = flushes.prefixes_max() as u64;
    let prefix = |number: u64| number.to_le_bytes();
    for number in 1..prefixes_max {
        flushes.record(&prefix(number), number, NONE_FORGETTABLE).unwrap();
        let expected = (number >= prefixes_max * 3 / 4).then_some(prefixes_max * 3 / 8 + 1);
        assert_eq!(flushes.awaited_generation(), expected, "{number}");
    }
    flushes.record(&prefix(prefixes_max), prefixes_max, NONE_FORGETTABLE).unwrap();
    // Nothing can be forgotten, so what is awaited stays.
    let next = prefixes_max + 1;
    assert_eq!(flushes.record(&prefix(next), next, NONE_FORGETTABLE), Err(TableFull));
    assert_eq!(flushes.awaited_generation(), Some(prefixes_max * 3 / 8 + 1));
    // All prefixes were flushed again meanwhile: what was awaited has come, and does not help.
    for number in 1..=prefixes_max {
        flushes.record(&prefix(number), next + number, NONE_FORGETTABLE).unwrap();
    }
    let last = next + prefixes_max + 1;
    assert_eq!(flushes.record(&prefix(last), last, || prefixes_max), Err(TableFull));
    assert_eq!(flushes.awaited_generation(), Some(next + prefixes_max / 2 + 1));
    flushes.record(&prefix(last), last, || next + prefixes_max / 2 + 1).unwrap();
    assert_eq!(flushes.awaited_generation(), None);
}
