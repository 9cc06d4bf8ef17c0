//! The fields of a session that is handed over to the next process: its position in its stream.

use glasscache_protocol::command::GetHead;
use glasscache_store::Reservation;

use super::state::{Access, LoginState, PendingGet, Protocol, Session, State};
use crate::shared::config::Protocols;
use crate::shared::fields::{FieldReader, FieldWriter};

const STATE_COMMAND: u8 = 0;
const STATE_PENDING_GET: u8 = 1;
const STATE_SKIP_REFUSED_VALUE: u8 = 2;
const STATE_PROXY_HEADER: u8 = 3;
const STATE_LOGIN: u8 = 4;
const STATE_DESYNCHRONISED: u8 = 5;
const STATE_CLOSED: u8 = 6;
const STATE_STATISTICS: u8 = 7;

impl Session {
    /// Whether it can be continued by another process: no upload, no attempt to log in that is being verified.
    pub(crate) fn can_be_handed_over(&self) -> bool {
        match &self.state {
            State::Upload(_) => false,
            State::Login(login) => login.is_idle(),
            _ => true,
        }
    }

    /// The memory of an upload, complete or not.
    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        match &self.state {
            State::Upload(upload) => Some(&upload.reservation),
            _ => None,
        }
    }

    /// Appends its fields.
    pub(crate) fn write_fields(&self, writer: &mut FieldWriter) {
        writer.u8(match self.protocol {
            Protocol::Unknown => 0,
            Protocol::Text => 1,
            Protocol::Binary => 2,
        });
        match &self.state {
            State::Command => writer.u8(STATE_COMMAND),
            State::PendingGet(pending_get) => {
                writer.u8(STATE_PENDING_GET);
                writer.bool(pending_get.head.with_cas);
                writer.bool(pending_get.head.touch.is_some());
                writer.i64(pending_get.head.touch.unwrap_or(0));
                writer.u64(pending_get.key_bytes as u64);
                writer.bool(pending_get.has_started);
            }
            State::SkipRefusedValue(bytes_left) => {
                writer.u8(STATE_SKIP_REFUSED_VALUE);
                writer.u64(*bytes_left);
            }
            State::ProxyHeader => writer.u8(STATE_PROXY_HEADER),
            State::Login(login) => {
                writer.u8(STATE_LOGIN);
                writer.bool(login.expects_step);
                writer.u32(login.failures);
            }
            State::Statistics => writer.u8(STATE_STATISTICS),
            State::Desynchronised => writer.u8(STATE_DESYNCHRONISED),
            State::Upload(_) | State::Closed => writer.u8(STATE_CLOSED),
        }
    }

    /// Reads what [`Session::write_fields`] wrote. A connection that needed no login before has to log in if that is
    /// required now, and one that speaks a protocol that is not allowed any more is closed.
    pub(crate) fn read_fields(
        reader: &mut FieldReader<'_>,
        requires_login: bool,
        previous_required_login: bool,
        protocols: Protocols,
    ) -> Option<Session> {
        let protocol = match reader.u8()? {
            0 => Protocol::Unknown,
            1 => Protocol::Text,
            2 => Protocol::Binary,
            _ => return None,
        };
        let must_log_in = requires_login && !previous_required_login;
        let state = match (read_state(reader)?, must_log_in) {
            (_, _) if protocol.refusal_reason(protocols).is_some() => State::Closed,
            (State::Command, true) => State::initial(Access::Login),
            // In the middle of a request, after which it could continue without a login.
            (State::PendingGet(_) | State::SkipRefusedValue(_), true) => State::Closed,
            (State::Login(_), _) if !requires_login => State::Command,
            (state, _) => state,
        };
        Some(Session { state, protocol })
    }
}

fn read_state(reader: &mut FieldReader<'_>) -> Option<State> {
    Some(match reader.u8()? {
        STATE_COMMAND => State::Command,
        STATE_PENDING_GET => {
            let with_cas = reader.bool()?;
            let (has_touch, touch) = (reader.bool()?, reader.i64()?);
            State::PendingGet(PendingGet {
                head: GetHead { with_cas, touch: has_touch.then_some(touch) },
                key_bytes: reader.u64()? as usize,
                reply_start: None,
                has_started: reader.bool()?,
            })
        }
        STATE_SKIP_REFUSED_VALUE => State::SkipRefusedValue(reader.u64()?),
        STATE_PROXY_HEADER => State::ProxyHeader,
        STATE_STATISTICS => State::Statistics,
        STATE_LOGIN => State::Login(Box::new(LoginState {
            expects_step: reader.bool()?,
            failures: reader.u32()?,
            ..LoginState::default()
        })),
        STATE_DESYNCHRONISED => State::Desynchronised,
        STATE_CLOSED => State::Closed,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_states() -> Vec<State> {
        let pending_get = PendingGet {
            head: GetHead { with_cas: true, touch: Some(-5) },
            key_bytes: 77,
            reply_start: None,
            has_started: true,
        };
        let login = LoginState { failures: 3, expects_step: true, ..LoginState::default() };
        vec![
            State::Command,
            State::PendingGet(pending_get),
            State::SkipRefusedValue(1 << 40),
            State::ProxyHeader,
            State::Login(Box::new(login)),
            State::Desynchronised,
            State::Closed,
        ]
    }

    fn encode_session(session: &Session) -> Vec<u8> {
        let mut writer = FieldWriter::default();
        session.write_fields(&mut writer);
        writer.0
    }

    #[test]
    fn every_position_is_the_same_after_a_handover() {
        for state in list_states() {
            let session = Session { state, protocol: Protocol::Text };
            let written_fields = encode_session(&session);
            let mut reader = FieldReader(&written_fields);
            let read_session = Session::read_fields(&mut reader, true, true, Protocols::Any);
            assert!(reader.is_at_end());
            assert_eq!(encode_session(&read_session.unwrap()), written_fields);
            for end in 0..written_fields.len() {
                let cut_fields = &written_fields[..end];
                assert!(
                    Session::read_fields(&mut FieldReader(cut_fields), true, true, Protocols::Any)
                        .is_none()
                );
            }
        }
    }

    #[test]
    fn a_connection_without_login_has_to_log_in_where_one_is_required_now() {
        for state in list_states() {
            let can_log_in = matches!(state, State::Command | State::Login(_));
            let session = Session { state, protocol: Protocol::Text };
            let written_fields = encode_session(&session);
            let read_session = Session::read_fields(
                &mut FieldReader(&written_fields),
                true,
                false,
                Protocols::Any,
            );
            let read_session = read_session.unwrap();
            assert_eq!(can_log_in, matches!(read_session.state, State::Login(_)));
            assert!(!matches!(read_session.state, State::Command | State::PendingGet(_)));
            let read_session = Session::read_fields(
                &mut FieldReader(&written_fields),
                false,
                true,
                Protocols::Any,
            );
            assert!(!matches!(read_session.unwrap().state, State::Login(_)));
        }
    }

    #[test]
    fn a_connection_in_a_protocol_that_is_not_allowed_any_more_is_closed() {
        let session = Session { state: State::Command, protocol: Protocol::Binary };
        let written_fields = encode_session(&session);
        let read_session =
            Session::read_fields(&mut FieldReader(&written_fields), false, false, Protocols::Text);
        assert!(matches!(read_session.unwrap().state, State::Closed));
    }
}
