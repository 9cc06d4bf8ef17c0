//! Reads of keys, up to 16 at once: hash and fetch buckets, fetch items, then verify and answer.
//!
//! Done one by one, each lookup waits twice for memory; done in three passes the waits overlap
//! (61 ns a key at 16 against 108 at 1, measured on a table of a million items).

use arrayvec::ArrayVec;
use glasscache_protocol::command::GetHead;
use glasscache_protocol::meta::{self, MetaItem, MetaLine, letters};
use glasscache_protocol::{text, words};
use glasscache_store::{GetOptions, Guess, Item, KeyHash, Lease};

use super::times::{created_expiry, shown_expiry};
use crate::output::{Mark, Output};
use crate::turn::{Turn, ttl_s};
use crate::watch;

/// Lookups made together: more gains nothing, for a core has 10 to 16 line fills in flight.
const BATCH: usize = 16;

/// One key to be looked up.
pub(crate) struct Lookup<'b> {
    key: &'b [u8],
    hash: KeyHash,
    kind: Kind,
}

enum Kind {
    Text {
        head: GetHead,
        /// The first key of its line.
        is_first: bool,
        /// The last key of its line: `END` follows.
        ends: bool,
    },
    /// The place of its line among the batch's meta lines, which would make every lookup three times as large.
    Meta(u8),
}

impl<'b> Lookup<'b> {
    /// A key of a get line.
    #[inline]
    pub(crate) fn text(key: &'b [u8], head: GetHead, is_first: bool, turn: &Turn<'_>) -> Self {
        let hash = turn.store.store().hash(key);
        turn.store.prefetch_bucket(hash);
        Lookup {
            key,
            hash,
            kind: Kind::Text {
                head,
                is_first,
                ends: false,
            },
        }
    }

    /// The key of a `get` that has no other.
    #[inline]
    pub(crate) fn single(key: &'b [u8], turn: &Turn<'_>) -> Self {
        let hash = turn.store.store().hash(key);
        turn.store.prefetch_bucket(hash);
        let kind = Kind::Text {
            head: GetHead::default(),
            is_first: true,
            ends: true,
        };
        Lookup { key, hash, kind }
    }
}

/// Lookups whose buckets are on their way.
pub(crate) struct Batch<'b> {
    lookups: ArrayVec<Lookup<'b>, BATCH>,
    /// The lines of those lookups that are `mg`.
    lines: ArrayVec<MetaLine<'b>, BATCH>,
}

impl<'b> Batch<'b> {
    pub(crate) fn new() -> Batch<'b> {
        Batch {
            lookups: ArrayVec::new(),
            lines: ArrayVec::new(),
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.lookups.is_full()
    }

    /// Adds a lookup; INVARIANT: the batch is not full.
    #[inline]
    pub(crate) fn push(&mut self, lookup: Lookup<'b>) {
        // A full batch would lose a reply; the caller looks first.
        debug_assert!(!self.is_full());
        let _ = self.lookups.try_push(lookup);
    }

    /// Adds an `mg` with a plain key; INVARIANT: the batch is not full.
    #[inline]
    pub(crate) fn push_meta(&mut self, line: MetaLine<'b>, turn: &Turn<'_>) {
        let hash = turn.store.store().hash(line.key);
        turn.store.prefetch_bucket(hash);
        let kind = Kind::Meta(self.lines.len() as u8);
        let _ = self.lines.try_push(line);
        self.push(Lookup {
            key: line.key,
            hash,
            kind,
        });
    }

    /// The line of the last key is over.
    #[inline]
    pub(crate) fn end(&mut self, out: &mut Output<'_>) {
        match self.lookups.last_mut() {
            Some(Lookup {
                kind: Kind::Text { ends, .. },
                ..
            }) => *ends = true,
            _ => out.bytes.extend_from_slice(words::END),
        }
    }

    /// Makes all lookups in order and returns where the last get line that began here began.
    #[inline]
    pub(crate) fn flush<'w>(&mut self, turn: &Turn<'w>, out: &mut Output<'w>) -> Option<Mark> {
        if self.lookups.is_empty() {
            return None;
        }
        let store = turn.store;
        let mut guesses: ArrayVec<Guess<'_>, BATCH> = self
            .lookups
            .iter()
            .map(|lookup| store.prefetch_item(lookup.hash))
            .collect();
        for (lookup, guess) in self.lookups.iter().zip(&mut guesses) {
            *guess = store.prefetch_further(lookup.hash, *guess);
        }
        if self.lookups.is_full() {
            turn.counters.batches.bump();
        }
        let mut mark = None;
        for (lookup, guess) in self.lookups.iter().zip(guesses) {
            let key = (lookup.key, lookup.hash, guess);
            match &lookup.kind {
                Kind::Meta(place) => {
                    if let Some(line) = self.lines.get(usize::from(*place)) {
                        meta_get_guessed(line, key, turn, out);
                    }
                }
                Kind::Text {
                    head,
                    is_first,
                    ends,
                } => {
                    if *is_first {
                        mark = Some(out.mark());
                    }
                    text_get(head, key, turn, out);
                    if *ends {
                        out.bytes.extend_from_slice(words::END);
                    }
                }
            }
        }
        self.lookups.clear();
        self.lines.clear();
        mark
    }
}

/// A key, its hash, and where its item may be.
type Sought<'b, 'w> = (&'b [u8], KeyHash, Guess<'w>);

