//! Values drawn from a server: keys from its dump, each with the same chance, then their values.

use std::time::Duration;

use glasscache_client::value::{Codec, CodecOptions, Decoded, Dialect};
use glasscache_client::{Address, Budget};
use glasscache_lab::codec::{Sample, Samples, ValueKind};
use glasscache_lab::load::Rng;
use glasscache_lab::why::to_printable;

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
            let key = batch.get(index).map(|key| to_printable(key));
            samples.push(to_sample(key, flags, bytes));
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

/// The value of an item: what our client stored is decompressed, and is what it was; other clients' bytes are taken as
/// they are.
fn to_sample(key: Option<String>, flags: u32, bytes: Vec<u8>) -> Sample {
    let codec = Codec::new(CodecOptions::of(Dialect::Glasscache));
    let decoded = codec.as_ref().ok().and_then(|codec| codec.decode(flags, &bytes).ok());
    let new_sample = |kind, bytes: Vec<u8>| Sample { key: key.clone(), kind, bytes };
    match decoded.map(|(decoded, _)| decoded) {
        Some(Decoded::Str(text)) => new_sample(ValueKind::Text, text.into_owned().into_bytes()),
        Some(Decoded::Json(json)) => new_sample(ValueKind::Object, json.into_owned()),
        Some(Decoded::Ints(numbers)) => {
            let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
            new_sample(ValueKind::Object, format!("[{}]", numbers.join(",")).into_bytes())
        }
        Some(Decoded::Bytes(bytes)) => Sample::detect(key, bytes.into_owned()),
        _ => Sample::detect(key, bytes),
    }
}
