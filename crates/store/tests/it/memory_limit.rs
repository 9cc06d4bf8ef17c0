//! The budget: the segments in use, whatever is stored, and that index memory returns to the items.

use glasscache_store::{Config, Counters, Seconds, SetOptions, SetOutcome, Store, Worker};

const NOW: Seconds = Seconds(2);
/// Maximum number of segments kept free ahead of need for one worker: they are outside the limit.
const RESERVE_SEGMENTS: u64 = 1 + 2 + 16;

/// Fills the store with `times` its memory in values of one size, all under new keys; none may be refused.
fn fill(worker: &mut Worker, value_bytes: usize, times: f64, first_number: u64) {
    let total_bytes = worker.store().memory_bytes() as f64 * times;
    let item_count = total_bytes as u64 / (value_bytes as u64 + 20);
    let value = vec![7; value_bytes];
    for number in first_number..first_number + item_count {
        let key = format!("key:{number:016}");
        let hash = worker.store().hash(key.as_bytes());
        let outcome = worker.set(key.as_bytes(), hash, &value, &SetOptions::default(), NOW);
        assert!(matches!(outcome, SetOutcome::Stored(_)), "{outcome:?}");
        worker.pass();
    }
    while worker.maintain(NOW) {
        worker.pass();
    }
}

fn taken_bytes(counters: &Counters) -> u64 {
    counters.segment_bytes + counters.index_bytes + counters.ghost_bytes
}

/// Memory that may be outside the limit: a fiftieth and 5 MiB, at most an eighth.
fn outside_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 50 + (5 << 20)).min(memory_bytes / 8)
}

#[test]
fn all_segments_together_stay_within_the_limit_and_its_allowance() {
    for memory_bytes in [1, 3, 16].map(|mib: u64| mib << 20) {
        let config = Config { memory_bytes, workers: 1, ..Config::default() };
        let store = Store::new(config).unwrap();
        let mut worker = store.worker();
        worker.go_online();
        let reserve_bytes = RESERVE_SEGMENTS * (memory_bytes / 512).max(8 << 10);
        let bytes_max = memory_bytes + outside_bytes(memory_bytes) + reserve_bytes;
        for (round, value_bytes) in (0..).zip([10, 1000, 10, 20_000]) {
            fill(&mut worker, value_bytes, 1.5, round << 40);
            let counters = store.counters();
            let total_taken_bytes = taken_bytes(&counters);
            assert!(
                total_taken_bytes <= bytes_max,
                "{value_bytes} B at {memory_bytes}: {counters:?}"
            );
            assert!(
                total_taken_bytes + reserve_bytes >= memory_bytes,
                "{value_bytes} B at {memory_bytes}: {counters:?}"
            );
        }
    }
}

#[test]
fn an_index_that_shrinks_returns_its_memory() {
    let config = Config { memory_bytes: 8 << 20, ..Config::default() };
    let store = Store::new(config).unwrap();
    let mut worker = store.worker();
    worker.go_online();
    fill(&mut worker, 10, 1.5, 0);
    let with_many_items = store.counters();
    fill(&mut worker, 5000, 3.0, 1 << 40);
    let with_few_items = store.counters();
    assert!(
        with_few_items.index_bytes * 4 < with_many_items.index_bytes,
        "{with_few_items:?} after {with_many_items:?}"
    );
    let outside_the_limit = taken_bytes(&with_few_items).saturating_sub(store.memory_bytes());
    assert!(
        outside_the_limit <= with_few_items.index_bytes + with_few_items.ghost_bytes,
        "{with_few_items:?}"
    );
}
