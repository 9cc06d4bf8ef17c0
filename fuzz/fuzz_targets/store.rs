//! Sequences of store operations as a program of bytes, held against a plain map; then the audit counts every byte.
//!
//! The operations and what their outcome must be are those of the store's model test. Two workers alternate, memory
//! is small enough that everything is evicted, compacted and reused, and the audit runs between and at the end.

#![no_main]

#[path = "../../crates/store/tests/it/model/map.rs"]
mod map;
#[path = "../../crates/store/tests/it/model/operations.rs"]
mod operations;

use std::collections::HashMap;

use glasscache_store::{Config, PolicyKind, Seconds, Store, Worker};
use libfuzzer_sys::fuzz_target;

use map::{Model, Rng};
use operations::operate;

/// Operations between two audits.
const AUDIT_EVERY: usize = 256;

fuzz_target!(|program: &[u8]| {
    let Some((&shape, program)) = program.split_first() else { return };
    let mut rng = Rng::from_program(program);
    // Roomy or tight, many keys or few, small values or large ones.
    let memory_bytes = if shape & 1 == 0 { 1 << 20 } else { 32 << 20 };
    let keys = if shape & 2 == 0 { 40 } else { 4000 };
    let large = if shape & 4 == 0 { 400 } else { 200_000 };
    let config = Config {
        memory_bytes,
        item_bytes_max: 1 << 20,
        workers: 2,
        evict: true,
        hash_seed: u64::from(shape),
        samples: true,
        slab_chunk_bytes: vec![96, 192, 1184, 8192, 1 << 20],
    };
    let store =
        Store::with_policy(config, PolicyKind::S3FifoSizeAware).expect("memory for a small store");
    let mut workers = [store.worker(), store.worker()];
    workers.iter_mut().for_each(Worker::go_online);
    let mut model =
        Model { entries: HashMap::new(), now: Seconds(2), may_evict: memory_bytes < 32 << 20 };
    let mut steps = 0;
    while !rng.is_at_end() {
        let which = rng.below(2) as usize;
        // The other must not lag: what it might still read cannot be reused.
        workers[1 - which].go_offline();
        operate(&mut rng, &mut workers[which], &mut model, (keys, large));
        if rng.below(50) == 0 {
            model.now.0 += rng.below(4) as u32;
        }
        workers[which].pass();
        if rng.below(20) == 0 {
            let now = model.now;
            for worker in &mut workers {
                worker.maintain(now);
                worker.pass();
            }
        }
        steps += 1;
        if steps % AUDIT_EVERY == 0 {
            audit(&workers);
        }
    }
    audit(&workers);
});

/// Every byte is counted once, every item found once, and the counters agree.
fn audit(workers: &[Worker; 2]) {
    let store = workers[0].store();
    let audit = store.audit(&[&workers[0], &workers[1]]);
    let counters = store.counters();
    assert_eq!(counters.item_bytes as usize, audit.live_bytes);
    assert_eq!(counters.items as usize, audit.items);
    assert_eq!(counters.upload_bytes, 0);
}
