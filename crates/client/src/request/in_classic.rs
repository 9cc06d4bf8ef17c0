//! Requests in classic text, for what stands before the server and knows no meta.

use glasscache_protocol::text::request::{self as text, StoreHead, StoreWord};

use super::{Desk, Item, Request, Unsaid, push_body};
use crate::pipeline::Expect;

impl Request<'_> {
    pub(super) fn write_classic(&self, desk: &mut Desk<'_>) -> Result<(), Unsaid> {
        // Before anything is written: replies to a part of it would meet nobody.
        if self.has_encoded_key() {
            return Err(Unsaid("a key with spaces or control characters"));
        }
        match *self {
            Self::Store {
                word,
                ref item,
                exptime,
                noreply,
            } => {
                classic_store(desk, word, item, exptime, noreply);
                if self.loose_body().is_none() {
                    push_body(desk.out, item.body);
                }
            }
            Self::StoreMany {
                word,
                items,
                exptime,
                ..
            } => {
                for item in items {
                    classic_store(desk, word, item, exptime, false);
                    push_body(desk.out, item.body);
                }
            }
            Self::Delete { key, noreply } => {
                text::delete(desk.out, key.bytes, noreply);
                expect_line(desk, noreply);
            }
            Self::DeleteMany { keys } => {
                for key in keys {
                    text::delete(desk.out, key.bytes, false);
                    expect_line(desk, false);
                }
            }
            Self::Touch {
                key,
                exptime,
                noreply,
            } => {
                text::touch(desk.out, key.bytes, exptime, noreply);
                expect_line(desk, noreply);
            }
            Self::GetAndTouch { key, exptime } => {
                let mut list = desk.pipeline.key_list();
                text::get_and_touch(desk.out, key.bytes, exptime);
                list.push(b"", key.bytes);
                desk.pipeline.expect(Expect::Values(list));
            }
            Self::Arithmetic {
                key,
                ref by,
                noreply,
            } => {
                if by.initial.is_some() {
                    return Err(Unsaid("incr or decr with initial="));
                }
                text::arithmetic(desk.out, key.bytes, by.delta, by.down, noreply);
                expect_line(desk, noreply);
            }
            Self::Inspect { .. } => return Err(Unsaid("get_with_meta")),
            Self::Get { .. }
            | Self::GetMany { .. }
            | Self::Flush { .. }
            | Self::Stats { .. }
            | Self::Version => self.write_shared(desk),
        }
        Ok(())
    }

    /// Whether a key is one that goes as base64, which classic text has no form for.
    fn has_encoded_key(&self) -> bool {
        match self {
            Self::Get { key, .. }
            | Self::Delete { key, .. }
            | Self::Touch { key, .. }
            | Self::GetAndTouch { key, .. }
            | Self::Arithmetic { key, .. } => key.is_base64,
            Self::Store { item, .. } => item.key.is_base64,
            Self::StoreMany { items, .. } => items.iter().any(|item| item.key.is_base64),
            Self::DeleteMany { keys } => keys.iter().any(|key| key.is_base64),
            _ => false,
        }
    }
}

fn classic_store(
    desk: &mut Desk<'_>,
    word: StoreWord,
    item: &Item<'_>,
    exptime: i64,
    noreply: bool,
) {
    let head = StoreHead {
        flags: item.flags,
        exptime,
        value_bytes: item.body.len(),
        noreply,
    };
    text::store(desk.out, word, item.key.bytes, &head);
    expect_line(desk, noreply);
}

fn expect_line(desk: &mut Desk<'_>, noreply: bool) {
    if !noreply {
        desk.pipeline.expect(Expect::Line);
    }
}
