//! Requests of the binary protocol: packets instead of lines, and the same batches and uploads.

use glasscache_protocol::binary::{
    self, Command, Get, OpcodeAndOpaque, PacketRefusal, Parsed, Status,
};

use super::Session;
use super::run::Run;
use super::state::{LoginState, RunEnd, State};
use crate::session::execute::store::StoreWrite;
use crate::session::execute::{self, Lookup};
use crate::shared::connection_info::CloseReason;

impl Session {
    /// Parses and executes one request. `None` continues.
    pub(super) fn serve_request(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        if let Some(run_end) = run.check_limits() {
            return Some(run_end);
        }
        match binary::parse(run.remaining_input()) {
            Parsed::Incomplete => Some(RunEnd::NeedsInput),
            Parsed::Request(request, command, used_bytes) => {
                run.command_count += 1;
                self.begin_request(request, &command, used_bytes, run)
            }
            Parsed::Refused(refusal, used_bytes) => {
                run.execute_lookups();
                if run.is_stopped() {
                    return Some(RunEnd::Flush);
                }
                run.used_bytes += used_bytes;
                self.refuse_request(refusal, run)
            }
            Parsed::BadMagic => Some(RunEnd::Close(CloseReason::MalformedInput)),
        }
    }

    fn begin_request<'b>(
        &mut self,
        request: OpcodeAndOpaque,
        command: &Command<'b>,
        used_bytes: usize,
        run: &mut Run<'b, '_, '_>,
    ) -> Option<RunEnd> {
        let get = match *command {
            Command::Get(get) => Some(get),
            Command::Touch { key, exptime } => Some(Get { key, touch: Some(exptime) }),
            _ => None,
        };
        if let Some(get) = get {
            run.used_bytes += used_bytes;
            run.push(Lookup::binary(request, &get, run.context));
            return None;
        }
        run.execute_lookups();
        if run.is_stopped() {
            return Some(RunEnd::Flush);
        }
        match *command {
            Command::Store(ref head) => {
                return self.begin_write(
                    &StoreWrite::binary(request, head, run.context),
                    used_bytes,
                    run,
                );
            }
            Command::SaslMechanisms | Command::SaslLogin { .. } => {
                return self.begin_sasl(request, command, used_bytes, run);
            }
            _ => {}
        }
        let Ok(effect) = execute::binary::run_command(request, command, run.context, run.out)
        else {
            return Some(RunEnd::WaitForSegment);
        };
        run.used_bytes += used_bytes;
        RunEnd::after_command(effect)
    }

    /// A request of SASL from a connection that need not log in or has logged in.
    fn begin_sasl(
        &mut self,
        request: OpcodeAndOpaque,
        command: &Command<'_>,
        used_bytes: usize,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        if run.context.shared.logins.are_required() {
            let mut login_state = LoginState::default();
            let run_end = login_state.serve_sasl(request, command, used_bytes, run);
            if login_state.has_begun() {
                self.state = State::Login(Box::new(login_state));
            }
            return run_end;
        }
        let bytes_to_skip = match *command {
            Command::SaslLogin { message_bytes, .. } => message_bytes,
            _ => 0,
        };
        run.used_bytes += used_bytes;
        let refusal = PacketRefusal {
            request,
            status: Status::UnknownCommand,
            bytes_to_skip,
            must_close: false,
        };
        self.refuse_request(refusal, run)
    }

    fn refuse_request(
        &mut self,
        refusal: PacketRefusal,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        binary::write_error(&mut run.out.bytes, refusal.request, refusal.status);
        if refusal.bytes_to_skip > 0 {
            self.state = State::SkipRefusedValue(u64::from(refusal.bytes_to_skip));
        }
        refusal.must_close.then_some(RunEnd::Close(CloseReason::MalformedInput))
    }
}