#[inline]
fn text_get<'w>(
    head: &GetHead,
    (key, hash, guess): Sought<'_, 'w>,
    turn: &Turn<'w>,
    out: &mut Output<'w>,
) {
    let item = match head.touch {
        None => turn.store.get_guessed(key, hash, guess, turn.now),
        Some(exptime) => {
            let touch = Some(turn.expiry(exptime));
            let options = GetOptions {
                touch,
                ..GetOptions::default()
            };
            turn.store
                .get_with(key, hash, &options, turn.now)
                .map(|(item, _)| item)
        }
    };
    count(turn, key, item.as_ref(), head.touch.is_some());
    if let Some(item) = item {
        let unique = head.with_unique.then(|| turn.shown_unique(item.unique()));
        text::value_line(
            &mut out.bytes,
            key,
            item.flags(),
            item.value_bytes(),
            unique,
        );
        turn.shared
            .classes
            .hit(turn.counters, key.len(), &item, head.touch.is_some());
        out.value(item);
    }
}

/// `mg`: the store reads and, as the flags ask, touches, creates or lets one client win.
#[inline]
pub(crate) fn meta_get<'w>(
    line: &MetaLine<'_>,
    key: &[u8],
    hash: KeyHash,
    turn: &Turn<'w>,
    out: &mut Output<'w>,
) {
    let guess = Guess::default();
    meta_get_guessed(line, (key, hash, guess), turn, out);
}

/// Flags whose reply to a hit is a value and nothing about it.
const BARE: u128 = !letters(b"vq");

#[inline]
fn meta_get_guessed<'w>(
    line: &MetaLine<'_>,
    (key, hash, guess): Sought<'_, 'w>,
    turn: &Turn<'w>,
    out: &mut Output<'w>,
) {
    let flags = &line.flags;
    let found = meta_find(line, (key, hash, guess), turn);
    count(
        turn,
        key,
        found.as_ref().map(|(item, _)| item),
        flags.has(b'T'),
    );
    let Some((item, lease)) = found else {
        if !flags.has(b'q') {
            meta::status(&mut out.bytes, line, key, *b"EN");
        }
        return;
    };
    if !flags.has_any(BARE) && flags.has(b'v') && !item.is_marked() {
        meta::value_line(&mut out.bytes, item.value_bytes());
        turn.shared
            .classes
            .hit(turn.counters, key.len(), &item, false);
        return out.value(item);
    }
    let unique = turn.shown_unique(item.unique());
    let with_value = flags.has(b'v') && !(flags.has(b'C') && flags.compare == unique);
    meta::hit(
        &mut out.bytes,
        line,
        key,
        &meta_item(&item, lease, unique, line, turn),
        with_value,
    );
    turn.shared
        .classes
        .hit(turn.counters, key.len(), &item, flags.has(b'T'));
    if with_value {
        out.value(item);
    }
}

/// Flags that make an `mg` more than a plain read.
const CHANGING: u128 = letters(b"TNRu");

/// Finds as a plain `get` does when the flags ask for no more and the item bears no mark.
#[inline]
fn meta_find<'w>(
    line: &MetaLine<'_>,
    (key, hash, guess): Sought<'_, 'w>,
    turn: &Turn<'w>,
) -> Option<(Item<'w>, Lease)> {
    if !line.flags.has_any(CHANGING) {
        let item = turn.store.get_guessed(key, hash, guess, turn.now)?;
        if !item.is_marked() {
            return Some((item, Lease::default()));
        }
        // The first read stands, for it knows what was before it; the second settles the lease.
        let options = GetOptions {
            may_win: true,
            ..GetOptions::default()
        };
        let lease = turn.store.get_with(key, hash, &options, turn.now);
        return Some((item, lease.map(|(_, lease)| lease).unwrap_or_default()));
    }
    turn.store
        .get_with(key, hash, &get_options(line, turn), turn.now)
}

fn get_options(line: &MetaLine<'_>, turn: &Turn<'_>) -> GetOptions {
    let flags = &line.flags;
    GetOptions {
        touch: flags.has(b'T').then(|| turn.expiry(flags.touch)),
        vivify: created_expiry(flags, turn),
        recache_after_touch: flags.names_first(b'T', b'R'),
        // A negative or absolute time means what it means for an exptime.
        recache_s: flags
            .has(b'R')
            .then(|| ttl_s(turn.expiry(flags.recache), turn.now))
            .flatten(),
        may_win: true,
        no_bump: flags.has(b'u'),
        new_unique: flags
            .has(b'E')
            .then_some(glasscache_store::CasUnique(flags.new_unique)),
    }
}

#[inline]
fn meta_item(
    item: &Item<'_>,
    lease: Lease,
    unique: u64,
    line: &MetaLine<'_>,
    turn: &Turn<'_>,
) -> MetaItem {
    let expiry = match lease.expiry_before {
        Some(before) => shown_expiry(&line.flags, before, lease.created, turn),
        None => item.expiry(),
    };
    MetaItem {
        value_bytes: item.value_bytes(),
        client_flags: item.flags(),
        unique,
        ttl_s: ttl_s(expiry, turn.now),
        idle_s: turn.now.0.saturating_sub(item.last_access().0),
        was_fetched: item.was_fetched(),
        won: lease.won,
        is_stale: lease.is_stale,
        win_sent: lease.win_sent,
    }
}

#[inline]
fn count(turn: &Turn<'_>, key: &[u8], item: Option<&Item<'_>>, is_touch: bool) {
    let counters = turn.counters;
    let is_hit = item.is_some();
    if is_touch {
        counters.touch_cmds.bump();
        counters.touch_hits.add(u64::from(is_hit));
    } else {
        counters.get_cmds.bump();
        counters.get_hits.add(u64::from(is_hit));
    }
    if turn.shared.is_observed() {
        turn.shared.detail.record_get(key, is_hit);
        watch::fetched(turn, key, item.map(Item::value_bytes));
    }
}
