//! Conversations of one connection with a server, byte by byte.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::StoreMode;

use super::{Attempt, Connection, ConnectionEvent, NoReplyReason, Ticket};
use crate::engine::health::HealthEffect;
use crate::engine::retry::RetryDecision;
use crate::engine::server::ServerState;
use crate::error::{Error, Phase};
use crate::pipeline::Reply;
use crate::request::{CommandSet, Item, Request};

const SECOND: Duration = Duration::from_secs(1);

fn key(bytes: &[u8]) -> WireKey<'_> {
    WireKey { bytes, is_base64: false }
}

fn get(bytes: &[u8]) -> Request<'_> {
    Request::Get { key: key(bytes), cas: false }
}

fn set(bytes: &[u8], noreply: bool) -> Request<'_> {
    Request::Store {
        mode: StoreMode::Set,
        item: Item { key: key(bytes), flags: 0, body: b"v" },
        exptime: 0,
        noreply,
    }
}

fn attempt_within(time_allowed: Duration) -> Attempt {
    let started = Instant::now();
    Attempt { started, deadline: started + time_allowed, is_retry: false }
}

fn meta_server() -> Arc<ServerState> {
    let server = ServerState::new("s".to_owned());
    server.learn_command_set(CommandSet::Meta);
    Arc::new(server)
}

/// A connection to `server` that takes requests; its opaques begin with 1.
fn open(server: &Arc<ServerState>) -> Connection {
    let mut connection = Connection::new(server.clone(), 1000, 1);
    connection.handle_connected(false, attempt_within(SECOND));
    assert_eq!(connection.poll(), ConnectionEvent::Ready);
    connection
}

fn submit(connection: &mut Connection, request: Request<'_>) -> Option<Ticket> {
    connection.submit(&[request], attempt_within(SECOND)).unwrap()
}

/// Takes all output as sent.
fn take_sent_output(connection: &mut Connection) -> String {
    let out = connection.wire().output().to_vec();
    connection.wire_mut().mark_sent(out.len());
    String::from_utf8(out).unwrap()
}

