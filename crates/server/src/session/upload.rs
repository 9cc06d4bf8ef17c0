//! Storage commands of a session: values that are in the input, and large ones received into the store piece by
//! piece.

use super::run::Run;
use super::state::{RunEnd, Session, State, UPLOAD_STATE_BYTES, Upload};
use crate::session::execute::store::StoreWrite;
use crate::shared::peer_memory::Pressure;
use crate::shared::sizes::UPLOAD_BYTES_MIN;
use crate::shared::stalled;

impl Session {
    /// Executes a storage command: at once if its value is in the input, into the store piece by piece if it is
    /// large, otherwise when more has been received.
    pub(super) fn begin_write(
        &mut self,
        write: &StoreWrite<'_>,
        head_bytes: usize,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        let value_bytes = write.value_bytes as usize;
        let input_after_head = run.remaining_input().get(head_bytes..).unwrap_or_default();
        if write.value_bytes < UPLOAD_BYTES_MIN
            && let Some((value, following_input)) = input_after_head.split_at_checked(value_bytes)
            && let Some((terminator, _)) =
                following_input.split_at_checked(write.value_terminator().len())
        {
            let write_bytes = head_bytes + value_bytes + terminator.len();
            if terminator != write.value_terminator() {
                run.used_bytes += write_bytes;
                return RunEnd::after_command(write.refuse_data_chunk(run.out));
            }
            if write.execute(value, run.context, run.out).is_err() {
                return Some(RunEnd::WaitForSegment);
            }
            run.used_bytes += write_bytes;
            return None;
        }
        let is_small = write.value_bytes < UPLOAD_BYTES_MIN;
        if is_small && !run.context.uploads_early(write.key_bytes(), value_bytes) {
            if may_keep_incomplete(run) {
                let command_bytes = head_bytes + value_bytes + write.value_terminator().len();
                return Some(RunEnd::NeedsBytes(command_bytes));
            }
            self.begin_upload(write, head_bytes, run);
            return self.refuse_upload(run);
        }
        if !is_small && stalled::must_wait_to_upload(run.context.shared, run.context.now) {
            return self.wait_or_refuse(RunEnd::WaitForUpload, write, head_bytes, run);
        }
        let state_bytes = UPLOAD_STATE_BYTES + head_bytes;
        if run.context.pressure == Pressure::High && !is_upload_granted(state_bytes, run) {
            return self.wait_or_refuse(RunEnd::WaitForMemory(state_bytes), write, head_bytes, run);
        }
        self.begin_upload(write, head_bytes, run);
        None
    }

    /// Waits with what was received, unless that cannot be kept: then the value is refused.
    fn wait_or_refuse(
        &mut self,
        wait: RunEnd,
        write: &StoreWrite<'_>,
        head_bytes: usize,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        if may_keep_incomplete(run) {
            return Some(wait);
        }
        self.begin_upload(write, head_bytes, run);
        self.refuse_upload(run)
    }

    /// Begins to receive a value into the store; if the store refuses it, the value is skipped.
    fn begin_upload(
        &mut self,
        write: &StoreWrite<'_>,
        head_bytes: usize,
        run: &mut Run<'_, '_, '_>,
    ) {
        run.used_bytes += head_bytes;
        if let Some(reservation) = write.reserve(run.context, run.out) {
            run.context.connection.held_memory.record_upload(reservation.id());
            self.state = State::Upload(Box::new(Upload {
                pending_write: write.to_pending(),
                reservation,
                _charge: run.context.shared.peer_memory.charge(UPLOAD_STATE_BYTES + head_bytes),
            }));
        } else {
            let terminator_bytes = write.value_terminator().len() as u64;
            self.state = State::SkipRefusedValue(u64::from(write.value_bytes) + terminator_bytes);
        }
    }

    /// Copies input into a large value, and commits it when its line ending has been received.
    pub(super) fn continue_upload(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        let State::Upload(upload) = &mut self.state else {
            return None;
        };
        while !upload.reservation.is_complete() {
            let input = run.remaining_input();
            if input.is_empty() {
                return Some(RunEnd::NeedsInput);
            }
            let space = upload.reservation.space(run.context.store_worker, run.context.now);
            let copied_bytes = space.len().min(input.len());
            if copied_bytes == 0 {
                let reservation = &upload.reservation;
                return if reservation.is_blocked_by_uploads()
                    && stalled::must_wait_to_resume(run.context.shared, run.context.now)
                {
                    Some(RunEnd::WaitForUpload)
                } else if reservation.awaits_segment() && !run.context.may_refuse.take() {
                    Some(RunEnd::WaitForSegment)
                } else {
                    self.refuse_upload(run)
                };
            }
            if let (Some(target), Some(source)) =
                (space.get_mut(..copied_bytes), input.get(..copied_bytes))
            {
                target.copy_from_slice(source);
            }
            upload.reservation.advance(copied_bytes);
            run.used_bytes += copied_bytes;
        }
        let terminator_bytes = upload.pending_write.to_store_write().value_terminator().len();
        let Some(terminator) = run.remaining_input().get(..terminator_bytes) else {
            // The value is complete and its line ending is not: without reading more here the loop would spin
            // forever.
            return Some(RunEnd::NeedsInput);
        };
        self.finish_upload(terminator, run)
    }

    fn finish_upload(&mut self, terminator: &[u8], run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        let State::Upload(mut upload) = std::mem::take(&mut self.state) else {
            return None;
        };
        let write = upload.pending_write.to_store_write();
        let terminator_bytes = terminator.len();
        if terminator != write.value_terminator() {
            run.used_bytes += terminator_bytes;
            return RunEnd::after_command(write.refuse_data_chunk(run.out));
        }
        let reservation = &mut upload.reservation;
        if write.commit(reservation, run.context, run.out).is_err() {
            self.state = State::Upload(upload);
            return Some(RunEnd::WaitForSegment);
        }
        run.used_bytes += terminator_bytes;
        drop(upload);
        stalled::record_upload_release(run.context.shared);
        None
    }

    /// Refuses an upload because the store has no memory for the rest: replies with an error and skips the rest.
    fn refuse_upload(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        let upload = match std::mem::take(&mut self.state) {
            State::Upload(upload) => upload,
            // The store has refused it already, and its value is skipped.
            state => {
                self.state = state;
                return None;
            }
        };
        run.context.store_worker.refuse_upload(&upload.reservation, run.context.now);
        let write = upload.pending_write.to_store_write();
        write.count_refusal(run.context);
        write.report_no_memory(run.out);
        let bytes_left =
            u64::from(upload.reservation.missing_bytes()) + write.value_terminator().len() as u64;
        self.state = State::SkipRefusedValue(bytes_left);
        drop(upload);
        stalled::record_upload_release(run.context.shared);
        None
    }
}

/// Whether there is memory for the state of an upload. Where what was received cannot be kept otherwise, it may take a
/// little more than requests may: the value itself goes into the store.
fn is_upload_granted(state_bytes: usize, run: &Run<'_, '_, '_>) -> bool {
    let (context, memory) = (run.context, &run.context.shared.peer_memory);
    memory.try_grant_input(state_bytes, context.is_first_waiter)
        || (context.refuses_incomplete.get() && memory.has_excess(state_bytes))
}

/// Whether the rest of the input, an incomplete command, may be kept: where nothing was granted for it, only if there is
/// memory for it now.
fn may_keep_incomplete(run: &Run<'_, '_, '_>) -> bool {
    let context = run.context;
    let input_bytes = run.remaining_input().len();
    !context.refuses_incomplete.get()
        || context.shared.peer_memory.try_grant_input(input_bytes, context.is_first_waiter)
}
