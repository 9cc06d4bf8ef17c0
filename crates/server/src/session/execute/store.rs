//! Writes of whole values: set, add, replace, append, prepend, cas and ms.
//!
//! A write is described once, whatever the form of its request, and executed in one of two ways: at once if its value
//! is in the input, or as a reservation that is committed when the last byte has been received. Until then its parsed
//! line is kept, so that the line is parsed once and the key hashed once.

use glasscache_protocol::ascii::write_number;
use glasscache_protocol::binary::{self, OpcodeAndOpaque, Status};
use glasscache_protocol::command::{StoreCommand, StoreHead};
use glasscache_protocol::meta::{self, MetaFlags, MetaLine};
use glasscache_protocol::replies;
use glasscache_store::{
    CasUnique, KeyHash, NoRoomYet, Refusal, Reservation, SetMode, SetOptions, SetOutcome,
};

use crate::session::command_log;
use crate::session::connection_effect::ConnectionEffect;
use crate::session::context::Context;
use crate::session::events;
use crate::session::output::Output;
use crate::shared::connection_info::CloseReason;
use crate::shared::log::LogKind;
use crate::shared::log_output::LogLevel;

/// One write, ready for its value.
pub(crate) struct StoreWrite<'b> {
    /// Length of the value.
    pub(crate) value_bytes: u32,
    key: &'b [u8],
    hash: KeyHash,
    options: SetOptions,
    request_form: RequestForm<'b>,
}

/// The form of the request, which decides the form of the reply.
enum RequestForm<'b> {
    Text { noreply: bool },
    Meta(MetaLine<'b>),
    Binary(OpcodeAndOpaque),
}

/// A write whose value is being received: its parsed line.
pub(crate) struct PendingWrite {
    value_bytes: u32,
    key: Box<[u8]>,
    hash: KeyHash,
    options: SetOptions,
    request_form: PendingRequestForm,
}

/// A [`RequestForm`] that borrows nothing.
enum PendingRequestForm {
    Text { noreply: bool },
    Meta(Box<PendingMetaLine>),
    Binary(OpcodeAndOpaque),
}

/// A meta line that owns its text.
struct PendingMetaLine {
    key: Box<[u8]>,
    flags: MetaFlags<'static>,
    flags_text: Box<[u8]>,
}

impl PendingWrite {
    /// The key of the item.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The write, ready for its value.
    pub(crate) fn to_store_write(&self) -> StoreWrite<'_> {
        StoreWrite {
            value_bytes: self.value_bytes,
            key: &self.key,
            hash: self.hash,
            options: self.options,
            request_form: match &self.request_form {
                PendingRequestForm::Text { noreply } => RequestForm::Text { noreply: *noreply },
                PendingRequestForm::Binary(request) => RequestForm::Binary(*request),
                PendingRequestForm::Meta(line) => RequestForm::Meta(MetaLine {
                    key: &line.key,
                    flags: line.flags.with_text(&line.flags_text),
                }),
            },
        }
    }
}

