//! The login of a connection: nothing else is executed before it, in either protocol.
//!
//! In text it is a `set` whose value is `user password`, in binary PLAIN of SASL. A password is verified by another
//! thread (`shared/logins`); meanwhile the run ends with [`RunEnd::WaitForLogin`] and nothing more is received. As the
//! state of a session that has to log in is another than that of one that serves commands, no path around it exists;
//! a failed attempt of a connection that was logged in leads back to it.

use glasscache_protocol::binary::{self, Command, OpcodeAndOpaque, PacketRefusal, Status, opcode};
use glasscache_protocol::limits::LOGIN_BYTES_MAX;
use glasscache_protocol::login::{self, Credentials};
use glasscache_protocol::replies;

use super::Session;
use super::run::Run;
use super::state::{Access, LoginState, Protocol, RunEnd, State};
use crate::session::context::Context;
use crate::session::execute;
use crate::shared::connection_info::CloseReason;
use crate::shared::log::LogKind;
use crate::shared::source::Source;

/// Failed attempts after which a connection is closed: more than a person mistypes.
const FAILURES_MAX: u32 = 5;

/// Longest name of a mechanism in bytes, as in memcached.
const MECHANISM_BYTES_MAX: usize = 32;

/// The only mechanism of SASL.
const PLAIN: &[u8] = b"PLAIN";

/// A login of SASL: its message follows `head_bytes` of the input.
struct SaslLogin<'b> {
    request: OpcodeAndOpaque,
    mechanism: &'b [u8],
    message_bytes: usize,
    is_step: bool,
    head_bytes: usize,
}

impl Session {
    /// A session at the start of its stream.
    pub(crate) fn new(access: Access, has_proxy_header: bool) -> Session {
        Session {
            state: if has_proxy_header { State::ProxyHeader } else { State::initial(access) },
            ..Session::default()
        }
    }

    /// Whether it has to log in, or to send a proxy's header, before anything else.
    pub(crate) fn awaits_login(&self) -> bool {
        matches!(self.state, State::Login(_) | State::ProxyHeader)
    }

    /// Why it is closed if that takes too long.
    pub(crate) fn timeout_reason(&self) -> CloseReason {
        match self.state {
            State::ProxyHeader => CloseReason::NoProxyHeader,
            _ => CloseReason::LoginTimeout,
        }
    }

    /// Whether an attempt to log in is being verified.
    pub(crate) fn is_login_pending(&self) -> bool {
        let State::Login(login_state) = &self.state else {
            return false;
        };
        let attempt = login_state.attempt.as_ref();
        attempt.is_some_and(|attempt| attempt.was_accepted().is_none())
    }

    /// Serves a connection that has to log in. `None` continues.
    pub(super) fn serve_login(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        if let Some(run_end) = run.check_limits() {
            return Some(run_end);
        }
        let is_binary = self.protocol == Protocol::Binary;
        let State::Login(login_state) = &mut self.state else {
            return None;
        };
        if let Some(attempt) = &login_state.attempt {
            let Some(is_accepted) = attempt.was_accepted() else {
                return Some(RunEnd::WaitForLogin);
            };
            let run_end = login_state.finish_attempt(is_accepted, is_binary, run);
            if is_accepted {
                self.state = State::Command;
            }
            return run_end;
        }
        run.command_count += 1;
        if is_binary { login_state.serve_request(run) } else { login_state.serve_line(run) }
    }
}

impl LoginState {
    /// Whether no login attempt is pending.
    pub(super) fn is_idle(&self) -> bool {
        self.attempt.is_none()
    }

    /// Whether an attempt is being verified, or PLAIN was named without its message.
    pub(super) fn has_begun(&self) -> bool {
        self.attempt.is_some() || self.expects_step
    }

    fn serve_line(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        match login::parse(run.remaining_input()) {
            login::Parsed::Incomplete => Some(RunEnd::NeedsInput),
            login::Parsed::Attempt(credentials, used_bytes) => {
                run.used_bytes += used_bytes;
                self.submit(OpcodeAndOpaque::default(), Some(credentials), run.context);
                None
            }
            login::Parsed::Refused(reply, used_bytes) => {
                run.used_bytes += used_bytes;
                run.out.bytes.extend_from_slice(reply);
                None
            }
            login::Parsed::Malformed => Some(RunEnd::Close(CloseReason::InputBeforeLogin)),
        }
    }

    fn serve_request(&mut self, run: &mut Run<'_, '_, '_>) -> Option<RunEnd> {
        match binary::parse(run.remaining_input()) {
            binary::Parsed::Incomplete => Some(RunEnd::NeedsInput),
            binary::Parsed::BadMagic => Some(RunEnd::Close(CloseReason::MalformedInput)),
            binary::Parsed::Request(
                request,
                command @ (Command::SaslMechanisms | Command::SaslLogin { .. }),
                used_bytes,
            ) => self.serve_sasl(request, &command, used_bytes, run),
            binary::Parsed::Request(request, command @ Command::Version, used_bytes) => {
                run.used_bytes += used_bytes;
                let _ = execute::binary::run_command(request, &command, run.context, run.out);
                None
            }
            binary::Parsed::Request(request, _, _) => {
                Some(refuse_before_login(request, Status::AuthFailure, run))
            }
            binary::Parsed::Refused(refusal, _) => {
                let status = status_before_login(&refusal);
                Some(refuse_before_login(refusal.request, status, run))
            }
        }
    }

