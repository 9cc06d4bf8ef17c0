//! The requests of one call to several servers, without any waiting: which are to be sent, which are repeated on a
//! fresh connection, how each ended, and when all have.

use std::time::Instant;

use super::connection::Failure;
use super::retry::RetryDecision;
use crate::error::Error;

/// Connections that one request may wait for: each may have gone stale before it is used.
const CONNECTIONS_MAX: u8 = 3;

/// How often a request has waited for a connection, and whether it is sent for the second time.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetryState {
    connection_waits: u8,
    /// It was sent before, on a connection that had gone stale.
    pub is_retry: bool,
}

impl RetryState {
    /// The state of a request that has not waited for a connection yet.
    pub fn new(is_retry: bool) -> Self {
        Self { connection_waits: 0, is_retry }
    }

    /// Counts that it has no connection now; false: it has waited for enough of them, or its time is over.
    pub fn count_connection_wait(&mut self, now: Instant, deadline: Instant) -> bool {
        self.connection_waits += 1;
        self.connection_waits <= CONNECTIONS_MAX && now < deadline
    }
}

/// How a request ended: the replies that were read, and why no more came.
#[derive(Debug, Clone, Default)]
pub struct BulkResult {
    /// How many replies were read.
    pub reply_count: usize,
    /// Why no more came, if more were to come.
    pub error: Option<Error>,
}

impl BulkResult {
    /// The indices of the keys without a reply, each with the error.
    pub(crate) fn failures_without_reply(
        &self,
        key_indices: &[usize],
    ) -> impl Iterator<Item = (usize, Error)> {
        let unreplied_indices = key_indices.iter().skip(self.reply_count);
        let error = self.error.clone();
        unreplied_indices.filter_map(move |&key_index| Some((key_index, error.clone()?)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    Unsent,
    InFlight,
    Ended,
}

#[derive(Debug)]
struct RequestState {
    slot: usize,
    send_state: SendState,
    retry_state: RetryState,
}

/// The requests of one call, each to one server.
#[derive(Debug)]
pub struct BulkRequests {
    requests: Vec<RequestState>,
    results: Vec<BulkResult>,
}

impl BulkRequests {
    /// One request to the server in each of these slots.
    pub fn new(slots: impl Iterator<Item = usize>) -> Self {
        let unsent_request = |slot| RequestState {
            slot,
            send_state: SendState::Unsent,
            retry_state: RetryState::default(),
        };
        let requests: Vec<_> = slots.map(unsent_request).collect();
        Self { results: vec![BulkResult::default(); requests.len()], requests }
    }

    /// The requests that are to be sent, each with the slot of its server.
    pub fn unsent(&self) -> impl Iterator<Item = (usize, usize)> {
        let requests = self.requests.iter().enumerate();
        let unsent = requests.filter(|(_, request)| request.send_state == SendState::Unsent);
        unsent.map(|(request_index, request)| (request_index, request.slot))
    }

    /// Whether all have ended.
    pub fn have_ended(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.all(|request| request.send_state == SendState::Ended)
    }

    /// How each has ended.
    pub fn results(&self) -> &[BulkResult] {
        &self.results
    }

    /// Begins an attempt at a request; `None`: it has no connection, or its time is over, and it may have failed by
    /// that.
    pub fn begin_attempt(
        &mut self,
        request_index: usize,
        has_connection: bool,
        (now, deadline): (Instant, Instant),
        deadline_error: impl FnOnce() -> Error,
    ) -> Option<RetryState> {
        let request = self.requests.get_mut(request_index)?;
        if has_connection && now < deadline {
            request.send_state = SendState::InFlight;
            return Some(request.retry_state);
        }
        if !request.retry_state.count_connection_wait(now, deadline) {
            self.fail(request_index, deadline_error());
        }
        None
    }

    /// The index, among the replies to a request, of the one that comes next; `None` if an error has ended it, so that
    /// what still comes counts for no key.
    pub fn next_reply_index(&self, request_index: usize) -> Option<usize> {
        let result = self.results.get(request_index)?;
        result.error.is_none().then_some(result.reply_count)
    }

    /// Records how a reply to a request was interpreted; it may be the last one. After an error the request stays in
    /// flight until its last reply, so that none of its replies meets the next step of the call.
    pub fn record_reply_result(
        &mut self,
        request_index: usize,
        reply_result: Result<(), Error>,
        is_last: bool,
    ) {
        if let Some(result) = self.results.get_mut(request_index)
            && result.error.is_none()
        {
            match reply_result {
                Ok(()) => result.reply_count += 1,
                Err(error) => result.error = Some(error),
            }
        }
        if let Some(request) = self.requests.get_mut(request_index).filter(|_| is_last) {
            request.send_state = SendState::Ended;
        }
    }

    /// Records that a request got no reply: it is repeated, or it ends.
    pub fn record_failure(&mut self, request_index: usize, failure: Failure) {
        let is_refused = self.next_reply_index(request_index).is_none();
        match (failure.decision, self.requests.get_mut(request_index)) {
            (RetryDecision::Retry | RetryDecision::RetryClassic, Some(request)) if !is_refused => {
                request.send_state = SendState::Unsent;
                request.retry_state.is_retry = true;
            }
            _ => self.fail(request_index, failure.error),
        }
    }

    /// Ends a request by an error, or by the one that a reply to it was.
    pub fn fail(&mut self, request_index: usize, error: Error) {
        if let (Some(request), Some(result)) =
            (self.requests.get_mut(request_index), self.results.get_mut(request_index))
        {
            request.send_state = SendState::Ended;
            result.error.get_or_insert(error);
        }
    }

    /// Ends the unsent requests to a server that could not be connected to.
    pub fn fail_unsent(&mut self, slot: usize, error: &Error) {
        let unsent: Vec<_> =
            self.unsent().filter(|&(_, unsent_slot)| unsent_slot == slot).collect();
        for (request_index, _) in unsent {
            self.fail(request_index, error.clone());
        }
    }
}

#[cfg(test)]
mod tests;
