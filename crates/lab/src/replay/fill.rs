//! Stores a random value of the recorded size under each key of a log, for a server that does not have the items.

use glasscache_client::key::WireKeys;
use glasscache_client::request::Item;
use glasscache_client::{Client, StoreMode};
use glasscache_sim::trace::log::Items;

use super::{ReplayError, Servers};
use crate::load::ValueSource;
use crate::target::new_call_budget;

/// Items of one call.
const ITEMS_PER_CALL: usize = 200;

/// Bytes after which a call has enough items.
const BYTES_PER_CALL: usize = 4 << 20;

/// Seed of the values.
const SEED: u64 = 1;

/// Stores every item.
///
/// # Errors
/// A key that cannot go on the wire, or a call that failed.
pub(super) fn fill(servers: Servers<'_>, items: &Items) -> Result<(), ReplayError> {
    let client = servers.new_client(servers.client_options())?;
    let largest_bytes = items.sizes.iter().copied().max().unwrap_or(0);
    let value_source = ValueSource::new(largest_bytes as usize, SEED);
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    for (id, (key, &size)) in items.keys.iter().zip(&items.sizes).enumerate() {
        batch.push((key.as_str(), value_source.value(id as u64, 0, size as usize)));
        batch_bytes += size as usize;
        if batch.len() == ITEMS_PER_CALL || batch_bytes >= BYTES_PER_CALL {
            store(&client, &batch)?;
            (batch, batch_bytes) = (Vec::new(), 0);
        }
    }
    store(&client, &batch)
}

/// Stores values under their keys in one call.
fn store(client: &Client, batch: &[(&str, &[u8])]) -> Result<(), ReplayError> {
    let mut wire_keys = WireKeys::default();
    batch.iter().try_for_each(|(key, _)| wire_keys.push(client.keys(), key.as_bytes()))?;
    let keys_and_values = wire_keys.all().into_iter().zip(batch);
    let items: Vec<Item<'_>> =
        keys_and_values.map(|(key, &(_, body))| Item { key, flags: 0, body }).collect();
    let failures = client.store_many(StoreMode::Set, &items, 0, &new_call_budget())?;
    match failures.into_iter().next() {
        Some((_, error)) => Err(error.into()),
        None => Ok(()),
    }
}
