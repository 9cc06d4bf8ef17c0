//! Reservations: an item that holds a key while one client computes its value, and that this client reads as a miss.
//!
//! The client that computes a value stores the reservation by `add` and replaces it by `cas`. A delete, a write or a
//! flush by any client removes the reservation, and with it the value that comes later
//! (docs/decisions/client.md, 0058). To other clients the body is a None of their dialect,
//! which their decoders read first; a mark and a token follow it.

use glasscache_protocol::meta::request::WireKey;

use crate::costs::{self, CallClass};
use crate::engine::interpret::refusal_to_error;
use crate::engine::operation::Operation;
use crate::error::Error;
pub use crate::pipeline::reserved::TOKEN_BYTES;
use crate::pipeline::reserved::{NONE_BYTES_MAX, RESERVATION_MARK, token_of};
use crate::pipeline::{Pipeline, Reply};
use crate::request::{CommandSet, Request};
use crate::value::{Codec, Dialect, ValueRef};

/// Flags of Dalli's and spymemcached's own serialisers, whose forms of null the codec does not write.
const SERIALIZED_FLAGS: u32 = 1;

/// Flags and body of a reservation, or `None` in a dialect whose readers would take it for a value.
pub fn reservation_flags_and_body(
    codec: &Codec,
    token: &[u8; TOKEN_BYTES],
) -> Option<(u32, Vec<u8>)> {
    let (flags, encoded_none) = match codec.options().dialect {
        Dialect::Raw | Dialect::Flagged => return None,
        Dialect::Dalli => (SERIALIZED_FLAGS, b"\x04\x080".to_vec()),
        Dialect::Spymemcached => (SERIALIZED_FLAGS, b"\xac\xed\x00\x05p".to_vec()),
        _ => {
            let encoded = codec.encode(&ValueRef::None).ok()?;
            (encoded.flags, encoded.bytes.to_vec())
        }
    };
    (encoded_none.len() <= NONE_BYTES_MAX)
        .then(|| (flags, [&encoded_none[..], RESERVATION_MARK, token].concat()))
}

/// A reservation that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The token of its owner.
    pub token: Vec<u8>,
    /// The CAS unique by which its owner replaces it.
    pub cas: u64,
    /// Seconds left; `None` where the server does not report it.
    pub ttl_s: Option<i64>,
}

impl Reservation {
    /// The reservation in a reply, if that is what is under the key.
    pub fn in_reply(reply: &Reply, pipeline: &Pipeline) -> Option<Self> {
        let found = pipeline.reservation()?;
        let ttl_s = match reply {
            Reply::Meta(meta) => meta.ttl_s,
            _ => None,
        };
        Some(Self { token: token_of(pipeline.body(&found))?.to_vec(), cas: found.cas, ttl_s })
    }

    /// The request that reads one, as the server understands it.
    pub fn request(key: WireKey<'_>, command_set: Option<CommandSet>) -> Request<'_> {
        match command_set {
            Some(CommandSet::Classic | CommandSet::Binary) => Request::Get { key, cas: true },
            _ => Request::Inspect { key },
        }
    }
}

/// Reads the reservation under a key; `None` if there is a value or nothing.
#[derive(Debug, Clone, Copy)]
pub struct FindReservation<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// The command set of its server.
    pub command_set: Option<CommandSet>,
}

impl Operation for FindReservation<'_> {
    type Output = Option<Reservation>;

    fn key(&self) -> WireKey<'_> {
        self.key
    }

    fn request(&self) -> Request<'_> {
        Reservation::request(self.key, self.command_set)
    }

    fn class(&self) -> CallClass {
        CallClass::Single(costs::OperationKind::Other, 0)
    }

    fn read(&self, reply: Reply, pipeline: &Pipeline, server: &str) -> Result<Self::Output, Error> {
        let reply = refusal_to_error(reply, server)?;
        Ok(Reservation::in_reply(&reply, pipeline))
    }

    fn quiet_output(&self) -> Self::Output {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{ExpectedReply, KeyHash, ReplyProgress};
    use crate::value::CodecOptions;
    use glasscache_protocol::meta::reply::MetaCode;

    const TOKEN: [u8; TOKEN_BYTES] = *b"0123456789abcdef";

    fn reservation_body(dialect: Dialect) -> Vec<u8> {
        let codec = Codec::new(CodecOptions::of(dialect)).unwrap();
        let (_, body) = reservation_flags_and_body(&codec, &TOKEN).unwrap();
        body
    }

    #[test]
    fn a_reservation_is_known_by_its_end_in_every_dialect_that_has_one() {
        for (dialect, name) in crate::value::DIALECTS {
            let codec = Codec::new(CodecOptions::of(dialect)).unwrap();
            match reservation_flags_and_body(&codec, &TOKEN) {
                Some((_, body)) => assert_eq!(token_of(&body), Some(&TOKEN[..]), "{name}"),
                None => assert!(matches!(dialect, Dialect::Raw | Dialect::Flagged), "{name}"),
            }
        }
        assert_eq!(token_of(b""), None);
        assert_eq!(token_of(&[b'x'; 40]), None);
    }

    #[test]
    fn a_classic_read_misses_and_returns_the_reservation() {
        let body = reservation_body(Dialect::Pymemcache);
        for has_cas in [false, true] {
            let mut pipeline = Pipeline::new(1000);
            let mut key_list = pipeline.key_list();
            key_list.begin(b"gets");
            for key in [&b"a"[..], b"b"] {
                key_list.push(b"", key);
            }
            pipeline.expect(ExpectedReply::Values(key_list));
            let unique = if has_cas { " 77" } else { "" };
            pipeline.feed(format!("VALUE a 1 {}{unique}\r\n", body.len()).as_bytes());
            pipeline.feed(&body);
            pipeline.feed(b"\r\nVALUE b 0 1\r\nx\r\nEND\r\n");
            assert_eq!(pipeline.poll(), Ok(ReplyProgress::Complete(Reply::Values)));
            let found_indices: Vec<usize> =
                pipeline.found_values().iter().map(|found| found.key_index).collect();
            assert_eq!(found_indices, [1]);
            let reservation = Reservation::in_reply(&Reply::Values, &pipeline).unwrap();
            assert_eq!(
                (&reservation.token[..], reservation.cas),
                (&TOKEN[..], if has_cas { 77 } else { 0 })
            );
            pipeline.release();
            assert!(pipeline.is_clean() && pipeline.reservation().is_none());
        }
    }

    #[test]
    fn a_meta_read_of_a_reservation_is_a_miss() {
        let body = reservation_body(Dialect::Glasscache);
        let mut pipeline = Pipeline::new(1000);
        pipeline.expect(ExpectedReply::Meta { opaque: 7, key_hash: KeyHash::of(b"a") });
        pipeline.feed(format!("VA {} ka O7 c5 t58\r\n", body.len()).as_bytes());
        pipeline.feed(&body);
        pipeline.feed(b"\r\n");
        let Ok(ReplyProgress::Complete(reply)) = pipeline.poll() else { panic!("incomplete") };
        assert!(matches!(reply, Reply::Meta(meta) if meta.code == MetaCode::Miss));
        assert!(pipeline.found_values().is_empty());
        let reservation = Reservation::in_reply(&reply, &pipeline).unwrap();
        assert_eq!((reservation.cas, reservation.ttl_s), (5, Some(58)));
    }
}
