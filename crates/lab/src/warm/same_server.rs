//! The proof that the two addresses lead to different servers: a random key that is stored at the new server must not be
//! found at the old one.
//!
//! Addresses prove nothing, for one server can have several names, addresses and sockets, or stand behind a proxy. Copied
//! onto itself, every item would change while it is copied, and would be removed.

use std::hash::{BuildHasher, RandomState};

use glasscache_protocol::meta::reply::MetaCode;
use glasscache_protocol::meta::request::{self, CommonFields, GetFields, WireKey};
use glasscache_protocol::text::request::{StoreMode, TextStoreParameters};

use super::report::WarmError;
use super::server::{BatchReply, CopyEndpoint, Reply};

/// Seconds after which the key is gone, should it not be removed.
const PROBE_TTL_S: i64 = 60;

/// How often the proof is tried. It is void if the key is removed while the old server is asked, as by a `flush_all`.
const TRIES_MAX: u32 = 3;

/// Fails if the target and the source are one server.
pub(super) fn refuse_same_server(
    source: &mut CopyEndpoint,
    target: &mut CopyEndpoint,
) -> Result<(), WarmError> {
    let mut last_reply = None;
    for _ in 0..TRIES_MAX {
        let key = new_probe_key();
        let key = WireKey { bytes: key.as_bytes(), is_base64: false };
        let unique = store_probe(key, target)?;
        let is_found = has_probe(key, source)?;
        let removal = remove_probe(key, unique, target)?;
        if is_found {
            return Err(WarmError::SameServer {
                source_name: source.name().to_owned(),
                target_name: target.name().to_owned(),
            });
        }
        if removal.as_ref().is_some_and(|reply| reply.code == MetaCode::Done) {
            return Ok(());
        }
        last_reply = removal;
    }
    Err(target.unexpected_error("md", format!("{last_reply:?}")))
}

/// A key that no client uses: 128 random bits.
fn new_probe_key() -> String {
    let random_number = || RandomState::new().hash_one(std::process::id());
    format!("glasscache-warm:{:016x}{:016x}", random_number(), random_number())
}

/// Stores the key and returns its unique.
fn store_probe(key: WireKey<'_>, target: &mut CopyEndpoint) -> Result<u64, WarmError> {
    let value = b"1";
    let parameters = TextStoreParameters {
        flags: 0,
        exptime: PROBE_TTL_S,
        value_bytes: value.len(),
        noreply: false,
    };
    let mut requests = Vec::new();
    request::set_and_get_unique(&mut requests, StoreMode::Set, key, &parameters, COMMON_FIELDS);
    requests.extend_from_slice(value);
    requests.extend_from_slice(b"\r\n");
    match request_one("ms", requests, target)? {
        Some(reply) if reply.code == MetaCode::Done => Ok(reply.unique),
        reply => Err(target.unexpected_error("ms", format!("{reply:?}"))),
    }
}

fn has_probe(key: WireKey<'_>, source: &mut CopyEndpoint) -> Result<bool, WarmError> {
    let fields = GetFields { no_bump: true, ..GetFields::default() };
    let mut requests = Vec::new();
    // Quiet: the reply to a miss names no request.
    request::get(&mut requests, key, fields, CommonFields { opaque: 0, quiet: true });
    let reply = request_one("mg", requests, source)?;
    Ok(reply.is_some_and(|reply| reply.code == MetaCode::Done))
}

fn remove_probe(
    key: WireKey<'_>,
    unique: u64,
    target: &mut CopyEndpoint,
) -> Result<Option<Reply>, WarmError> {
    let mut requests = Vec::new();
    request::delete_if_unchanged(&mut requests, key, unique, COMMON_FIELDS);
    request_one("md", requests, target)
}

/// Not quiet, so that success has a reply too.
const COMMON_FIELDS: CommonFields = CommonFields { opaque: 0, quiet: false };

/// Sends one request and the `mn` behind it, and returns the reply, if there is one.
fn request_one(
    command: &'static str,
    mut requests: Vec<u8>,
    server: &mut CopyEndpoint,
) -> Result<Option<Reply>, WarmError> {
    request::noop(&mut requests);
    server.write(&requests)?;
    server.flush()?;
    let mut reply = None;
    loop {
        match server.read_next_reply(command)? {
            BatchReply::End => return Ok(reply),
            BatchReply::Reply(next_reply) => reply = Some(next_reply),
            BatchReply::Refused(error_line) => {
                return Err(server.refused_error(command, error_line));
            }
        }
    }
}
