//! Requests in meta commands, each with an opaque; many writes are quiet and closed by one `mn`.

use glasscache_protocol::meta::request::{self as meta, Common, Wanted, WireKey};
use glasscache_protocol::text::request::StoreHead;

use super::{BODY_COPIED_MAX, Desk, Request, push_body};
use crate::pipeline::Expect;

impl Request<'_> {
    pub(super) fn write_meta(&self, desk: &mut Desk<'_>) {
        match *self {
            Self::Get { key, cas } if key.is_base64 => {
                let common = desk.answered(key);
                meta::get(
                    desk.out,
                    key,
                    Wanted {
                        value: true,
                        cas,
                        ..Wanted::default()
                    },
                    common,
                );
            }
            Self::Store {
                word,
                ref item,
                exptime,
                noreply,
            } => {
                let common = common_of(desk, item.key, noreply);
                let head = StoreHead {
                    flags: item.flags,
                    exptime,
                    value_bytes: item.body.len(),
                    noreply,
                };
                meta::set(desk.out, word, item.key, &head, common);
                if item.body.len() <= BODY_COPIED_MAX {
                    push_body(desk.out, item.body);
                }
            }
            Self::StoreMany {
                word,
                items,
                exptime,
                quiet,
            } => {
                let first = desk.next_opaque(items.len());
                for (opaque, item) in (0..).map(|i| first.wrapping_add(i)).zip(items) {
                    if !quiet {
                        desk.expect_meta(opaque, item.key);
                    }
                    let head = StoreHead {
                        flags: item.flags,
                        exptime,
                        value_bytes: item.body.len(),
                        noreply: false,
                    };
                    meta::set(desk.out, word, item.key, &head, Common { opaque, quiet });
                    push_body(desk.out, item.body);
                }
                if quiet {
                    meta::noop(desk.out);
                    desk.pipeline.expect(Expect::Quiet {
                        first,
                        count: items.len() as u32,
                    });
                }
            }
            Self::Delete { key, noreply } => {
                let common = common_of(desk, key, noreply);
                meta::delete(desk.out, key, common);
            }
            Self::DeleteMany { keys } => {
                for &key in keys {
                    let common = desk.answered(key);
                    meta::delete(desk.out, key, common);
                }
            }
            Self::Touch {
                key,
                exptime,
                noreply,
            } => {
                let common = common_of(desk, key, noreply);
                meta::get(
                    desk.out,
                    key,
                    Wanted {
                        touch: Some(exptime),
                        ..Wanted::default()
                    },
                    common,
                );
            }
            Self::GetAndTouch { key, exptime } => {
                let common = desk.answered(key);
                let wanted = Wanted {
                    value: true,
                    touch: Some(exptime),
                    ..Wanted::default()
                };
                meta::get(desk.out, key, wanted, common);
            }
            Self::Arithmetic {
                key,
                ref by,
                noreply,
            } => {
                let common = common_of(desk, key, noreply);
                meta::arithmetic(desk.out, key, by, common);
            }
            Self::Inspect { key } => {
                let common = desk.answered(key);
                let wanted = Wanted {
                    value: true,
                    cas: true,
                    metadata: true,
                    touch: None,
                };
                meta::get(desk.out, key, wanted, common);
            }
            Self::Get { .. }
            | Self::GetMany { .. }
            | Self::Flush { .. }
            | Self::Stats { .. }
            | Self::Version => {
                self.write_shared(desk);
            }
        }
    }
}

/// Quiet for a noreply write, which the next `mn` on the connection answers for; else with a reply.
fn common_of(desk: &mut Desk<'_>, key: WireKey<'_>, noreply: bool) -> Common {
    if noreply {
        Common {
            opaque: desk.next_opaque(1),
            quiet: true,
        }
    } else {
        desk.answered(key)
    }
}
