//! Writes of whole values: set and its sisters, cas, ms.
//!
//! A write is described once, from either dialect, and carried out in one of two ways: at once when
//! its value is at hand, or as a reservation that is committed when the last byte has come.

use glasscache_protocol::ascii::write_number;
use glasscache_protocol::command::{Command, StoreHead, StoreVerb};
use glasscache_protocol::meta::{self, MetaLine};
use glasscache_protocol::text::{self, Parsed};
use glasscache_protocol::words;
use glasscache_store::{
    CasUnique, KeyHash, NoRoomYet, Refusal, Reservation, SetMode, SetOptions, SetOutcome,
};

use super::Outcome;
use crate::info::Reason;
use crate::log::Kind;
use crate::output::Output;
use crate::trace;
use crate::turn::Turn;
use crate::watch;

/// One write, ready for its value.
pub(crate) struct Write<'b> {
    /// Length of the value.
    pub(crate) value_bytes: u32,
    key: &'b [u8],
    options: SetOptions,
    dialect: Dialect<'b>,
}

enum Dialect<'b> {
    Text { noreply: bool },
    Meta(MetaLine<'b>),
}

impl<'b> Write<'b> {
    /// A write of the classic dialect.
    #[inline]
    pub(crate) fn text(head: &StoreHead<'b>, turn: &Turn<'_>) -> Write<'b> {
        let options = SetOptions {
            mode: match head.verb {
                StoreVerb::Set | StoreVerb::Cas => SetMode::Set,
                StoreVerb::Add => SetMode::Add,
                StoreVerb::Replace => SetMode::Replace,
                StoreVerb::Append => SetMode::Append,
                StoreVerb::Prepend => SetMode::Prepend,
            },
            flags: head.flags,
            expiry: turn.expiry(head.exptime),
            compare: head.compare.map(CasUnique),
            is_untold: true,
            ..SetOptions::default()
        };
        let dialect = Dialect::Text {
            noreply: head.noreply,
        };
        Write {
            value_bytes: head.value_bytes,
            key: head.key,
            options,
            dialect,
        }
    }

    /// An `ms`; a base64 key is decoded into `scratch`.
    pub(crate) fn meta(
        line: &MetaLine<'b>,
        value_bytes: u32,
        scratch: &'b mut Vec<u8>,
        turn: &Turn<'_>,
    ) -> Write<'b> {
        let flags = &line.flags;
        let mode = match flags.mode {
            b'E' => SetMode::Add,
            b'A' => SetMode::Append,
            b'P' => SetMode::Prepend,
            b'R' => SetMode::Replace,
            _ => SetMode::Set,
        };
        // Beside append and prepend 0 asks for nothing; elsewhere it is a unique that no item has.
        let is_joining = matches!(mode, SetMode::Append | SetMode::Prepend);
        let has_compare =
            flags.has(b'C') && mode != SetMode::Add && !(is_joining && flags.compare == 0);
        // As in memcached, replacing with a unique is the same as `cas`.
        let is_cas = has_compare && matches!(mode, SetMode::Set | SetMode::Replace);
        let options = SetOptions {
            mode: if is_cas { SetMode::Set } else { mode },
            flags: flags.client_flags,
            expiry: if flags.has(b'T') {
                turn.expiry(flags.touch)
            } else {
                turn.expiry(0)
            },
            compare: has_compare.then_some(CasUnique(flags.compare)),
            new_unique: flags.has(b'E').then_some(CasUnique(flags.new_unique)),
            // No unique is below 0: memcached takes such a comparison for one that cannot hold.
            invalidate: is_cas && flags.has(b'I') && flags.compare != 0,
            vivify: flags.has(b'N').then(|| turn.expiry(flags.vivify)),
            is_untold: !flags.has(b'c'),
        };
        let line = *line;
        let key = line.item_key(scratch).unwrap_or_default();
        Write {
            value_bytes,
            key,
            options,
            dialect: Dialect::Meta(line),
        }
    }

    /// The write that a kept command line describes.
    pub(crate) fn from_line(
        line: &'b [u8],
        scratch: &'b mut Vec<u8>,
        turn: &Turn<'_>,
    ) -> Option<Write<'b>> {
        match text::parse(line) {
            Parsed::Command(Command::Store(head), _) => Some(Write::text(&head, turn)),
            Parsed::Command(Command::MetaSet(line, bytes), _) => {
                Some(Write::meta(&line, bytes, scratch, turn))
            }
            _ => None,
        }
    }

    /// Whether even an error is not to be told.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.dialect, Dialect::Text { noreply: true })
    }

    /// Stores `value` and answers; nothing is done and answered where it has to wait for a segment.
    #[inline]
    pub(crate) fn execute(
        &self,
        value: &[u8],
        turn: &Turn<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), NoRoomYet> {
        let (store, key, options) = (turn.store, self.key, &self.options);
        let hash = store.store().hash(key);
        let before = self.look_before(hash, turn);
        let tried = store.try_set(key, hash, value, options, turn.now);
        let outcome = turn.or_refuse(tried, || store.set(key, hash, value, options, turn.now))?;
        self.announce(before, turn);
        self.answer(outcome, turn, out);
        Ok(())
    }

    /// Room for a value that is still to come; `None` when it was refused, which is then answered.
    pub(crate) fn reserve(&self, turn: &Turn<'_>, out: &mut Output<'_>) -> Option<Reservation> {
        let hash = turn.store.store().hash(self.key);
        let reserved =
            turn.store
                .reserve(self.key, hash, self.value_bytes, &self.options, turn.now);
        let refused = match reserved {
            Ok(reservation) => return Some(reservation),
            Err(Refusal::TooLarge) => SetOutcome::TooLarge,
            Err(Refusal::NoMemory) => SetOutcome::NoMemory,
        };
        self.answer(refused, turn, out);
        None
    }

    /// Makes a value visible that has come whole, and answers; nothing is done and answered where it has to wait for a
    /// segment.
    pub(crate) fn commit(
        &self,
        reservation: &mut Reservation,
        turn: &Turn<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), NoRoomYet> {
        let before = self.look_before(turn.store.store().hash(self.key), turn);
        let tried = turn.store.try_commit(reservation, turn.now);
        let outcome = turn.or_refuse(tried, || {
            turn.store.give_up(reservation, turn.now);
            SetOutcome::NoMemory
        })?;
        self.announce(before, turn);
        self.answer(outcome, turn, out);
        Ok(())
    }

    /// What watchers are to see of the key before the write.
    #[inline]
    fn look_before(&self, hash: KeyHash, turn: &Turn<'_>) -> Option<watch::Before> {
        let is_observed = turn.shared.is_observed();
        is_observed.then(|| watch::before_store(turn, self.key, hash))
    }

    #[inline]
    fn announce(&self, before: Option<watch::Before>, turn: &Turn<'_>) {
        if let Some(before) = before {
            watch::fetched(turn, self.key, before.value_bytes);
        }
    }

    /// A value that is not followed by a line ending: the stream goes on where memcached's would,
    /// but a client that reads no replies could not tell, so its connection closes.
    pub(crate) fn refuse_chunk(&self, out: &mut Output<'_>) -> Outcome {
        if self.is_quiet() {
            return Outcome::Close(Reason::Protocol);
        }
        out.bytes.extend_from_slice(words::BAD_CHUNK);
        Outcome::Done
    }

    #[inline]
    fn answer(&self, outcome: SetOutcome, turn: &Turn<'_>, out: &mut Output<'_>) {
        // Nothing to append to is "not stored", with a unique or without.
        let outcome = match (outcome, self.options.mode) {
            (SetOutcome::NotFound, SetMode::Append | SetMode::Prepend) => SetOutcome::NotStored,
            _ => outcome,
        };
        self.count(outcome, turn);
        match &self.dialect {
            Dialect::Text { noreply: true } => {}
            Dialect::Text { .. } => out.bytes.extend_from_slice(text_word(outcome)),
            Dialect::Meta(line) => self.answer_meta(line, outcome, turn, out),
        }
    }

    fn answer_meta(
        &self,
        line: &MetaLine<'_>,
        outcome: SetOutcome,
        turn: &Turn<'_>,
        out: &mut Output<'_>,
    ) {
        let (word, unique) = match outcome {
            SetOutcome::Stored(_) if line.flags.has(b'q') => return,
            SetOutcome::Stored(unique) => (*b"HD", unique),
            SetOutcome::NotStored => (*b"NS", CasUnique(0)),
            SetOutcome::Exists => (*b"EX", CasUnique(0)),
            SetOutcome::NotFound => (*b"NF", CasUnique(0)),
            SetOutcome::TooLarge | SetOutcome::NoMemory => {
                return out.bytes.extend_from_slice(text_word(outcome));
            }
        };
        let size = match outcome {
            SetOutcome::Stored(_) => self.size_now(line, turn),
            _ => self.value_bytes,
        };
        let facts = (turn.shown_unique(unique), size);
        meta::stored(&mut out.bytes, line, self.key, word, facts);
    }

    /// The size that `s` tells: of the whole item after an append or prepend.
    fn size_now(&self, line: &MetaLine<'_>, turn: &Turn<'_>) -> u32 {
        let grows = matches!(self.options.mode, SetMode::Append | SetMode::Prepend);
        if !(grows && line.flags.has(b's')) {
            return self.value_bytes;
        }
        let hash = turn.store.store().hash(self.key);
        let item = turn.store.peek(self.key, hash, turn.now);
        item.map_or(self.value_bytes, |item| item.value_bytes())
    }

    /// Counts and logs a value that was refused for want of memory.
    #[cold]
    pub(crate) fn count_refused(&self, turn: &Turn<'_>) {
        turn.counters.store_no_memory.bump();
        let shared = turn.shared;
        if shared.logs(1) {
            let (key, bytes) = (trace::shown(self.key), self.value_bytes);
            shared.log.line(format!(
                "glasscache: refused to store {key} ({bytes} bytes): no memory"
            ));
        } else {
            shared.log.limited(Kind::RefusedStore, turn.now.0, || {
                let limit = turn.store.store().memory_bytes() >> 20;
                format!("glasscache: refused to store a value: no memory (-m is {limit} MB; -v names the keys)")
            });
        }
    }

    #[inline]
    fn count(&self, outcome: SetOutcome, turn: &Turn<'_>) {
        let counters = turn.counters;
        match outcome {
            SetOutcome::TooLarge => counters.store_too_large.bump(),
            SetOutcome::NoMemory => self.count_refused(turn),
            _ => {
                counters.set_cmds.bump();
                turn.shared.classes.set(
                    turn.counters,
                    self.key,
                    self.value_bytes,
                    self.options.flags,
                );
            }
        }
        if self.options.compare.is_some() {
            match outcome {
                SetOutcome::Stored(_) => counters.cas_hits.bump(),
                SetOutcome::Exists => counters.cas_badval.bump(),
                SetOutcome::NotFound => counters.cas_misses.bump(),
                _ => {}
            }
        }
        if turn.shared.is_observed() {
            turn.shared.detail.record_set(self.key);
            watch::stored(turn, self.key, outcome, &self.options, self.value_bytes);
        }
    }
}

fn text_word(outcome: SetOutcome) -> &'static [u8] {
    match outcome {
        SetOutcome::Stored(_) => words::STORED,
        SetOutcome::NotStored => words::NOT_STORED,
        SetOutcome::Exists => words::EXISTS,
        SetOutcome::NotFound => words::NOT_FOUND,
        SetOutcome::TooLarge => words::TOO_LARGE,
        SetOutcome::NoMemory => words::NO_MEMORY,
    }
}

/// Appends a number and a line ending.
pub(crate) fn number_line(out: &mut Vec<u8>, number: u64) {
    write_number(out, number);
    out.extend_from_slice(b"\r\n");
}
