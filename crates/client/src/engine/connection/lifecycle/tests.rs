//! Tests of what precedes the first request of a connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::{Attempt, Connection, ConnectionEvent, Failure, Ticket, Wire};
use super::{Lifecycle, OpeningStep};
use crate::engine::health::HealthEffect;
use crate::engine::retry::RetryDecision;
use crate::engine::server::ServerState;
use crate::error::Error;
use crate::login::Login;
use crate::request::CommandSet;

const LOGIN: &str = "set auth 0 -1 7\r\nfoo bar\r\n";

fn server_with_login(login: Login) -> Arc<ServerState> {
    Arc::new(ServerState::new("s".to_owned()).with_login(Some(login)))
}

fn connect_to(server: &Arc<ServerState>) -> Connection {
    let mut connection = Connection::new(server.clone(), 1000, 1);
    let started = Instant::now();
    let attempt = Attempt { started, deadline: started + Duration::from_secs(1), is_retry: false };
    connection.handle_connected(false, attempt);
    connection
}

/// Takes all output as sent.
fn take_sent_output(connection: &mut Connection) -> String {
    let out = connection.wire().output().to_vec();
    connection.wire_mut().mark_sent(out.len());
    String::from_utf8(out).unwrap()
}

fn expect_failure(event: ConnectionEvent) -> Failure {
    match event {
        ConnectionEvent::Failed(Ticket::OPENING, failure) => *failure,
        event => panic!("{event:?}"),
    }
}

#[test]
fn the_login_precedes_the_probe_and_every_other_request() {
    let server = server_with_login(Login::new("foo", "bar"));
    let mut connection = connect_to(&server);
    assert_eq!(take_sent_output(&mut connection), LOGIN);
    assert_eq!(connection.poll(), ConnectionEvent::NeedsBytes(1));
    assert!(!connection.accepts_requests());
    connection.wire_mut().feed(b"STORED\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::NeedsBytes(1));
    assert_eq!(take_sent_output(&mut connection), "mn\r\n");
    connection.wire_mut().feed(b"MN\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::Ready);
    // The next connection to a server whose commands are known only logs in.
    let mut connection = connect_to(&server);
    assert_eq!(take_sent_output(&mut connection), LOGIN);
    connection.wire_mut().feed(b"STORED\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::Ready);
    assert!(connection.accepts_requests() && connection.is_ready_for_reuse());
}

#[test]
fn a_refused_login_is_an_error_of_its_own_and_ends_the_connection() {
    let server = server_with_login(Login::new("foo", "baz"));
    for line in ["CLIENT_ERROR authentication failure", "ERROR"] {
        let mut connection = connect_to(&server);
        take_sent_output(&mut connection);
        connection.wire_mut().feed(format!("{line}\r\n").as_bytes());
        let failure = expect_failure(connection.poll());
        assert!(matches!(failure.error, Error::LoginRefused { .. }), "{line}");
        assert_eq!(failure.decision, RetryDecision::Fail(HealthEffect::Bad));
        assert!(connection.must_close() && !connection.accepts_requests());
        assert!(!server.health.is_down(), "{line}");
    }
    let mut connection = connect_to(&server);
    connection.wire_mut().feed(b"CLIENT_ERROR authentication failure\r\n");
    expect_failure(connection.poll());
    assert!(server.health.is_down(), "after three the calls fail at once");
}

#[test]
fn a_connection_lost_during_the_login_does_not_count_as_classic_text() {
    let server = server_with_login(Login::new("foo", "bar"));
    let mut connection = connect_to(&server);
    take_sent_output(&mut connection);
    connection.handle_disconnect(true, "closed");
    let failure = expect_failure(connection.poll());
    assert!(matches!(failure.error, Error::Unavailable(..)));
    assert_eq!(failure.decision, RetryDecision::Fail(HealthEffect::Bad));
    // After the login a close on the probe still means classic text.
    let mut connection = connect_to(&server);
    take_sent_output(&mut connection);
    connection.wire_mut().feed(b"STORED\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::NeedsBytes(1));
    take_sent_output(&mut connection);
    connection.handle_disconnect(true, "closed");
    assert_eq!(expect_failure(connection.poll()).decision, RetryDecision::RetryClassic);
    assert_eq!(server.command_set(), None::<CommandSet>);
}

#[test]
fn an_unexpected_reply_to_a_login_is_a_protocol_fault() {
    let server = server_with_login(Login::new("foo", "bar"));
    let mut connection = connect_to(&server);
    take_sent_output(&mut connection);
    connection.wire_mut().feed(b"VALUE a 0 1\r\n");
    let failure = expect_failure(connection.poll());
    assert!(matches!(failure.error, Error::Protocol { .. }));
}

#[test]
fn without_a_password_the_call_ends_with_the_reason_and_nothing_is_sent() {
    let login = Login::with_provider("foo", || Err("the vault is closed".to_owned()));
    let server = server_with_login(login);
    let mut connection = connect_to(&server);
    assert_eq!(connection.wire().output(), b"");
    let failure = expect_failure(connection.poll());
    assert!(failure.error.to_string().contains("the vault is closed"));
    assert!(connection.must_close() && !server.health.is_down());
    assert_eq!(server.probe_request_and_reply(), None);
}

#[test]
fn a_probe_of_a_server_with_a_login_is_the_login() {
    let server = server_with_login(Login::new("foo", "bar"));
    let (request, reply_start) = server.probe_request_and_reply().unwrap();
    assert_eq!((request.as_slice(), reply_start), (LOGIN.as_bytes(), &b"STORED\r\n"[..]));
}

#[test]
fn a_connection_that_is_closing_does_not_open_by_a_late_reply() {
    let server = ServerState::new("s".to_owned());
    let mut wire = Wire::new(None, 1000, 1);
    let mut lifecycle = Lifecycle::new();
    assert_eq!(lifecycle.begin(false, &server, &mut wire), Ok(OpeningStep::AwaitsReply));
    lifecycle.begin_closing();
    assert_eq!(lifecycle.finish_probe(true, &server), None);
    assert_eq!(server.command_set(), Some(CommandSet::Meta), "the next connection knows it");
    assert_eq!(lifecycle.finish_login(&server, &mut wire), None);
    assert!(!lifecycle.is_open() && !lifecycle.is_closed());
    assert!(lifecycle.close());
    lifecycle.begin_closing();
    assert!(lifecycle.is_closed());
}

#[test]
fn a_connection_without_a_probe_reports_once_that_it_takes_requests() {
    let server = ServerState::new("s".to_owned());
    let mut lifecycle = Lifecycle::new();
    let step = lifecycle.begin(true, &server, &mut Wire::new(None, 1000, 1));
    assert_eq!(step, Ok(OpeningStep::Ready));
    assert!(lifecycle.is_open() && lifecycle.take_must_report_ready());
    assert!(!lifecycle.take_must_report_ready());
    assert_eq!(server.command_set(), None);
    lifecycle.confirm_presumed_classic(&server);
    assert_eq!(server.command_set(), Some(CommandSet::Classic));
}
