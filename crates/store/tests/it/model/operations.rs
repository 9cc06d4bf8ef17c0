//! One random operation on both, and the check of its outcome.

use glasscache_store::{
    ArithOptions, ArithOutcome, CasUnique, DeleteOptions, DeleteOutcome, Expiry, GetOptions, Item,
    Seconds, SetMode, SetOptions, SetOutcome, Worker,
};

use super::map::{Entry, Model, Rng, random_expiry, random_value, stored_item};

/// Reads as the server does a batch of keys, also with the hint for another key.
fn read_hinted(rng: &mut Rng, worker: &Worker, key: &[u8], now: Seconds, old: Option<&Entry>) {
    let hash = worker.store().hash(key);
    let other_hash = worker.store().hash(format!("key-{}", rng.below(50)).as_bytes());
    let is_misled = rng.below(4) == 0;
    let hinted_hash = if is_misled { other_hash } else { hash };
    let hint = worker.prefetch_item(hinted_hash, worker.prefetch_bucket(hinted_hash));
    let hint = worker.prefetch_next_line(hinted_hash, hint);
    let minimal_item_value = worker.get_minimal_item_value(key, hash, hint, now);
    let item = worker.get_hinted(key, hash, hint, now);
    assert_eq!(item.as_ref().map(Item::flags), old.map(|old| old.flags));
    if let (Some(value), Some(item)) = (minimal_item_value, item.as_ref()) {
        assert_eq!(Some(value), item.value());
        assert_eq!(old.map(|old| old.value.as_slice()), Some(value));
        assert_eq!((item.flags(), item.is_marked()), (0, false));
        assert_eq!(item.expiry(), Expiry::Never);
    }
    assert!(minimal_item_value.is_none() || item.is_some(), "a short read found what is not there");
}

pub(crate) fn operate(
    rng: &mut Rng,
    worker: &mut Worker,
    model: &mut Model,
    (key_count, value_bytes_max): (u64, usize),
) {
    let key = format!("key-{}", rng.below(key_count)).into_bytes();
    let hash = worker.store().hash(&key);
    let now = model.now;
    model.remove_if_evicted(worker, &key);
    if rng.below(3) == 0 {
        model.read_unique(worker, &key);
    }
    let old = model.live_entry(&key).cloned();
    match rng.below(20) {
        0..=7 => write_once(rng, worker, model, &key, old, value_bytes_max),
        8..=10 => {
            read_hinted(rng, worker, &key, now, old.as_ref());
        }
        11 => {
            let expiry = random_expiry(rng, now);
            let options = GetOptions { touch: Some(expiry), ..GetOptions::default() };
            let found = worker.get_with(&key, hash, &options, now);
            let Some(old) = old else {
                return assert!(found.is_none());
            };
            match found {
                Some((item, _)) => {
                    let (unique, entry) = (item.unique(), model.entries.get_mut(&key).unwrap());
                    assert!(old.allows_unique(unique), "a touch keeps the unique");
                    assert_eq!(item.expiry(), expiry);
                    (entry.unique, entry.is_unique_exposed, entry.expiry) = (unique, true, expiry);
                }
                None => {
                    assert!(model.may_evict, "a touch failed although memory is free");
                    model.entries.remove(&key);
                }
            }
        }
        12..=13 => {
            let options = DeleteOptions {
                required_cas: (rng.below(3) == 0)
                    .then(|| cas_to_require(rng, old.as_ref()))
                    .flatten(),
                invalidate: rng.below(4) == 0,
                ..DeleteOptions::default()
            };
            let outcome = worker.delete(&key, hash, &options, now);
            let Some(old) = old else {
                return assert_eq!(outcome, DeleteOutcome::NotFound);
            };
            if options.required_cas.is_some_and(|required| required != old.unique) {
                return assert_eq!(outcome, DeleteOutcome::Exists);
            }
            assert_eq!(outcome, DeleteOutcome::Deleted);
            if options.invalidate {
                let Some((_, _, unique, _)) = stored_item(worker, &key, now) else {
                    assert!(model.may_evict);
                    model.entries.remove(&key);
                    return;
                };
                assert!(unique > old.unique, "invalidation gives a new unique");
                let entry = model.entries.get_mut(&key).unwrap();
                (entry.unique, entry.is_unique_exposed) = (unique, true);
                let lease_of = |may_win| {
                    let options = GetOptions { may_win, ..GetOptions::default() };
                    let (_, lease) = worker.get_with(&key, hash, &options, now).unwrap();
                    lease
                };
                let unclaimed = lease_of(false);
                assert!(unclaimed.is_stale && !unclaimed.won && !unclaimed.already_won);
                let first = lease_of(true);
                assert!(first.is_stale && first.won);
                let second = lease_of(true);
                assert!(second.is_stale && second.already_won && !second.won);
            } else {
                model.entries.remove(&key);
            }
        }
        14..=16 => change_counter(rng, worker, model, &key, old),
        17 if rng.below(200) == 0 => {
            worker.store().flush(now, now);
            model.entries.clear();
        }
        17 if rng.below(20) == 0 => {
            // The key itself, or a part that others start with too.
            let length = key.len() - rng.below(3) as usize;
            let prefix = &key[..length];
            worker.store().flush_prefix(prefix, now).unwrap();
            model.entries.retain(|key, _| !key.starts_with(prefix));
        }
        _ => upload_in_parts(rng, worker, model, &key, value_bytes_max),
    }
}

