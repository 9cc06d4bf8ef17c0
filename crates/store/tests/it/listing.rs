//! A listing of all items: each once whatever happens meanwhile, in bounded steps, in an order that reveals
//! nothing.

use std::collections::HashMap;

use glasscache_store::{Config, DeleteOptions, Item, Listing, Seconds, SetOptions, Store, Worker};

const NOW: Seconds = Seconds(10);

fn new_worker(memory_bytes: u64) -> Worker {
    let config = Config { memory_bytes, hash_seed: 7, workers: 1, ..Config::default() };
    let mut worker = Store::new(config).unwrap().worker();
    worker.go_online();
    worker
}

fn set(worker: &mut Worker, key: &str) {
    let hash = worker.store().hash(key.as_bytes());
    worker.set(key.as_bytes(), hash, b"value", &SetOptions::default(), NOW);
    worker.pass();
}

fn delete(worker: &mut Worker, key: &str) {
    let hash = worker.store().hash(key.as_bytes());
    worker.delete(key.as_bytes(), hash, &DeleteOptions::default(), NOW);
    worker.pass();
}

/// The keys in the order of the listing; `between` runs after each step.
fn list(worker: &mut Worker, seed: u64, mut between: impl FnMut(&mut Worker)) -> Vec<String> {
    let mut item_count_max = worker.store().counters().items;
    let mut listing = Listing::new(seed, item_count_max);
    let mut keys = Vec::new();
    let mut visit = |item: &Item<'_>| keys.push(String::from_utf8(item.key().to_vec()).unwrap());
    while let Some(examined) = worker.list(&mut listing, 64, NOW, &mut visit) {
        // A chain is bounded, so a step is: 64 and one bucket more.
        assert!(examined < 64 + 512, "{examined} examined in one step");
        item_count_max = item_count_max.max(worker.store().counters().items);
        // Twice the bytes of one pass, because a vector doubles, plus one byte per item.
        assert!(listing.held_bytes() <= (512 << 10) + item_count_max as usize);
        worker.pass();
        between(worker);
    }
    keys
}

#[test]
fn every_item_that_stays_is_listed_once_while_the_index_grows_and_shrinks() {
    for index_grows in [true, false] {
        let mut worker = new_worker(64 << 20);
        let other_count = 60_000;
        (0..20_000).for_each(|number| set(&mut worker, &format!("stays{number}")));
        if !index_grows {
            (0..other_count).for_each(|number| set(&mut worker, &format!("other{number}")));
        }
        let mut next = 0;
        let keys = list(&mut worker, 1, |worker| {
            for number in next..(next + 100).min(other_count) {
                if index_grows {
                    set(worker, &format!("other{number}"));
                } else {
                    delete(worker, &format!("other{number}"));
                }
            }
            next += 100;
        });
        let mut listed_times: HashMap<&str, usize> = HashMap::new();
        for key in &keys {
            *listed_times.entry(key).or_default() += 1;
        }
        assert!(listed_times.values().all(|times| *times == 1), "one was listed twice");
        let stayed =
            (0..20_000).filter(|n| listed_times.contains_key(format!("stays{n}").as_str()));
        assert_eq!(stayed.count(), 20_000, "index_grows: {index_grows}");
    }
}

#[test]
fn neighbours_in_a_listing_share_a_bucket_only_by_chance() {
    let mut worker = new_worker(64 << 20);
    let item_count = 50_000;
    (0..item_count).for_each(|number| set(&mut worker, &format!("key{number}")));
    let keys = list(&mut worker, 12345, |_| {});
    assert_eq!(keys.len(), item_count);
    // The lowest eight bits of the hash: in the order of the buckets nearly all neighbours share them.
    let lowest_bits = |key: &str| worker.store().hash(key.as_bytes()).0 & 0xff;
    let sharing_pairs =
        keys.windows(2).filter(|pair| lowest_bits(&pair[0]) == lowest_bits(&pair[1]));
    let share = sharing_pairs.count() as f64 / item_count as f64;
    assert!(share < 2.0 / 256.0, "{share} of all neighbours");
    assert_ne!(keys, list(&mut worker, 54321, |_| {}), "the seed orders it");
}
