//! Requests in classic text, for a proxy without meta commands.

use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::{self as text, StoreMode, TextStoreParameters};

use super::{Item, Request, RequestWriter, Unsupported, push_body};
use crate::pipeline::ExpectedReply;

impl Request<'_> {
    pub(super) fn write_classic(&self, writer: &mut RequestWriter<'_>) -> Result<(), Unsupported> {
        // Before anything is written: replies to a part of it could not be delivered.
        if let Some(operation) = self.unsupported_in_classic() {
            return Err(Unsupported(operation));
        }
        match *self {
            Self::Flags { key } => Request::Get { key, cas: true }.write_shared(writer),
            Self::Extend { mode, ref item, noreply, .. } => {
                write_classic_store(writer, mode, item, 0, noreply);
                if self.external_body().is_none() {
                    push_body(writer.out, item.body);
                }
            }
            Self::Store { mode, ref item, exptime, noreply } => {
                write_classic_store(writer, mode, item, exptime, noreply);
                if self.external_body().is_none() {
                    push_body(writer.out, item.body);
                }
            }
            Self::StoreMany { mode, items, exptime, .. } => {
                for item in items {
                    write_classic_store(writer, mode, item, exptime, false);
                    push_body(writer.out, item.body);
                }
            }
            Self::Delete { key, noreply } => write_classic_delete(writer, key, noreply),
            Self::DeleteMany { keys } => {
                for &key in keys {
                    write_classic_delete(writer, key, false);
                }
            }
            Self::Touch { key, exptime, noreply } => {
                text::touch(writer.out, key.bytes, exptime, noreply);
                expect_line(writer, noreply);
            }
            Self::GetAndTouch { key, exptime } => {
                let mut key_list = writer.pipeline.key_list();
                text::get_and_touch(writer.out, key.bytes, exptime);
                key_list.push(b"", key.bytes);
                writer.pipeline.expect(ExpectedReply::Values(key_list));
            }
            Self::Arithmetic { key, ref arithmetic, noreply } => {
                text::arithmetic(
                    writer.out,
                    key.bytes,
                    arithmetic.delta,
                    arithmetic.is_decrement,
                    noreply,
                );
                expect_line(writer, noreply);
            }
            _ => self.write_shared(writer),
        }
        Ok(())
    }

    /// What classic text has no form for, if the request needs it.
    fn unsupported_in_classic(&self) -> Option<&'static str> {
        match self {
            _ if self.has_base64_key() => Some("a key with spaces or control characters"),
            Self::Arithmetic { arithmetic, .. } if arithmetic.initial.is_some() => {
                Some("incr or decr with initial=")
            }
            _ => self.needs_meta(),
        }
    }

    /// Whether a key is one that goes as base64, which classic text has no form for.
    fn has_base64_key(&self) -> bool {
        let mut has_base64_key = false;
        self.for_each_key(|key| has_base64_key |= key.is_base64);
        has_base64_key
    }
}

fn write_classic_store(
    writer: &mut RequestWriter<'_>,
    mode: StoreMode,
    item: &Item<'_>,
    exptime: i64,
    noreply: bool,
) {
    let parameters =
        TextStoreParameters { flags: item.flags, exptime, value_bytes: item.body.len(), noreply };
    text::store(writer.out, mode, item.key.bytes, &parameters);
    expect_line(writer, noreply);
}

fn write_classic_delete(writer: &mut RequestWriter<'_>, key: WireKey<'_>, noreply: bool) {
    text::delete(writer.out, key.bytes, noreply);
    expect_line(writer, noreply);
}

fn expect_line(writer: &mut RequestWriter<'_>, noreply: bool) {
    if !noreply {
        writer.pipeline.expect(ExpectedReply::Line);
    }
}
