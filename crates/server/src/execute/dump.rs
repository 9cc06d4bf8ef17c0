//! `lru_crawler metadump` and `mgdump`: all items, one line each, in slices that fit the output.

use std::io::Write as _;

use glasscache_protocol::{base64, words};
use glasscache_store::{Expiry, Item};

use crate::output::{Output, SLICE_BYTES};
use crate::turn::Turn;
use crate::watch::uri_encode;

/// Items looked at between two looks at the output.
const STEP_ITEMS: usize = 64;

/// How far a listing has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dump {
    form: Form,
    /// memcached's slab classes to be listed; all when there are none.
    classes: Vec<usize>,
    cursor: Option<u64>,
    is_begun: bool,
}

/// What a line of the listing looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// All that is known of an item.
    Meta,
    /// A command that fetches the item.
    Mg,
}

impl Dump {
    /// A listing from the beginning.
    pub(crate) fn new(form: Form, classes: Vec<usize>) -> Dump {
        Dump {
            form,
            classes,
            cursor: Some(0),
            is_begun: false,
        }
    }

    /// Appends a slice; true when the listing is complete.
    pub(crate) fn run(&mut self, turn: &Turn<'_>, out: &mut Output<'_>) -> bool {
        // The crawler says that it starts before it lists, as memcached's does since 1.6.45.
        if !std::mem::replace(&mut self.is_begun, true) {
            out.bytes.extend_from_slice(words::OK);
        }
        while let Some(cursor) = self.cursor {
            if out.len() >= SLICE_BYTES {
                return false;
            }
            self.cursor = turn.store.scan(cursor, STEP_ITEMS, turn.now, &mut |item| {
                self.line(item, turn, &mut out.bytes);
            });
        }
        out.bytes.extend_from_slice(match self.form {
            Form::Meta => b"END\r\n",
            Form::Mg => b"EN\r\n",
        });
        true
    }

    fn line(&self, item: &Item<'_>, turn: &Turn<'_>, out: &mut Vec<u8>) {
        let key = item.key();
        let (class, bytes) = turn
            .shared
            .classes
            .of(key.len(), item.value_bytes(), item.flags());
        if !(self.classes.is_empty() || self.classes.contains(&class)) {
            return;
        }
        if self.form == Form::Mg {
            return mg_line(key, out);
        }
        let expiry = match item.expiry() {
            Expiry::Never => -1,
            Expiry::At(at) => turn.shared.clock.unix(at),
        };
        out.extend_from_slice(b"key=");
        uri_encode(key, out);
        // Writing to a vector cannot fail.
        let _ = writeln!(
            out,
            " exp={expiry} la={} cas={} fetch={} cls={class} size={bytes} flags={} ",
            turn.shared.clock.unix(item.last_access()),
            turn.shown_unique(item.unique()),
            if item.was_fetched() { "yes" } else { "no" },
            item.flags(),
        );
    }
}

/// A key that cannot stand on a line goes in base64.
fn mg_line(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    if key.iter().all(|byte| *byte > b' ' && *byte != 127) {
        out.extend_from_slice(key);
        out.extend_from_slice(b"\r\n");
    } else {
        base64::encode(key, out);
        out.extend_from_slice(b" b\r\n");
    }
}
