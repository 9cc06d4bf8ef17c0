//! The age of the oldest items, which statistics report for every slab class.

use glasscache_store::{Config, Seconds, SetOptions, SetOutcome, Store};

#[test]
fn the_age_of_the_oldest_items_grows_until_they_are_evicted_or_kept() {
    let config = Config { memory_bytes: 1 << 20, workers: 1, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    assert_eq!(store.oldest_items_age_s(Seconds(100)), None);
    let mut set = |number: u32, now: Seconds| {
        let key = number.to_string();
        let hash = store.hash(key.as_bytes());
        let outcome = worker.set(key.as_bytes(), hash, &[1; 1000], &SetOptions::default(), now);
        assert!(matches!(outcome, SetOutcome::Stored(_)), "{outcome:?}");
        worker.pass();
        worker.maintain(now);
    };
    set(0, Seconds(100));
    assert_eq!(store.oldest_items_age_s(Seconds(130)), Some(30));
    set(1, Seconds(200));
    assert_eq!(store.oldest_items_age_s(Seconds(210)), Some(110));
    // Five times the memory, ten items a second: the first ones are gone.
    for number in 2..5000 {
        set(number, Seconds(300 + number / 10));
    }
    let age_s = store.oldest_items_age_s(Seconds(800)).unwrap();
    assert!((20..=400).contains(&age_s), "{age_s} s");
}