    /// A request of SASL: the mechanisms, or a login, the first or a later one of the connection.
    pub(super) fn serve_sasl(
        &mut self,
        request: OpcodeAndOpaque,
        command: &Command<'_>,
        used_bytes: usize,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        let Command::SaslLogin { mechanism, message_bytes, is_step } = *command else {
            run.used_bytes += used_bytes;
            binary::write_text(&mut run.out.bytes, request, PLAIN);
            return None;
        };
        let sasl_login = SaslLogin {
            request,
            mechanism,
            message_bytes: message_bytes as usize,
            is_step,
            head_bytes: used_bytes,
        };
        self.serve_sasl_login(&sasl_login, run)
    }

    fn serve_sasl_login(
        &mut self,
        sasl_login: &SaslLogin<'_>,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        if sasl_login.message_bytes > LOGIN_BYTES_MAX {
            return Some(refuse_before_login(sasl_login.request, Status::AuthFailure, run));
        }
        let packet_bytes = sasl_login.head_bytes + sasl_login.message_bytes;
        let Some(message) = run.remaining_input().get(sasl_login.head_bytes..packet_bytes) else {
            return Some(RunEnd::NeedsBytes(packet_bytes));
        };
        run.used_bytes += packet_bytes;
        if sasl_login.mechanism.len() > MECHANISM_BYTES_MAX {
            binary::write_error(&mut run.out.bytes, sasl_login.request, Status::InvalidArguments);
            return None;
        }
        let expects_step = std::mem::take(&mut self.expects_step);
        let is_plain_mechanism = sasl_login.mechanism.eq_ignore_ascii_case(PLAIN);
        if is_plain_mechanism && !sasl_login.is_step && message.is_empty() {
            self.expects_step = true;
            require_login(run.context);
            binary::write_error(&mut run.out.bytes, sasl_login.request, Status::AuthContinue);
            return None;
        }
        let credentials = (is_plain_mechanism && (!sasl_login.is_step || expects_step))
            .then(|| login::parse_sasl_plain(message))
            .flatten();
        self.submit(sasl_login.request, credentials, run.context);
        None
    }

    /// Has an attempt be verified.
    fn submit(
        &mut self,
        request: OpcodeAndOpaque,
        credentials: Option<Credentials<'_>>,
        context: &Context<'_>,
    ) {
        require_login(context);
        self.request = request;
        let source = Source::of(&context.connection.client());
        self.attempt = Some(context.shared.logins.submit(credentials, source, context.waker));
    }

    /// Reports the outcome of the attempt; if it was accepted, commands are served from now on.
    fn finish_attempt(
        &mut self,
        is_accepted: bool,
        is_binary: bool,
        run: &mut Run<'_, '_, '_>,
    ) -> Option<RunEnd> {
        self.attempt = None;
        let context = run.context;
        let out = &mut run.out.bytes;
        context.counters.auth_cmds.bump();
        if is_accepted {
            if is_binary {
                binary::write_text(out, self.request, b"Authenticated");
            } else {
                out.extend_from_slice(replies::STORED);
            }
            context.shared.connections.set_awaits_login(context.connection, false);
            return None;
        }
        if is_binary {
            binary::write_error(out, self.request, Status::AuthFailure);
        } else {
            out.extend_from_slice(replies::LOGIN_FAILED);
        }
        self.failures += 1;
        let is_last_attempt = self.failures >= FAILURES_MAX;
        count_failure(context);
        is_last_attempt.then_some(RunEnd::Close(CloseReason::LoginFailed))
    }
}

/// The connection has to log in from now on, also if it was logged in.
fn require_login(context: &Context<'_>) {
    context.shared.connections.set_awaits_login(context.connection, true);
}

/// Counts and logs a failed attempt; neither user nor password is logged, since one may be typed for the other.
fn count_failure(context: &Context<'_>) {
    context.counters.auth_errors.bump();
    let log = &context.shared.log;
    log.queue_line_rate_limited(LogKind::FailedLogin, context.now.0, || {
        let client = context.connection.client();
        format!("glasscache: a login from {client} failed: wrong user or password")
    });
}

/// The status of a request that is malformed or unknown: contradicting lengths are an error of their own, as in
/// memcached, and so are wrong ones of a request that is allowed before the login.
fn status_before_login(refusal: &PacketRefusal) -> Status {
    let is_allowed = matches!(
        refusal.request.opcode,
        opcode::SASL_LIST_MECHANISMS | opcode::SASL_AUTH | opcode::SASL_STEP | opcode::VERSION
    );
    let is_contradiction = refusal.status == Status::UnknownCommand && refusal.must_close;
    if is_allowed || is_contradiction { refusal.status } else { Status::AuthFailure }
}

/// Reports an error and closes: what follows may be the value of a request that is not executed.
fn refuse_before_login(
    request: OpcodeAndOpaque,
    status: Status,
    run: &mut Run<'_, '_, '_>,
) -> RunEnd {
    binary::write_error(&mut run.out.bytes, request, status);
    RunEnd::Close(CloseReason::InputBeforeLogin)
}
