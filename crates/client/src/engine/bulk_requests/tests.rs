//! Requests that wait for connections, are repeated, refused and ended.

use std::time::Duration;

use super::*;
use crate::engine::health::HealthEffect;

fn failure(decision: RetryDecision) -> Failure {
    let error = Error::Interrupted;
    Failure { error, decision }
}

fn unsent_requests(requests: &BulkRequests) -> Vec<(usize, usize)> {
    requests.unsent().collect()
}

#[test]
fn a_request_waits_for_three_connections_and_not_beyond_its_deadline() {
    let now = Instant::now();
    let deadline = now + Duration::from_secs(1);
    let mut requests = BulkRequests::new([7, 8].into_iter());
    for _ in 0..CONNECTIONS_MAX {
        let times = (now, deadline);
        let attempt = requests.begin_attempt(0, false, times, || Error::Closed);
        assert!(attempt.is_none());
        assert_eq!(unsent_requests(&requests), [(0, 7), (1, 8)]);
    }
    let attempt = requests.begin_attempt(0, false, (now, deadline), || Error::Closed);
    assert!(attempt.is_none());
    let too_late = requests.begin_attempt(1, true, (deadline, deadline), || Error::Closed);
    assert!(too_late.is_none() && requests.have_ended());
    let errors = requests.results().iter().map(|result| &result.error);
    assert!(errors.eq([&Some(Error::Closed), &Some(Error::Closed)]));
}

#[test]
fn a_request_whose_connection_was_stale_is_sent_again_as_a_retry() {
    let now = Instant::now();
    let times = (now, now + Duration::from_secs(1));
    let mut requests = BulkRequests::new([7].into_iter());
    let first_attempt = requests.begin_attempt(0, true, times, || Error::Closed);
    assert!(!first_attempt.unwrap().is_retry && unsent_requests(&requests).is_empty());
    requests.record_failure(0, failure(RetryDecision::Retry));
    assert_eq!(unsent_requests(&requests), [(0, 7)]);
    let second_attempt = requests.begin_attempt(0, true, times, || Error::Closed);
    assert!(second_attempt.unwrap().is_retry);
    requests.record_failure(0, failure(RetryDecision::Fail(HealthEffect::Bad)));
    assert!(requests.have_ended());
}

#[test]
fn a_call_ends_with_the_last_reply_to_each_request() {
    let mut requests = BulkRequests::new([7, 8, 8].into_iter());
    for (request_index, is_last) in [(0, false), (1, true), (0, true)] {
        requests.record_reply_result(request_index, Ok(()), is_last);
        assert!(!requests.have_ended());
    }
    requests.fail_unsent(8, &Error::Closed);
    assert!(requests.have_ended());
    let results = requests.results().iter();
    let results: Vec<_> =
        results.map(|result| (result.reply_count, result.error.is_some())).collect();
    assert_eq!(results, [(2, false), (1, false), (0, true)]);
}

#[test]
fn a_refusal_ends_its_request_and_no_other() {
    let now = Instant::now();
    let times = (now, now + Duration::from_secs(1));
    let mut requests = BulkRequests::new([7, 8].into_iter());
    let attempt = requests.begin_attempt(0, true, times, || Error::Closed);
    assert!(attempt.is_some());
    requests.record_reply_result(0, Err(Error::Closed), false);
    assert_eq!(unsent_requests(&requests), [(1, 8)]);
    requests.record_reply_result(1, Ok(()), true);
    assert!(!requests.have_ended(), "its last reply is to come");
    requests.record_reply_result(0, Ok(()), true);
    assert!(requests.have_ended());
    let failures = requests.results()[0].failures_without_reply(&[4, 5]);
    assert!(failures.eq([(4, Error::Closed), (5, Error::Closed)]));
}

#[test]
fn replies_after_a_refusal_count_for_no_key() {
    let mut requests = BulkRequests::new([7].into_iter());
    let replies = [Ok(()), Err(Error::Closed), Ok(()), Ok(())];
    let mut indices = Vec::new();
    for (reply_number, reply) in replies.into_iter().enumerate() {
        indices.push(requests.next_reply_index(0));
        requests.record_reply_result(0, reply, reply_number == 3);
    }
    assert_eq!(indices, [Some(0), Some(1), None, None]);
    assert_eq!(requests.results()[0].reply_count, 1);
    assert!(requests.have_ended());
}

#[test]
fn a_request_that_was_refused_is_not_sent_again_when_its_connection_ends() {
    let mut requests = BulkRequests::new([7].into_iter());
    requests.record_reply_result(0, Err(Error::Closed), false);
    requests.record_failure(0, failure(RetryDecision::Retry));
    assert!(requests.have_ended());
    assert_eq!(requests.results()[0].error, Some(Error::Closed));
}
