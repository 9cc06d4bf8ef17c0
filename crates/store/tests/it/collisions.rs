//! Keys chosen so that all belong to one bucket of the first table: every one is stored, those that the chain holds
//! are found, the others were counted as evicted, and other keys are unaffected.
//!
//! The test knows the seed of the hash, like an attacker who discovered it. `GLASSCACHE_TEST_COLLISIONS` is the
//! number of keys (default 20,000; `make collisions` uses a million).

#![expect(clippy::disallowed_methods, reason = "the environment chooses the number of keys")]

use std::collections::HashSet;

use glasscache_store::{Config, DeleteOptions, DeleteOutcome, Seconds, SetOptions, SetOutcome};
use glasscache_store::{Store, Worker};

const NOW: Seconds = Seconds(2);
/// Buckets of the first table of a store of 4 MiB: one segment of 8 KiB.
const BUCKETS: u64 = 128;
/// Items in a full chain: a bucket and sixteen overflow lines of seven slots.
const CHAIN_ITEMS: usize = 7 * 17;
/// The number of other keys, which are spread over all buckets.
const OTHER_KEYS: usize = 500;
/// Each tenth operation is followed by one on another key.
const OTHER_KEY_EVERY: usize = 10;

/// A store, and the keys that must be in it, given its reported evictions.
struct CheckedStore<'w> {
    worker: &'w mut Worker,
    present_keys: HashSet<Vec<u8>>,
    evicted_count: u64,
}

impl CheckedStore<'_> {
    fn hash(&self, key: &[u8]) -> glasscache_store::KeyHash {
        self.worker.store().hash(key)
    }

    /// Records evictions, after each operation so that no report is lost.
    fn record_evictions(&mut self) {
        let CheckedStore { worker, present_keys, evicted_count } = self;
        worker.take_evicted(&mut |item| {
            assert!(present_keys.remove(&*item.key), "evicted and was not there");
            *evicted_count += 1;
        });
        worker.pass();
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        let outcome = self.worker.set(key, self.hash(key), value, &SetOptions::default(), NOW);
        assert!(matches!(outcome, SetOutcome::Stored(_)), "{outcome:?}");
        self.record_evictions();
        self.present_keys.insert(key.to_vec());
        // No other operation came between: the item stored last is present.
        self.get(key, Some(value));
    }

    fn get(&mut self, key: &[u8], expected_value: Option<&[u8]>) {
        let item = self.worker.get(key, self.hash(key), NOW);
        let found = item.as_ref().and_then(glasscache_store::Item::value);
        assert_eq!(found.is_some(), self.present_keys.contains(key));
        if let (Some(found), Some(expected_value)) = (found, expected_value) {
            assert_eq!(found, expected_value);
        }
        self.record_evictions();
    }

    fn delete(&mut self, key: &[u8]) {
        let outcome = self.worker.delete(key, self.hash(key), &DeleteOptions::default(), NOW);
        let was_present = self.present_keys.remove(key);
        assert_eq!(outcome == DeleteOutcome::Deleted, was_present);
        self.record_evictions();
    }
}

fn colliding_keys(store: &Store) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0u64..)
        .map(|number| format!("{number:x}").into_bytes())
        .filter(|key| store.hash(key).0 % BUCKETS == 5)
}

#[test]
fn keys_of_one_bucket_are_found_while_the_chain_holds_them_and_counted_when_it_does_not() {
    let key_count: usize =
        std::env::var("GLASSCACHE_TEST_COLLISIONS").map_or(20_000, |text| text.parse().unwrap());
    let config = Config { memory_bytes: 4 << 20, workers: 1, hash_seed: 1, ..Config::default() };
    let store = Store::new(config).unwrap();
    store.report_evictions(true);
    let mut worker = store.worker();
    worker.go_online();
    let mut checked_store =
        CheckedStore { worker: &mut worker, present_keys: HashSet::new(), evicted_count: 0 };
    let other_key_of = |number: usize| format!("other:{}", number % OTHER_KEYS).into_bytes();
    for number in 0..OTHER_KEYS {
        checked_store.set(&other_key_of(number), b"others'");
    }
    let mut recent_keys: Vec<Vec<u8>> = Vec::new();
    for (number, key) in colliding_keys(&store).take(key_count).enumerate() {
        checked_store.set(&key, b"1");
        if number + 1 == CHAIN_ITEMS / 2 {
            assert_eq!(
                checked_store.evicted_count, 0,
                "a key was evicted although the chain had room"
            );
        }
        if number % 3 == 0 {
            checked_store.set(&key, b"a longer value");
        }
        if number % 5 == 0 {
            checked_store.delete(&key);
        }
        if number % OTHER_KEY_EVERY == 0 {
            let other_key = other_key_of(number / OTHER_KEY_EVERY);
            checked_store.get(&other_key, Some(b"others'"));
            checked_store.set(&other_key, b"others'");
        }
        recent_keys.push(key);
        if recent_keys.len() == 4 * CHAIN_ITEMS {
            for key in recent_keys.drain(..) {
                checked_store.get(&key, None);
            }
        }
    }
    let (present_count, evicted_count) =
        (checked_store.present_keys.len(), checked_store.evicted_count);
    let counters = store.counters();
    eprintln!("{key_count} keys: {present_count} present, {evicted_count} evicted, {counters:?}");
    assert_eq!(counters.items as usize, present_count);
    assert_eq!(counters.displaced, evicted_count, "something else evicted");
    assert!(counters.displaced as usize > key_count / 4, "no chain was full");
    assert_eq!(store.audit(&[&worker]).items, present_count);
}
