//! `stats cachedump <class> <limit>`: some keys of one slab class, as old tools list them.

use std::io::Write as _;

use glasscache_protocol::{ascii, words};
use glasscache_store::Expiry;

use crate::turn::Turn;

/// Bytes of the reply at most, as in memcached.
const REPLY_BYTES_MAX: usize = 2 << 20;

/// memcached's bound on class numbers.
const CLASSES: u32 = 64;

/// Appends the listing, or why there is none.
pub(super) fn write(line: &[&[u8]], turn: &Turn<'_>, out: &mut Vec<u8>) {
    if !turn.shared.config.dump_enabled {
        return out.extend_from_slice(b"CLIENT_ERROR stats cachedump not allowed\r\n");
    }
    let [class, limit, ..] = line else {
        return out.extend_from_slice(words::BAD_LINE);
    };
    let (Some(class), Some(limit)) = (ascii::unsigned32(class), ascii::unsigned32(limit)) else {
        return out.extend_from_slice(words::BAD_FORMAT);
    };
    if class >= CLASSES {
        return out.extend_from_slice(b"CLIENT_ERROR Illegal slab id\r\n");
    }
    let limit = if limit == 0 { u32::MAX } else { limit };
    list(class as usize, limit, turn, out);
    out.extend_from_slice(words::END);
}

fn list(class: usize, limit: u32, turn: &Turn<'_>, out: &mut Vec<u8>) {
    let (mut listed, from) = (0, out.len());
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = turn.store.scan(at, 64, turn.now, &mut |item| {
            let key = item.key();
            let (of, _) = turn
                .shared
                .classes
                .of(key.len(), item.value_bytes(), item.flags());
            if of != class || listed >= limit || out.len() - from > REPLY_BYTES_MAX {
                return;
            }
            listed += 1;
            let expiry = match item.expiry() {
                Expiry::Never => 0,
                Expiry::At(at) => turn.shared.clock.unix(at),
            };
            out.extend_from_slice(b"ITEM ");
            out.extend_from_slice(key);
            // Writing to a vector cannot fail.
            let _ = write!(out, " [{} b; {expiry} s]\r\n", item.value_bytes());
        });
        if listed >= limit || out.len() - from > REPLY_BYTES_MAX {
            return;
        }
    }
}
