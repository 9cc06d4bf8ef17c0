//! The keys of a get, parsed one by one, so that a line of 80,000 of them is served in slices.

use glasscache_protocol::limits::GET_KEYS_BYTES_MAX;
use glasscache_protocol::replies;
use glasscache_protocol::text::{self, KeyToken};

use super::run::Run;
use super::state::{PendingGet, RunEnd, Session, State};
use crate::session::execute::Lookup;
use crate::shared::connection_info::CloseReason;

impl Session {
    /// Parses the keys of a get, up to the end of the line, of the input, or of the slice.
    pub(super) fn parse_keys(
        &mut self,
        mut pending_get: PendingGet,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        loop {
            let reply_start = run.execute_full_batch();
            if pending_get.has_started && reply_start.is_some() {
                pending_get.reply_start = reply_start;
            }
            // The rest of the current batch still fits in this slice.
            if run.is_stopped() || run.context.is_output_full(run.out) {
                self.state = State::PendingGet(pending_get);
                return Some(RunEnd::Flush);
            }
            match text::next_key(run.remaining_input()) {
                KeyToken::Key(key, used_bytes) => {
                    run.used_bytes += used_bytes;
                    pending_get.key_bytes += key.len();
                    if pending_get.key_bytes > GET_KEYS_BYTES_MAX {
                        return self.refuse_get(pending_get, replies::LINE_TOO_LONG, run);
                    }
                    let lookup =
                        Lookup::text(key, pending_get.head, !pending_get.has_started, run.context);
                    run.push(lookup);
                    pending_get.has_started = true;
                }
                KeyToken::End(used_bytes) => {
                    run.used_bytes += used_bytes;
                    run.batch.end_line(run.out);
                    self.state = State::Command;
                    return None;
                }
                KeyToken::Incomplete => {
                    self.state = State::PendingGet(pending_get);
                    return Some(RunEnd::NeedsInput);
                }
                KeyToken::TooLong => {
                    return self.refuse_get(pending_get, replies::BAD_FORMAT, run);
                }
            }
        }
    }

    /// Refuses a get with too long a key or too many keys: the error replaces the reply, as in memcached, unless a part
    /// of that reply has already been sent; then the connection must close.
    fn refuse_get(
        &mut self,
        pending_get: PendingGet,
        error_reply: &'static [u8],
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        self.state = State::Command;
        let reply_start =
            run.execute_lookups().filter(|_| pending_get.has_started).or(pending_get.reply_start);
        if run.is_stopped() {
            self.state = State::PendingGet(pending_get);
            return Some(RunEnd::Flush);
        }
        let line_end = memchr::memchr(b'\n', run.remaining_input());
        if let Some(reply_start) = reply_start {
            run.out.rewind(reply_start);
        }
        run.out.bytes.extend_from_slice(error_reply);
        let can_rewind = reply_start.is_some() || !pending_get.has_started;
        match line_end {
            Some(line_end) if can_rewind && error_reply == replies::BAD_FORMAT => {
                run.used_bytes += line_end + 1;
                None
            }
            _ => Some(RunEnd::Close(CloseReason::MalformedInput)),
        }
    }
}
