//! Requests in meta commands, each with an opaque; many writes are quiet and closed by one `mn`.

use glasscache_protocol::meta::request::{self as meta, Common, GetFields, WireKey};
use glasscache_protocol::text::request::StoreHead;

use super::{BODY_COPIED_MAX, Desk, Item, Request, push_body};
use crate::pipeline::Expect;

impl Request<'_> {
    pub(super) fn write_meta(&self, desk: &mut Desk<'_>) {
        if let Some((key, wanted, noreply)) = self.wanted() {
            let common = common_of(desk, key, noreply);
            return meta::get(desk.out, key, wanted, common);
        }
        match *self {
            Self::Store {
                word,
                ref item,
                exptime,
                noreply,
            } => {
                let common = common_of(desk, item.key, noreply);
                meta::set(desk.out, word, item.key, &head_of(item, exptime), common);
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
                    let common = Common { opaque, quiet };
                    meta::set(desk.out, word, item.key, &head_of(item, exptime), common);
                    push_body(desk.out, item.body);
                }
                if quiet {
                    meta::noop(desk.out);
                    let count = items.len() as u32;
                    desk.pipeline.expect(Expect::Quiet { first, count });
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
            Self::Arithmetic {
                key,
                ref by,
                noreply,
            } => {
                let common = common_of(desk, key, noreply);
                meta::arithmetic(desk.out, key, by, common);
            }
            _ => self.write_shared(desk),
        }
    }

    /// What is asked of a key by `mg`, if this is asked so, and whether nobody waits for it.
    fn wanted(&self) -> Option<(WireKey<'_>, GetFields, bool)> {
        let (value, none) = (true, GetFields::default());
        Some(match *self {
            Self::Get { key, cas } if key.is_base64 => {
                (key, GetFields { value, cas, ..none }, false)
            }
            Self::Touch {
                key,
                exptime,
                noreply,
            } => {
                let touch = Some(exptime);
                (key, GetFields { touch, ..none }, noreply)
            }
            Self::GetAndTouch { key, exptime } => {
                let touch = Some(exptime);
                let wanted = GetFields {
                    value,
                    touch,
                    ..none
                };
                (key, wanted, false)
            }
            Self::Inspect { key } => {
                let wanted = GetFields {
                    value,
                    cas: true,
                    metadata: true,
                    touch: None,
                };
                (key, wanted, false)
            }
            _ => return None,
        })
    }
}

/// A line in meta says in another way whether it is quiet.
fn head_of(item: &Item<'_>, exptime: i64) -> StoreHead {
    StoreHead {
        flags: item.flags,
        exptime,
        value_bytes: item.body.len(),
        noreply: false,
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