fn expect_failure(event: ConnectionEvent) -> (Ticket, Error, RetryDecision) {
    match event {
        ConnectionEvent::Failed(ticket, failure) => (ticket, failure.error, failure.decision),
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_server_is_probed_once_for_its_command_set() {
    let server = Arc::new(ServerState::new("s".to_owned()));
    let mut connection = Connection::new(server.clone(), 1000, 1);
    connection.handle_connected(false, attempt_within(SECOND));
    assert!(!connection.accepts_requests());
    assert_eq!(take_sent_output(&mut connection), "mn\r\n");
    connection.wire_mut().feed(b"MN\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::Ready);
    assert_eq!(server.command_set(), Some(CommandSet::Meta));
    open(&server);
}

#[test]
fn a_server_that_closes_on_the_probe_counts_as_classic_once_it_replies() {
    let server = Arc::new(ServerState::new("s".to_owned()));
    let mut connection = Connection::new(server.clone(), 1000, 1);
    connection.handle_connected(false, attempt_within(SECOND));
    take_sent_output(&mut connection);
    connection.handle_disconnect(true, "closed");
    let (ticket, _, decision) = expect_failure(connection.poll());
    assert_eq!((ticket, decision), (Ticket::OPENING, RetryDecision::RetryClassic));
    let mut connection = Connection::new(server.clone(), 1000, 1);
    connection.handle_connected(true, attempt_within(SECOND));
    assert_eq!(connection.poll(), ConnectionEvent::Ready);
    submit(&mut connection, Request::Version);
    assert_eq!(server.command_set(), None);
    connection.wire_mut().feed(b"VERSION 1\r\n");
    assert!(matches!(connection.poll(), ConnectionEvent::Reply(..)));
    assert_eq!(connection.poll(), ConnectionEvent::Idle);
    assert_eq!(server.command_set(), Some(CommandSet::Classic));
}

#[test]
fn replies_go_to_their_calls_in_order() {
    let mut connection = open(&meta_server());
    let first_ticket = submit(&mut connection, get(b"a")).unwrap();
    let second_ticket = submit(&mut connection, get(b"b")).unwrap();
    assert_eq!(take_sent_output(&mut connection), "get a\r\nget b\r\n");
    connection.wire_mut().feed(b"VALUE a 0 1\r\n1\r\nEND\r\nEND\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::Reply(first_ticket, Reply::Values));
    let found = connection.wire().pipeline().found_values()[0];
    assert_eq!(connection.wire().pipeline().body(&found), b"1");
    assert_eq!(connection.poll(), ConnectionEvent::Reply(second_ticket, Reply::Values));
    assert!(connection.wire().pipeline().found_values().is_empty());
    assert_eq!(connection.poll(), ConnectionEvent::Idle);
    assert!(connection.is_idle() && connection.is_ready_for_reuse());
}

#[test]
fn a_call_of_several_requests_gets_all_its_replies() {
    let mut connection = open(&meta_server());
    let keys = [key(b"a"), key(b"b")];
    let requests = [Request::DeleteMany { keys: &keys }, get(b"c")];
    let ticket = connection.submit(&requests, attempt_within(SECOND)).unwrap();
    take_sent_output(&mut connection);
    connection.wire_mut().feed(b"HD O1 ka\r\nNF O2 kb\r\n");
    for _ in 0..2 {
        assert!(
            matches!(connection.poll(), ConnectionEvent::Reply(replied_ticket, _) if Some(replied_ticket) == ticket)
        );
    }
    assert_eq!(connection.poll(), ConnectionEvent::NeedsBytes(1));
    assert!(!connection.is_ready_for_reuse());
    connection.handle_disconnect(true, "closed");
    let (_, _, decision) = expect_failure(connection.poll());
    assert_eq!(
        decision,
        RetryDecision::Fail(HealthEffect::Bad),
        "a part of the reply was received"
    );
}

#[test]
fn a_call_past_its_deadline_ends_and_its_reply_is_discarded() {
    let server = meta_server();
    let mut connection = open(&server);
    let late_ticket = connection.submit(&[set(b"a", false)], attempt_within(SECOND)).unwrap();
    let other_ticket =
        connection.submit(&[get(b"b")], attempt_within(9 * SECOND)).unwrap().unwrap();
    take_sent_output(&mut connection);
    let deadline = connection.next_deadline().unwrap();
    connection.tick(deadline);
    let (ticket, error, _) = expect_failure(connection.poll());
    assert_eq!(Some(ticket), late_ticket);
    assert!(matches!(error, Error::Deadline(context)
        if context.phase == Phase::Read && !context.retry_is_safe));
    assert!(!connection.accepts_requests() && !connection.must_close());
    assert!(connection.next_deadline().unwrap() > deadline);
    connection.wire_mut().feed(b"HD O1 ka\r\nEND\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::Reply(other_ticket, Reply::Values));
    assert_eq!(connection.poll(), ConnectionEvent::Idle);
    assert!(connection.must_close());
    assert_eq!(server.uncertain.take_all(), [key(b"a").into()]);
}

#[test]
fn a_call_past_its_deadline_that_was_not_sent_is_never_sent() {
    let server = meta_server();
    let mut connection = open(&server);
    submit(&mut connection, set(b"a", false));
    connection.tick(connection.next_deadline().unwrap());
    let (_, error, _) = expect_failure(connection.poll());
    assert!(matches!(error, Error::Deadline(context)
        if context.phase == Phase::Write && context.retry_is_safe));
    assert!(connection.must_close() && connection.wire().output().is_empty());
    drop(connection);
    assert!(server.uncertain.take_all().is_empty());
}

#[test]
fn a_stale_connection_is_replaced_and_a_new_one_is_not() {
    let server = meta_server();
    for (is_reused, is_read, is_retried) in
        [(true, true, true), (false, true, false), (true, false, false)]
    {
        let mut connection = open(&server);
        if is_reused {
            connection.mark_reused();
        }
        let request = if is_read { get(b"a") } else { set(b"a", false) };
        submit(&mut connection, request);
        take_sent_output(&mut connection);
        connection.handle_disconnect(false, "reset");
        let (_, error, decision) = expect_failure(connection.poll());
        assert!(matches!(error, Error::Unavailable(context, _)
            if context.retry_is_safe == is_read));
        assert_eq!(decision == RetryDecision::Retry, is_retried);
        assert_eq!(server.uncertain.take_all().is_empty(), is_read);
        assert!(connection.must_close());
    }
}

#[test]
fn a_second_attempt_is_the_last() {
    let mut connection = open(&meta_server());
    connection.mark_reused();
    let mut attempt = attempt_within(SECOND);
    attempt.is_retry = true;
    connection.submit(&[get(b"a")], attempt).unwrap();
    take_sent_output(&mut connection);
    connection.handle_disconnect(true, "closed");
    let (_, _, decision) = expect_failure(connection.poll());
    assert_eq!(decision, RetryDecision::Fail(HealthEffect::Bad));
}

#[test]
fn uncertain_keys_are_removed_before_the_next_call() {
    let server = meta_server();
    server.uncertain.add([key(b"a").into()]);
    let mut connection = open(&server);
    submit(&mut connection, get(b"b"));
    assert_eq!(take_sent_output(&mut connection), "md a O1 q\r\nmn\r\nget b\r\n");
    drop(connection);
    assert_eq!(server.uncertain.take_all(), [key(b"a").into()], "it was not acknowledged");
    server.uncertain.add([key(b"a").into()]);
    let mut connection = open(&server);
    submit(&mut connection, get(b"b"));
    take_sent_output(&mut connection);
    connection.wire_mut().feed(b"MN\r\nEND\r\n");
    assert!(matches!(connection.poll(), ConnectionEvent::Reply(..)));
    assert_eq!(connection.poll(), ConnectionEvent::Idle);
    drop(connection);
    assert!(server.uncertain.take_all().is_empty());
}

#[test]
fn a_removal_in_flight_is_repeated_by_the_next_call_if_its_connection_is_closing() {
    for (command_set, expected_output) in [
        (CommandSet::Meta, "md a O1 q\r\nmn\r\nget b\r\n"),
        (CommandSet::Classic, "delete a noreply\r\nget b\r\n"),
    ] {
        let server = Arc::new(ServerState::new("s".to_owned()));
        server.learn_command_set(command_set);
        server.uncertain.add([key(b"a").into()]);
        let mut late_connection = open(&server);
        submit(&mut late_connection, get(b"b"));
        assert_eq!(take_sent_output(&mut late_connection), expected_output);
        late_connection.tick(Instant::now() + SECOND);
        let mut next_connection = open(&server);
        submit(&mut next_connection, get(b"b"));
        assert_eq!(take_sent_output(&mut next_connection), expected_output, "{command_set:?}");
    }
}

#[test]
fn quiet_writes_are_acknowledged_or_counted() {
    let server = meta_server();
    let failure_count = || server.noreply_failures.load(Ordering::Relaxed);
    let mut connection = open(&server);
    assert_eq!(submit(&mut connection, set(b"a", true)), None);
    assert_eq!(submit(&mut connection, set(b"b", true)), None);
    connection.request_acknowledgement();
    assert!(take_sent_output(&mut connection).ends_with("mn\r\n"));
    assert!(connection.is_ready_for_reuse(), "another call may follow");
    connection.wire_mut().feed(b"NS O2 kb\r\nMN\r\n");
    assert_eq!(connection.poll(), ConnectionEvent::Idle);
    assert_eq!(failure_count(), 1);
    submit(&mut connection, set(b"c", true));
    take_sent_output(&mut connection);
    connection.handle_disconnect(true, "closed");
    assert_eq!(failure_count(), 2);
    assert_eq!(server.uncertain.take_all(), [key(b"c").into()]);
}

#[test]
fn removal_of_a_missing_uncertain_key_is_not_a_failure() {
    let server = meta_server();
    server.uncertain.add([key(b"a").into()]);
    let mut connection = open(&server);
    submit(&mut connection, set(b"b", true));
    submit(&mut connection, get(b"c"));
    assert!(take_sent_output(&mut connection).ends_with("\r\nmn\r\nget c\r\n"));
    connection.wire_mut().feed(b"NS O1\r\nNF O2\r\nMN\r\nEND\r\n");
    assert!(matches!(connection.poll(), ConnectionEvent::Reply(..)));
    assert_eq!(server.noreply_failures.load(Ordering::Relaxed), 1);
}

#[test]
fn a_refusal_of_a_quiet_write_after_an_acknowledgement_waits_for_the_next_one() {
    let server = meta_server();
    let mut connection = open(&server);
    submit(&mut connection, set(b"a", true));
    connection.request_acknowledgement();
    submit(&mut connection, set(b"b", true));
    take_sent_output(&mut connection);
    connection.wire_mut().feed(b"MN\r\nNS O2\r\n");
    for _ in 0..2 {
        assert_eq!(connection.poll(), ConnectionEvent::Idle);
    }
    assert!(connection.is_ready_for_reuse() && connection.has_unacknowledged_writes());
    submit(&mut connection, get(b"c"));
    assert_eq!(take_sent_output(&mut connection), "mn\r\nget c\r\n");
    connection.wire_mut().feed(b"MN\r\nEND\r\n");
    assert!(matches!(connection.poll(), ConnectionEvent::Reply(..)));
    assert_eq!(server.noreply_failures.load(Ordering::Relaxed), 1);
    assert_eq!(server.faults.load(Ordering::Relaxed), 0);
    assert!(server.uncertain.take_all().is_empty());
}

#[test]
fn a_server_that_sends_more_than_refusals_of_quiet_writes_breaks_the_protocol() {
    let refusal = b"SERVER_ERROR out of memory storing object\r\n";
    for command_set in [CommandSet::Meta, CommandSet::Binary] {
        let server = Arc::new(ServerState::new("s".to_owned()));
        server.learn_command_set(command_set);
        let mut connection = open(&server);
        submit(&mut connection, set(b"a", true));
        let output_bytes = connection.wire().output().len();
        connection.wire_mut().mark_sent(output_bytes);
        connection.wire_mut().feed(refusal);
        assert_eq!(connection.poll(), ConnectionEvent::Idle);
        assert!(connection.is_ready_for_reuse());
        for _ in 0..1000 {
            connection.wire_mut().feed(refusal);
            assert_eq!(connection.poll(), ConnectionEvent::Idle);
        }
        assert!(connection.must_close(), "{command_set:?}");
        assert_eq!(server.faults.load(Ordering::Relaxed), 1);
        assert_eq!(server.noreply_failures.load(Ordering::Relaxed), 1);
        assert_eq!(server.uncertain.take_all(), [key(b"a").into()]);
    }
}

#[test]
fn a_quiet_write_fails_once_at_most() {
    let not_stored_response = |opaque| {
        let mut response = vec![0x81, 0x11, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, opaque];
        response.resize(24, 0);
        response
    };
    for (command_set, failed_reply) in
        [(CommandSet::Meta, b"NS O1\r\n".to_vec()), (CommandSet::Binary, not_stored_response(1))]
    {
        let server = Arc::new(ServerState::new("s".to_owned()));
        server.learn_command_set(command_set);
        let mut connection = open(&server);
        submit(&mut connection, set(b"a", true));
        connection.request_acknowledgement();
        connection.wire_mut().feed(&failed_reply);
        assert!(matches!(connection.poll(), ConnectionEvent::NeedsBytes(_)));
        connection.wire_mut().feed(&failed_reply);
        assert_eq!(connection.poll(), ConnectionEvent::Idle);
        assert!(connection.must_close(), "{command_set:?}");
        assert_eq!(server.faults.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_noop_with_the_opaque_of_another_acknowledges_no_quiet_writes() {
    let server = Arc::new(ServerState::new("s".to_owned()));
    server.learn_command_set(CommandSet::Binary);
    let mut connection = open(&server);
    submit(&mut connection, set(b"a", true));
    connection.request_acknowledgement();
    let mut noop = vec![0x81, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    noop.resize(24, 0);
    connection.wire_mut().feed(&noop);
    assert_eq!(connection.poll(), ConnectionEvent::Idle);
    assert!(connection.must_close());
    assert_eq!(server.noreply_failures.load(Ordering::Relaxed), 1);
}

#[test]
fn a_call_unsupported_by_the_command_set_leaves_no_output() {
    let server = Arc::new(ServerState::new("s".to_owned()));
    server.learn_command_set(CommandSet::Classic);
    server.uncertain.add([key(b"a").into()]);
    let mut connection = open(&server);
    let item = |bytes, is_base64| Item { key: WireKey { bytes, is_base64 }, flags: 0, body: b"v" };
    let items = [item(b"b", false), item(b"YyBk", true)];
    let store =
        Request::StoreMany { mode: StoreMode::Set, items: &items, exptime: 0, quiet: false };
    let keys = items.map(|item| item.key);
    for request in [store, Request::DeleteMany { keys: &keys }] {
        let submit_result = connection.submit(&[request], attempt_within(SECOND));
        assert!(matches!(submit_result, Err(Error::Unsupported { .. })));
        // Removed once more by the next call, because no reply to this one will confirm it.
        let keys_taken_again = server.uncertain.take_all();
        assert_eq!(keys_taken_again, [key(b"a").into()]);
        server.uncertain.add(keys_taken_again);
    }
    server.uncertain.take_all();
    submit(&mut connection, get(b"c"));
    let removal = "delete a noreply\r\n";
    assert_eq!(take_sent_output(&mut connection), format!("{removal}{removal}get c\r\n"));
    connection.wire_mut().feed(b"END\r\n");
    assert!(matches!(connection.poll(), ConnectionEvent::Reply(_, Reply::Values)));
}

#[test]
fn a_protocol_fault_is_counted_once() {
    let server = meta_server();
    let mut connection = open(&server);
    submit(&mut connection, get(b"a"));
    take_sent_output(&mut connection);
    connection.wire_mut().feed(b"nonsense\r\n");
    assert!(matches!(connection.poll(), ConnectionEvent::Failed(..)));
    for _ in 0..3 {
        assert_eq!(connection.poll(), ConnectionEvent::Idle);
    }
    assert_eq!(server.faults.load(Ordering::Relaxed), 1);
    assert!(!server.health.is_down());
}

#[test]
fn a_failed_quiet_write_is_either_reported_or_counted() {
    let server = meta_server();
    for is_sent in [false, true] {
        let mut connection = open(&server);
        let (begin_offset, requests) = (connection.wire().appended_bytes(), [set(b"a", true)]);
        connection.submit(&requests, attempt_within(SECOND)).unwrap();
        if is_sent {
            connection.wire_mut().mark_sent(1);
        }
        let failure = connection.fail_quiet(
            &requests,
            attempt_within(SECOND),
            begin_offset,
            NoReplyReason::Deadline,
        );
        assert!(matches!(failure.error, Error::Deadline(context)
            if context.phase == Phase::Write && context.retry_is_safe != is_sent));
        drop(connection);
        assert_eq!(server.noreply_failures.load(Ordering::Relaxed), 0);
        assert_eq!(server.uncertain.take_all().len(), usize::from(is_sent));
    }
}

#[test]
fn buffered_writes_of_which_nothing_was_sent_are_returned_for_a_retry() {
    use crate::engine::pending_writes::PendingWrites;
    let server = meta_server();
    for is_sent in [false, true] {
        let mut connection = open(&server);
        connection.mark_reused();
        let mut pending_writes = PendingWrites::new(&server, 7);
        pending_writes.add_write(&set(b"a", true));
        connection.submit_buffered_writes(b"ms a 1 q O7\r\nv\r\n", pending_writes);
        submit(&mut connection, get(b"b"));
        if is_sent {
            connection.wire_mut().mark_sent(1);
        }
        connection.handle_disconnect(true, "closed");
        let (_, _, decision) = expect_failure(connection.poll());
        assert_eq!(decision, RetryDecision::Retry);
        let unsent = connection.take_unsent_buffered_writes();
        assert_eq!(unsent.is_some(), !is_sent);
        let lost_count = server.noreply_failures.swap(0, Ordering::Relaxed);
        assert_eq!(lost_count, u64::from(is_sent));
        unsent.into_iter().for_each(PendingWrites::drop_uncounted);
        server.uncertain.take_all();
    }
}

#[test]
fn a_reply_that_does_not_fit_ends_all_calls() {
    let server = meta_server();
    let mut connection = open(&server);
    submit(&mut connection, get(b"a"));
    submit(&mut connection, set(b"b", false));
    take_sent_output(&mut connection);
    connection.wire_mut().feed(b"VALUE x 0 1\r\n1\r\nEND\r\n");
    for _ in 0..2 {
        let (_, error, decision) = expect_failure(connection.poll());
        assert!(matches!(error, Error::Protocol { .. }));
        assert_eq!(decision, RetryDecision::Fail(HealthEffect::None));
    }
    assert!(connection.must_close() && !connection.is_ready_for_reuse());
    assert_eq!(server.faults.load(Ordering::Relaxed), 1);
    assert_eq!(server.uncertain.take_all(), [key(b"b").into()]);
}

#[test]
fn a_child_of_a_fork_leaves_what_is_in_flight_to_its_parent() {
    let server = meta_server();
    let mut connection = open(&server);
    submit(&mut connection, set(b"a", true));
    submit(&mut connection, set(b"b", false));
    take_sent_output(&mut connection);
    connection.abandon();
    drop(connection);
    assert!(server.uncertain.take_all().is_empty());
    assert_eq!(server.noreply_failures.load(Ordering::Relaxed), 0);
}

#[test]
fn a_request_unsupported_by_classic_text_leaves_no_output() {
    let server = meta_server();
    server.learn_command_set(CommandSet::Classic);
    let mut connection = open(&server);
    let inspect = Request::Inspect { key: key(b"a") };
    let submit_result = connection.submit(&[inspect], attempt_within(SECOND));
    assert!(matches!(submit_result, Err(Error::Unsupported { .. })));
    assert!(connection.is_idle() && connection.accepts_requests());
    let submit_result = connection.submit(&[get(b"a"), inspect], attempt_within(SECOND));
    assert!(matches!(submit_result, Err(Error::Unsupported { .. })));
    assert!(connection.must_close());
}