/// A unique to compare with: the item's own or another one, which an item can have only if its unique was exposed.
fn cas_to_require(rng: &mut Rng, old: Option<&Entry>) -> Option<CasUnique> {
    match old {
        None => Some(CasUnique(7)),
        Some(old) => old.is_unique_exposed.then(|| CasUnique(old.unique.0 + rng.below(2))),
    }
}

fn record_write(model: &mut Model, key: &[u8], entry: Entry, old: Option<&Entry>) {
    if let Some(old) = old {
        assert!(entry.unique > old.unique, "a new write has a larger unique");
    }
    model.entries.insert(key.to_vec(), entry);
}

fn write_once(
    rng: &mut Rng,
    worker: &mut Worker,
    model: &mut Model,
    key: &[u8],
    old: Option<Entry>,
    value_bytes_max: usize,
) {
    let now = model.now;
    let value = random_value(rng, value_bytes_max.min(60_000));
    let expiry = random_expiry(rng, now);
    let flags = [0, 1, 300, 70_000][rng.below(4) as usize];
    let mode = match rng.below(8) {
        0 => SetMode::Add,
        1 => SetMode::Replace,
        2 => SetMode::Append,
        3 => SetMode::Prepend,
        _ => SetMode::Set,
    };
    let required_cas = (rng.below(6) == 0).then(|| cas_to_require(rng, old.as_ref())).flatten();
    let options = SetOptions {
        mode,
        flags,
        expiry,
        required_cas,
        hides_unique: rng.below(2) == 0,
        ..SetOptions::default()
    };
    let outcome = worker.set(key, worker.store().hash(key), &value, &options, now);
    check_write(model, worker, key, old, value, &options, outcome);
}

fn check_write(
    model: &mut Model,
    worker: &Worker,
    key: &[u8],
    old: Option<Entry>,
    value: Vec<u8>,
    options: &SetOptions,
    outcome: SetOutcome,
) {
    let extends = matches!(options.mode, SetMode::Append | SetMode::Prepend);
    let replaces = matches!(options.mode, SetMode::Set | SetMode::Replace);
    let has_another_unique = old
        .as_ref()
        .is_some_and(|old| options.required_cas.is_some_and(|required| required != old.unique));
    match outcome {
        SetOutcome::Stored(unique) => {
            assert!(!has_another_unique || options.mode == SetMode::Add);
            let mut entry = Entry {
                value,
                flags: options.flags,
                expiry: options.expiry,
                unique,
                is_unique_exposed: !options.hides_unique,
            };
            if extends {
                let old = old.clone().expect("appended to something");
                entry.value = match options.mode {
                    SetMode::Append => [old.value, entry.value].concat(),
                    _ => [entry.value, old.value].concat(),
                };
                (entry.flags, entry.expiry) = (old.flags, old.expiry);
            }
            assert!(options.mode != SetMode::Add || old.is_none());
            assert!(options.mode != SetMode::Replace || old.is_some());
            record_write(model, key, entry, old.as_ref());
            model.remove_if_evicted(worker, key);
        }
        SetOutcome::Exists => assert!(has_another_unique && (extends || replaces)),
        SetOutcome::NotFound => {
            assert!(replaces && old.is_none() && options.required_cas.is_some());
        }
        SetOutcome::NotStored => match options.mode {
            SetMode::Add => assert!(old.is_some()),
            SetMode::Set => panic!("a set is stored or refused for a reason"),
            SetMode::Replace => assert!(old.is_none()),
            _ => {
                // Over the limit of an item, which its header and key count towards.
                let store = worker.store();
                let limit = u64::from(store.config().item_bytes_max).min(store.memory_bytes() / 2);
                let value_bytes_max = limit as usize - 500;
                assert!(old.is_none_or(|old| old.value.len() + value.len() > value_bytes_max));
            }
        },
        SetOutcome::TooLarge => panic!("no value here is over the limit"),
        SetOutcome::NoMemory => panic!(
            "refused a write although something can be evicted: {:?}",
            worker.store().counters()
        ),
    }
}

