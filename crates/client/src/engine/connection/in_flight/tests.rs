//! Requests that end with their replies, and without.

use std::time::Duration;

use super::*;

const SENT_BYTES: u64 = 10;

fn written_call(begin_offset: u64, reply_count: u32, deadline: Instant) -> WrittenCall {
    WrittenCall {
        attempt: Attempt { started: deadline, deadline, is_retry: false },
        range: ByteRange { begin_offset, end_offset: begin_offset + 5 },
        reply_count,
        is_repeatable: true,
        uncertain_on_loss: None,
    }
}

fn progress() -> WireProgress {
    WireProgress { sent_bytes: SENT_BYTES, has_no_reply_bytes: true, awaits_login: false }
}

#[test]
fn a_request_leaves_with_its_last_reply_and_an_acknowledgement_is_not_awaited_by_a_call() {
    let (server, now) = (ServerState::new("s".to_owned()), Instant::now());
    let mut in_flight = InFlightRequests::new();
    let range = ByteRange { begin_offset: 0, end_offset: 4 };
    in_flight.push_acknowledgement(PendingWrites::default(), Vec::new(), range, false);
    assert!(in_flight.are_all_acknowledgements() && !in_flight.is_empty());
    let ticket = in_flight.push_call(written_call(4, 2, now), None);
    assert!(!in_flight.are_all_acknowledgements());
    let acknowledgement = Reply::Quiet(Vec::new(), Vec::new());
    assert!(matches!(in_flight.receive_reply(&acknowledgement), ReplyUse::Internal));
    in_flight.end_reply(&server.uncertain);
    assert_eq!(in_flight.acknowledgement_count(), 0);
    for is_last in [false, true] {
        assert!(
            matches!(in_flight.receive_reply(&Reply::Values), ReplyUse::Call(to) if to == ticket)
        );
        assert_eq!(in_flight.is_last_reply(), is_last);
        assert!(in_flight.take_unreleased_reply() && !in_flight.take_unreleased_reply());
        in_flight.end_reply(&server.uncertain);
    }
    assert!(in_flight.is_empty());
    assert!(matches!(in_flight.receive_reply(&Reply::Values), ReplyUse::Unrequested));
}

#[test]
fn calls_that_expire_end_once_and_what_was_sent_of_them_is_still_awaited() {
    let (server, now) = (ServerState::new("s".to_owned()), Instant::now());
    let mut in_flight = InFlightRequests::new();
    let sent = in_flight.push_call(written_call(0, 1, now), None);
    in_flight.push_call(written_call(5, 1, now + Duration::from_secs(1)), None);
    let expiry = in_flight.expire(now, progress(), &server);
    assert!(expiry.was_any_sent && !expiry.was_any_unsent);
    assert!(matches!(in_flight.take_failed_call(), Some((ticket, _)) if ticket == sent));
    assert!(!in_flight.has_failed_calls());
    let unsent = in_flight.push_call(written_call(SENT_BYTES, 1, now), None);
    let expiry = in_flight.expire(now, progress(), &server);
    assert!(!expiry.was_any_sent && expiry.was_any_unsent);
    assert!(matches!(in_flight.take_failed_call(), Some((ticket, _)) if ticket == unsent));
    assert!(matches!(in_flight.receive_reply(&Reply::Values), ReplyUse::Internal));
    assert_eq!(in_flight.next_deadline(), Some(now + Duration::from_secs(1)));
}