impl<'b> StoreWrite<'b> {
    /// A write of the classic text protocol.
    #[inline]
    pub(crate) fn text(head: &StoreHead<'b>, context: &Context<'_>) -> StoreWrite<'b> {
        let request_form = RequestForm::Text { noreply: head.noreply };
        // A reply to a classic write carries no unique.
        Self::from_head(head, request_form, true, context)
    }

    /// A write of the binary protocol, whose responses carry the unique of what was stored.
    #[inline]
    pub(crate) fn binary(
        request: OpcodeAndOpaque,
        head: &StoreHead<'b>,
        context: &Context<'_>,
    ) -> StoreWrite<'b> {
        Self::from_head(head, RequestForm::Binary(request), head.noreply, context)
    }

    #[inline]
    fn from_head(
        head: &StoreHead<'b>,
        request_form: RequestForm<'b>,
        hides_unique: bool,
        context: &Context<'_>,
    ) -> StoreWrite<'b> {
        let options = SetOptions {
            mode: match head.verb {
                StoreCommand::Set | StoreCommand::Cas => SetMode::Set,
                StoreCommand::Add => SetMode::Add,
                StoreCommand::Replace => SetMode::Replace,
                StoreCommand::Append => SetMode::Append,
                StoreCommand::Prepend => SetMode::Prepend,
            },
            flags: head.flags,
            expiry: context.expiry(head.exptime),
            required_cas: head.required_cas.map(CasUnique),
            hides_unique,
            ..SetOptions::default()
        };
        StoreWrite {
            value_bytes: head.value_bytes,
            key: head.key,
            hash: context.store_worker.store().hash(head.key),
            options,
            request_form,
        }
    }

    /// An `ms`; a base64 key is decoded into `scratch`.
    pub(crate) fn meta(
        line: &MetaLine<'b>,
        value_bytes: u32,
        scratch: &'b mut Vec<u8>,
        context: &Context<'_>,
    ) -> StoreWrite<'b> {
        let flags = &line.flags;
        let mode = match flags.mode {
            b'E' => SetMode::Add,
            b'A' => SetMode::Append,
            b'P' => SetMode::Prepend,
            b'R' => SetMode::Replace,
            _ => SetMode::Set,
        };
        // With append and prepend 0 requests nothing; in other modes it is a unique that no item has.
        let is_extension = matches!(mode, SetMode::Append | SetMode::Prepend);
        let compares_unique =
            flags.has(b'C') && mode != SetMode::Add && !(is_extension && flags.required_cas == 0);
        // As in memcached, replacing with a unique is the same as `cas`.
        let is_cas = compares_unique && matches!(mode, SetMode::Set | SetMode::Replace);
        let options = SetOptions {
            mode: if is_cas { SetMode::Set } else { mode },
            flags: flags.client_flags,
            expiry: if flags.has(b'T') { context.expiry(flags.touch) } else { context.expiry(0) },
            required_cas: compares_unique.then_some(CasUnique(flags.required_cas)),
            new_unique: flags.has(b'E').then_some(CasUnique(flags.new_unique)),
            // No unique is below 0: memcached takes such a comparison as one that fails.
            invalidate: is_cas && flags.has(b'I') && flags.required_cas != 0,
            vivify: flags.has(b'N').then(|| context.expiry(flags.vivify)),
            hides_unique: !flags.has(b'c'),
        };
        let line = *line;
        let key = line.item_key(scratch).unwrap_or_default();
        StoreWrite {
            value_bytes,
            key,
            hash: context.store_worker.store().hash(key),
            options,
            request_form: RequestForm::Meta(line),
        }
    }

    /// The parsed line, to keep until the value is complete.
    pub(crate) fn to_pending(&self) -> PendingWrite {
        PendingWrite {
            value_bytes: self.value_bytes,
            key: self.key.into(),
            hash: self.hash,
            options: self.options,
            request_form: match &self.request_form {
                RequestForm::Text { noreply } => PendingRequestForm::Text { noreply: *noreply },
                RequestForm::Binary(request) => PendingRequestForm::Binary(*request),
                RequestForm::Meta(line) => PendingRequestForm::Meta(Box::new(PendingMetaLine {
                    key: line.key.into(),
                    flags: line.flags.with_text(b""),
                    flags_text: line.flags.text.into(),
                })),
            },
        }
    }

    /// Whether even an error gets no reply.
    pub(crate) fn has_no_error_reply(&self) -> bool {
        matches!(self.request_form, RequestForm::Text { noreply: true })
    }

    /// Stores `value` and replies; if it has to wait for a segment, nothing is done and no reply is made.
    #[inline]
    pub(crate) fn execute(
        &self,
        value: &[u8],
        context: &Context<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), NoRoomYet> {
        let (store_worker, key, hash, options) =
            (context.store_worker, self.key, self.hash, &self.options);
        let previous_value = self.find_previous_value(context);
        let result = store_worker.try_set(key, hash, value, options, context.now);
        let outcome = context.stop_waiting_if_overdue(result, || {
            store_worker.set(key, hash, value, options, context.now)
        })?;
        self.publish_previous_fetch(previous_value, context);
        self.write_reply(outcome, context, out);
        Ok(())
    }

    /// Bytes of the key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key.len()
    }

    /// Reserves memory for a value that is being received; `None`, with a reply, if it was refused.
    pub(crate) fn reserve(
        &self,
        context: &Context<'_>,
        out: &mut Output<'_>,
    ) -> Option<Reservation> {
        let reserve_result = context.store_worker.reserve(
            self.key,
            self.hash,
            self.value_bytes,
            &self.options,
            context.now,
        );
        let refusal_outcome = match reserve_result {
            Ok(reservation) => return Some(reservation),
            Err(Refusal::TooLarge) => SetOutcome::TooLarge,
            Err(Refusal::NoMemory) => SetOutcome::NoMemory,
        };
        self.write_reply(refusal_outcome, context, out);
        None
    }

    /// Makes a completely received value visible and replies; if it has to wait for a segment, nothing is done and
    /// no reply is made.
    pub(crate) fn commit(
        &self,
        reservation: &mut Reservation,
        context: &Context<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), NoRoomYet> {
        let previous_value = self.find_previous_value(context);
        let result = context.store_worker.try_commit(reservation, context.now);
        let outcome = context.stop_waiting_if_overdue(result, || {
            context.store_worker.refuse_upload(reservation, context.now);
            SetOutcome::NoMemory
        })?;
        self.publish_previous_fetch(previous_value, context);
        self.write_reply(outcome, context, out);
        Ok(())
    }

    /// What watchers should see of the key before the write.
    #[inline]
    fn find_previous_value(&self, context: &Context<'_>) -> Option<events::PreviousValue> {
        let is_observed = context.shared.is_observed();
        is_observed.then(|| events::find_previous_value(context, self.key, self.hash))
    }

    #[inline]
    fn publish_previous_fetch(
        &self,
        previous_value: Option<events::PreviousValue>,
        context: &Context<'_>,
    ) {
        if let Some(previous_value) = previous_value {
            events::publish_fetch(context, self.key, previous_value.value_bytes);
        }
    }

    /// Refuses a value that is not followed by a line ending: the stream continues where memcached's would, but a
    /// client that reads no replies would not notice, so its connection closes.
    pub(crate) fn refuse_data_chunk(&self, out: &mut Output<'_>) -> ConnectionEffect {
        if self.has_no_error_reply() {
            return ConnectionEffect::Close(CloseReason::MalformedInput);
        }
        out.bytes.extend_from_slice(replies::BAD_DATA_CHUNK);
        ConnectionEffect::Continue
    }

    #[inline]
    fn write_reply(&self, outcome: SetOutcome, context: &Context<'_>, out: &mut Output<'_>) {
        // Without an item to append to the reply is "not stored", with or without a unique.
        let outcome = match (outcome, self.options.mode) {
            (SetOutcome::NotFound, SetMode::Append | SetMode::Prepend) => SetOutcome::NotStored,
            _ => outcome,
        };
        self.count_outcome(outcome, context);
        match &self.request_form {
            RequestForm::Text { noreply: true } => {}
            RequestForm::Text { .. } => out.bytes.extend_from_slice(text_reply(outcome)),
            RequestForm::Meta(line) => self.write_meta_reply(line, outcome, context, out),
            RequestForm::Binary(request) => {
                self.write_binary_reply(*request, outcome, context, out);
            }
        }
    }

    fn write_binary_reply(
        &self,
        request: OpcodeAndOpaque,
        outcome: SetOutcome,
        context: &Context<'_>,
        out: &mut Output<'_>,
    ) {
        let status = match (outcome, self.options.mode) {
            (SetOutcome::Stored(_), _) if request.is_quiet() => return,
            (SetOutcome::Stored(unique), _) => {
                return binary::write_success(
                    &mut out.bytes,
                    request,
                    context.visible_unique(unique),
                );
            }
            (SetOutcome::NotStored, SetMode::Add) | (SetOutcome::Exists, _) => Status::Exists,
            (SetOutcome::NotStored, SetMode::Replace) | (SetOutcome::NotFound, _) => {
                Status::NotFound
            }
            (SetOutcome::NotStored, _) => Status::NotStored,
            (SetOutcome::TooLarge, _) => Status::TooLarge,
            (SetOutcome::NoMemory, _) => return self.report_no_memory(out),
        };
        binary::write_error(&mut out.bytes, request, status);
    }

    /// Reports that there is no memory for the value, as far as the request wants to know.
    pub(crate) fn report_no_memory(&self, out: &mut Output<'_>) {
        match self.request_form {
            RequestForm::Text { noreply: true } => {}
            RequestForm::Text { .. } | RequestForm::Meta(_) => {
                out.bytes.extend_from_slice(replies::NO_MEMORY);
            }
            RequestForm::Binary(request) => {
                let text = b"Out of memory allocating item";
                binary::write_error_with_text(&mut out.bytes, request, Status::OutOfMemory, text);
            }
        }
    }

    /// What follows the value in the stream.
    #[inline]
    pub(crate) fn value_terminator(&self) -> &'static [u8] {
        match self.request_form {
            RequestForm::Binary(_) => b"",
            RequestForm::Text { .. } | RequestForm::Meta(_) => b"\r\n",
        }
    }

    fn write_meta_reply(
        &self,
        line: &MetaLine<'_>,
        outcome: SetOutcome,
        context: &Context<'_>,
        out: &mut Output<'_>,
    ) {
        let (status, unique) = match outcome {
            SetOutcome::Stored(_) if line.flags.has(b'q') => return,
            SetOutcome::Stored(unique) => (*b"HD", unique),
            SetOutcome::NotStored => (*b"NS", CasUnique(0)),
            SetOutcome::Exists => (*b"EX", CasUnique(0)),
            SetOutcome::NotFound => (*b"NF", CasUnique(0)),
            SetOutcome::TooLarge | SetOutcome::NoMemory => {
                return out.bytes.extend_from_slice(text_reply(outcome));
            }
        };
        let size = match outcome {
            SetOutcome::Stored(_) => self.current_size(line, context),
            _ => self.value_bytes,
        };
        let attributes = (context.visible_unique(unique), size);
        meta::write_stored(&mut out.bytes, line, self.key, status, attributes);
    }

    /// The size that `s` reports: of the whole item after an append or prepend.
    fn current_size(&self, line: &MetaLine<'_>, context: &Context<'_>) -> u32 {
        let is_extension = matches!(self.options.mode, SetMode::Append | SetMode::Prepend);
        if !(is_extension && line.flags.has(b's')) {
            return self.value_bytes;
        }
        let item = context.store_worker.peek(self.key, self.hash, context.now);
        item.map_or(self.value_bytes, |item| item.value_bytes())
    }

    /// Counts and logs a value that was refused because there was no memory.
    #[cold]
    pub(crate) fn count_refusal(&self, context: &Context<'_>) {
        context.counters.store_no_memory.bump();
        let shared = context.shared;
        if shared.logs_at(1) {
            let (key, value_bytes) = (command_log::escape_for_log(self.key), self.value_bytes);
            shared.log.queue_line(
                LogLevel::Warning,
                format!("glasscache: refused to store {key} ({value_bytes} bytes): no memory"),
            );
        } else {
            shared.log.queue_line_rate_limited(LogKind::RefusedStore, context.now.0, || {
                let limit_mb = context.store_worker.store().memory_bytes() >> 20;
                format!("glasscache: refused to store a value: no memory (-m is {limit_mb} MB; -v names the keys)")
            });
        }
    }

    #[inline]
    fn count_outcome(&self, outcome: SetOutcome, context: &Context<'_>) {
        let counters = context.counters;
        let is_whole_value = !matches!(self.options.mode, SetMode::Append | SetMode::Prepend);
        if is_whole_value && matches!(outcome, SetOutcome::Stored(_)) {
            let fill_time = context.shared.fill_times.end(self.hash);
            if let Some(time) = fill_time.filter(|_| context.shared.config.weighs_fill_times()) {
                context.store_worker.note_fill(self.hash, time, context.now);
            }
        }
        match outcome {
            SetOutcome::TooLarge => counters.store_too_large.bump(),
            SetOutcome::NoMemory => self.count_refusal(context),
            _ => {
                counters.set_cmds.bump();
                context.shared.slab_classes.count_set(
                    context.counters,
                    self.key,
                    self.value_bytes,
                    self.options.flags,
                );
            }
        }
        if self.options.required_cas.is_some() {
            match outcome {
                SetOutcome::Stored(_) => counters.cas_hits.bump(),
                SetOutcome::Exists => counters.cas_badval.bump(),
                SetOutcome::NotFound => counters.cas_misses.bump(),
                _ => {}
            }
        }
        if context.shared.is_observed() {
            context.shared.prefix_table.record_set(self.key);
            let located_key = (self.key, self.hash);
            events::publish_store(context, located_key, outcome, &self.options, self.value_bytes);
        }
    }
}

fn text_reply(outcome: SetOutcome) -> &'static [u8] {
    match outcome {
        SetOutcome::Stored(_) => replies::STORED,
        SetOutcome::NotStored => replies::NOT_STORED,
        SetOutcome::Exists => replies::EXISTS,
        SetOutcome::NotFound => replies::NOT_FOUND,
        SetOutcome::TooLarge => replies::TOO_LARGE,
        SetOutcome::NoMemory => replies::NO_MEMORY,
    }
}

/// Appends a number and a line ending.
pub(crate) fn write_number_line(out: &mut Vec<u8>, number: u64) {
    write_number(out, number);
    out.extend_from_slice(b"\r\n");
}