fn change_counter(
    rng: &mut Rng,
    worker: &mut Worker,
    model: &mut Model,
    key: &[u8],
    old: Option<Entry>,
) {
    let now = model.now;
    let options = ArithOptions {
        is_decrement: rng.below(2) == 0,
        delta: rng.below(1000),
        initial: (rng.below(2) == 0).then_some((500, Expiry::Never)),
        hides_unique: rng.below(2) == 0,
        ..ArithOptions::default()
    };
    match worker.arith(key, worker.store().hash(key), &options, now) {
        ArithOutcome::Number { value, unique, expiry, expiry_before, created } => {
            assert_eq!(created, old.is_none());
            assert_eq!(expiry_before, old.as_ref().map_or(Expiry::Never, |old| old.expiry));
            // This exposes the unique.
            let (text, _, found_unique, _) = stored_item(worker, key, now).expect("just written");
            assert_eq!(found_unique, unique);
            assert_eq!(String::from_utf8(text.clone()).unwrap().trim_end(), value.to_string());
            if let Some(old) = &old {
                let digits: String = old
                    .value
                    .trim_ascii_start()
                    .iter()
                    .map(|&b| b as char)
                    .take_while(char::is_ascii_digit)
                    .collect();
                let number_before: u64 = digits.parse().unwrap();
                let number_after = if options.is_decrement {
                    number_before.saturating_sub(options.delta)
                } else {
                    number_before.wrapping_add(options.delta)
                };
                assert_eq!(value, number_after);
                assert_eq!(
                    text.len(),
                    old.value.len().max(value.to_string().len()),
                    "padded to the old length"
                );
            }
            let flags = old.as_ref().map_or(0, |old| old.flags);
            record_write(
                model,
                key,
                Entry { value: text, flags, expiry, unique, is_unique_exposed: true },
                old.as_ref(),
            );
        }
        ArithOutcome::NotFound => assert!(old.is_none() && options.initial.is_none()),
        ArithOutcome::NotANumber => assert!(old.is_some()),
        ArithOutcome::Exists => panic!("nothing was compared"),
        ArithOutcome::NoMemory => panic!("refused a number although something can be evicted"),
    }
}

fn upload_in_parts(
    rng: &mut Rng,
    worker: &mut Worker,
    model: &mut Model,
    key: &[u8],
    value_bytes_max: usize,
) {
    let value = random_value(rng, value_bytes_max);
    let mode = [SetMode::Set, SetMode::Append][usize::from(rng.below(4) == 0)];
    let options = SetOptions {
        mode,
        flags: 9,
        expiry: random_expiry(rng, model.now),
        hides_unique: rng.below(2) == 0,
        ..SetOptions::default()
    };
    let hash = worker.store().hash(key);
    let now = model.now;
    let mut reservation = worker.reserve(key, hash, value.len() as u32, &options, now).unwrap();
    let mut sent_bytes = 0;
    let is_abandoned = rng.below(8) == 0;
    while !reservation.is_complete() {
        let space = reservation.space(worker, now);
        assert!(!space.is_empty(), "no room for the next piece");
        let len = space.len().min(1 + rng.below(70_000) as usize);
        space[..len].copy_from_slice(&value[sent_bytes..sent_bytes + len]);
        reservation.advance(len);
        sent_bytes += len;
        worker.pass();
        if is_abandoned && rng.below(3) == 0 {
            return;
        }
    }
    model.remove_if_evicted(worker, key);
    let old = model.live_entry(key).cloned();
    let outcome = worker.commit(reservation, now);
    check_write(model, worker, key, old, value, &options, outcome);
}
