//! Requests in meta commands, each with an opaque; many writes are quiet and closed by one `mn`.

use glasscache_protocol::meta::request::{self as meta, CommonFields, GetFields, WireKey};
use glasscache_protocol::text::request::TextStoreParameters;

use super::{COPIED_BODY_BYTES_MAX, Item, Request, RequestWriter, push_body};
use crate::pipeline::ExpectedReply;

impl Request<'_> {
    pub(super) fn write_meta(&self, writer: &mut RequestWriter<'_>) {
        if let Some((key, fields, noreply)) = self.mg_command_fields() {
            let common = begin_meta_command(writer, key, noreply);
            return meta::get(writer.out, key, fields, common);
        }
        match *self {
            Self::Store { mode, ref item, exptime, noreply } => {
                let common = begin_meta_command(writer, item.key, noreply);
                meta::set(writer.out, mode, item.key, &store_parameters(item, exptime), common);
                if item.body.len() <= COPIED_BODY_BYTES_MAX {
                    push_body(writer.out, item.body);
                }
            }
            Self::Extend { mode, ref item, unique, noreply } => {
                let common = begin_meta_command(writer, item.key, noreply);
                let length_and_unique = (item.body.len(), unique);
                meta::extend(writer.out, mode, item.key, length_and_unique, common);
                if item.body.len() <= COPIED_BODY_BYTES_MAX {
                    push_body(writer.out, item.body);
                }
            }
            Self::StoreMany { mode, items, exptime, quiet } => {
                let first_opaque = writer.reserve_opaques(items.len());
                for (opaque, item) in (0..).map(|index| first_opaque.wrapping_add(index)).zip(items)
                {
                    if !quiet {
                        writer.expect_meta(opaque, item.key);
                    }
                    let common = CommonFields { opaque, quiet };
                    meta::set(writer.out, mode, item.key, &store_parameters(item, exptime), common);
                    push_body(writer.out, item.body);
                }
                if quiet {
                    meta::noop(writer.out);
                    let count = items.len() as u32;
                    writer.pipeline.expect(ExpectedReply::Quiet { first_opaque, count });
                }
            }
            Self::Delete { key, noreply } => {
                let common = begin_meta_command(writer, key, noreply);
                meta::delete(writer.out, key, common);
            }
            Self::FlushPrefix { prefix } => {
                let common = writer.begin_meta_with_reply(prefix);
                meta::flush_prefix(writer.out, prefix, common);
            }
            Self::GetWithTtls { keys } => {
                let fields = GetFields { value: true, ttl: true, ..GetFields::default() };
                for &key in keys {
                    let common = writer.begin_meta_with_reply(key);
                    meta::get(writer.out, key, fields, common);
                }
            }
            Self::DeleteMany { keys } => {
                for &key in keys {
                    let common = writer.begin_meta_with_reply(key);
                    meta::delete(writer.out, key, common);
                }
            }
            Self::Arithmetic { key, ref arithmetic, noreply } => {
                let common = begin_meta_command(writer, key, noreply);
                meta::arithmetic(writer.out, key, arithmetic, common);
            }
            _ => self.write_shared(writer),
        }
    }

    /// The key, flags and quietness of an `mg` command, if the request is sent as one.
    fn mg_command_fields(&self) -> Option<(WireKey<'_>, GetFields, bool)> {
        let defaults = GetFields::default();
        Some(match *self {
            Self::Get { key, cas } if key.is_base64 => {
                (key, GetFields { value: true, cas, ..defaults }, false)
            }
            Self::Flags { key } => (key, GetFields { flags: true, cas: true, ..defaults }, false),
            Self::Touch { key, exptime, noreply } => {
                let touch = Some(exptime);
                (key, GetFields { flags: true, touch, ..defaults }, noreply)
            }
            Self::GetAndTouch { key, exptime } => {
                let touch = Some(exptime);
                let fields = GetFields { value: true, touch, ..defaults };
                (key, fields, false)
            }
            Self::Inspect { key } => {
                let fields = GetFields { value: true, cas: true, metadata: true, ..defaults };
                (key, fields, false)
            }
            _ => return None,
        })
    }
}

/// `noreply` is false: a meta command is quiet by a flag of its own.
fn store_parameters(item: &Item<'_>, exptime: i64) -> TextStoreParameters {
    TextStoreParameters { flags: item.flags, exptime, value_bytes: item.body.len(), noreply: false }
}

/// Begins a quiet command for a noreply write, which the next `mn` on the connection acknowledges; else one with a
/// reply.
fn begin_meta_command(
    writer: &mut RequestWriter<'_>,
    key: WireKey<'_>,
    noreply: bool,
) -> CommonFields {
    if noreply {
        CommonFields { opaque: writer.reserve_opaques(1), quiet: true }
    } else {
        writer.begin_meta_with_reply(key)
    }
}
