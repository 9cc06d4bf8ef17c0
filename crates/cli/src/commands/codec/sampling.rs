//! Values drawn from a server: keys from its dump, each with the same chance, then their values.

use std::time::Duration;

use glasscache_client::{Address, Budget};
use glasscache_lab::codec::Samples;
use glasscache_lab::load::Rng;

use crate::access;
use crate::commands::keys::{for_each_key, parse_key};
use crate::output::{Exit, Failure};
use crate::target::{Target, failure};

/// How long a call may take, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;

/// Keys of one request.
const KEYS_PER_GET: usize = 100;

/// Draws up to `count` values of the server at `address`.
pub(super) fn draw(
    address: &str,
    access: &access::Args,
    count: usize,
    seed: u64,
) -> Result<Samples, Failure> {
    let (server, access) = (address.to_owned(), access.clone());
    let target = Target { server, timeout_ms: TIMEOUT_MS, access };
    draw_values(&target, count, seed).map_err(|draw_failure| {
        draw_failure.with_hint_if_unreachable(
            "--from names the server whose values are drawn; it has ten seconds for each call",
        )
    })
}

fn draw_values(target: &Target, count: usize, seed: u64) -> Result<Samples, Failure> {
    let keys = draw_keys(target, count, seed)?;
    if keys.is_empty() {
        return Err(Failure::new(
            Exit::BadData,
            format!(
                "the server at {} holds no items, so there is nothing to measure",
                target.server
            ),
        ));
    }
    let client = target.client()?;
    let mut samples = Samples::default();
    for batch in keys.chunks(KEYS_PER_GET) {
        let batch_keys: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
        let budget = Budget::new(Duration::from_millis(TIMEOUT_MS));
        let (values, failures) =
            client.get_many(&batch_keys, &budget).map_err(|error| failure(&error))?;
        if let Some((_, error)) = failures.first() {
            return Err(failure(error));
        }
        for (index, flags, bytes) in values {
            samples.push_item(batch.get(index).map_or(b"", Vec::as_slice), flags, bytes);
        }
    }
    Ok(samples)
}

/// A reservoir of the keys that a client can name: after n keys each is in it with the same chance.
fn draw_keys(target: &Target, count: usize, seed: u64) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut keys, mut keys_seen, mut rng) = (Vec::with_capacity(count), 0_u64, Rng::new(seed));
    let addresses = Address::parse_list(&target.server).map_err(|error| failure(&error))?;
    for address in addresses {
        for_each_key(target, &address.endpoint, &mut |fields| {
            let key = parse_key(fields);
            if key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
                return Ok(true);
            }
            keys_seen += 1;
            let index = rng.below(keys_seen) as usize;
            if keys.len() < count {
                keys.push(key);
            } else if let Some(replaced_key) = keys.get_mut(index) {
                *replaced_key = key;
            }
            Ok(true)
        })?;
    }
    Ok(keys)
}
