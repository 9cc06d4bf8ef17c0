//! A memory file and its snapshot with bytes changed and checksums made right again: the store is refused, or it is
//! whole, and serves reads and enough writes that every segment is swept and reused. The input as a snapshot is decoded
//! too.

#![no_main]

#[path = "../../crates/store/tests/it/restart/restartable_store.rs"]
mod restartable_store;

use std::sync::OnceLock;

use glasscache_store::Snapshot;
use libfuzzer_sys::fuzz_target;

use restartable_store::{RestartableStore, STOP_TIME, config, fill, recover_damaged};

/// The file, the snapshot, and the memory before any damage.
fn stopped() -> &'static (RestartableStore, Vec<u8>, Vec<u8>) {
    static STOPPED: OnceLock<(RestartableStore, Vec<u8>, Vec<u8>)> = OnceLock::new();
    STOPPED.get_or_init(|| {
        let restartable_store = RestartableStore::new(config(1 << 20));
        let store = restartable_store.make_empty();
        fill(&store);
        let snapshot = store.snapshot(STOP_TIME).expect("nothing runs");
        drop(store);
        let memory = restartable_store.read();
        (restartable_store, snapshot, memory)
    })
}

fuzz_target!(|input: &[u8]| {
    let _ = Snapshot::decode(input);
    let (restartable_store, snapshot, memory) = stopped();
    let mut rest = input.iter();
    recover_damaged(restartable_store, snapshot, memory, |bound| {
        // Four bytes for a large choice, one for a small one; zeros at the end.
        let count = if bound > 256 { 4 } else { 1 };
        let number =
            rest.by_ref().take(count).fold(0, |number, &byte| number << 8 | u64::from(byte));
        number % bound
    });
});
