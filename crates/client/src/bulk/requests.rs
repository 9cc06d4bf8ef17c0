//! Requests to several servers at once, and their replies read in order.

use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, receive_first_replies};
use crate::client::{Budget, Client, drive};
use crate::costs::{CallClass, CostPart};
use crate::engine::BulkResult;
use crate::error::Error;
use crate::observe::RequestSummary;
use crate::pipeline::{Pipeline, Reply};
use crate::pool::Server;
use crate::request::Request;

/// A call of a bulk call, and why it failed if it did.
pub type CallWithError<'a> = (Call<'a>, Option<Error>);

/// One request of a bulk call and the slot of its server.
pub type ServerRequest<'a> = (usize, [Request<'a>; 1]);

/// A reply within a bulk call.
#[derive(Debug)]
pub struct BulkReply<'r> {
    /// The index of its request.
    pub request_index: usize,
    /// How many replies that request has had before.
    pub reply_index: usize,
    /// What the server replied.
    pub parsed: Reply,
    /// Where the values are.
    pub pipeline: &'r Pipeline,
    /// The server's name.
    pub server: &'r str,
}

/// The requests of each round: one a server, so that all servers work at once and no call waits for
/// a connection that another call of its own bulk call holds. They begin in the order of their slots,
/// so that no two bulk calls wait for each other.
pub(crate) fn request_rounds(requests: &[ServerRequest<'_>]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for (request_index, (slot, _)) in requests.iter().enumerate() {
        let earlier_count = requests
            .iter()
            .take(request_index)
            .filter(|(request_slot, _)| request_slot == slot)
            .count();
        match rounds.get_mut(earlier_count) {
            Some(round) => round.push(request_index),
            None => rounds.push(vec![request_index]),
        }
    }
    for round in &mut rounds {
        round.sort_by_key(|&request_index| requests.get(request_index).map(|(slot, _)| *slot));
    }
    rounds
}

impl Client {
    /// Sends all requests and passes on each reply; returns how each request ended, or that all were interrupted.
    pub(crate) fn request_many(
        &self,
        requests: &[ServerRequest<'_>],
        budget: &Budget<'_>,
        handle_reply: &mut impl FnMut(BulkReply<'_>) -> Result<(), Error>,
    ) -> Result<Vec<BulkResult>, Error> {
        let mut receive = |calls: &mut [CallWithError<'_>]| {
            while !receive_first_replies(calls) {
                if !(budget.should_continue)() {
                    return Err(Error::Interrupted);
                }
            }
            Ok(())
        };
        self.request_many_with(requests, budget, &mut receive, handle_reply)
    }

    /// As [`Self::request_many`]; `receive` drives the calls with [`receive_first_replies`] and waits in its own way.
    pub(super) fn request_many_with(
        &self,
        requests: &[ServerRequest<'_>],
        budget: &Budget<'_>,
        receive: &mut dyn FnMut(&mut [CallWithError<'_>]) -> Result<(), Error>,
        handle_reply: &mut impl FnMut(BulkReply<'_>) -> Result<(), Error>,
    ) -> Result<Vec<BulkResult>, Error> {
        let mut results: Vec<BulkResult> = requests.iter().map(|_| BulkResult::default()).collect();
        for round in request_rounds(requests) {
            let mut calls = self.create_calls(requests, &round, budget)?;
            receive(&mut calls)?;
            for (request_index, (mut call, error)) in round.into_iter().zip(calls) {
                let Some(bulk_result) = results.get_mut(request_index) else {
                    continue;
                };
                bulk_result.error = error;
                if bulk_result.error.is_none() {
                    let mut handle_counted_reply = handle_and_count_replies(
                        request_index,
                        &mut bulk_result.reply_count,
                        handle_reply,
                    );
                    let first_reply_result =
                        handle_unread_reply(&mut call, &mut handle_counted_reply);
                    bulk_result.error = match first_reply_result
                        .and_then(|()| drive(&mut call, budget, &mut handle_counted_reply))
                    {
                        // Not a failure of a server: the other calls are not waited for either.
                        Err(Error::Interrupted) => return Err(Error::Interrupted),
                        drive_result => drive_result.err(),
                    };
                }
            }
        }
        Ok(results)
    }

    /// The calls of one round, not yet begun.
    pub(crate) fn create_calls<'a>(
        &self,
        requests: &'a [ServerRequest<'a>],
        round: &[usize],
        budget: &Budget<'_>,
    ) -> Result<Vec<CallWithError<'a>>, Error> {
        let round_requests = round.iter().filter_map(|&request_index| requests.get(request_index));
        round_requests
            .map(|(slot, request)| {
                let server = self.server(*slot)?;
                let call = Call::new(server, request, budget.started, budget.deadline);
                Ok((call, None))
            })
            .collect()
    }

    /// Counts a bulk call. Its calls overlap, so its wire time is the time of the whole, less the time for encoding
    /// the values that were sent and `decoding_time`, the time for decoding those that were received.
    pub fn count_bulk(
        &self,
        key_count: usize,
        value_bytes: u64,
        budget: &Budget<'_>,
        decoding_time: Duration,
    ) {
        let summary = RequestSummary {
            key: None,
            class: CallClass::Bulk(key_count, 0),
            found_bytes: value_bytes as usize,
            has_value: false,
            spent: budget.spent,
        };
        self.count_read(summary, budget, decoding_time);
    }

    /// Counts a call by its summary, as [`Self::count_bulk`] does.
    pub(super) fn count_read(
        &self,
        mut summary: RequestSummary<'_>,
        budget: &Budget<'_>,
        decoding_time: Duration,
    ) {
        if self.is_observed() {
            let spent = &mut summary.spent;
            let encode_ns = spent.part_ns(CostPart::Serialise) + spent.part_ns(CostPart::Compress);
            let client_time = decoding_time + Duration::from_nanos(encode_ns);
            let wire_time = budget.started.elapsed().saturating_sub(client_time);
            spent.add_time(CostPart::Deserialise, decoding_time);
            spent.add_time(CostPart::Wire, wire_time);
            self.observe(&summary);
        }
    }
}

/// Passes on replies as those of one request, and counts them.
pub(crate) fn handle_and_count_replies<'e>(
    request_index: usize,
    reply_count: &'e mut usize,
    handle_reply: &'e mut impl FnMut(BulkReply<'_>) -> Result<(), Error>,
) -> impl FnMut(Reply, &Pipeline, &Arc<Server>) -> Result<(), Error> + 'e {
    move |parsed, pipeline, server| {
        let reply_index = *reply_count;
        handle_reply(BulkReply {
            request_index,
            reply_index,
            parsed,
            pipeline,
            server: &server.name,
        })?;
        *reply_count += 1;
        Ok(())
    }
}

/// Reads the reply that [`receive_first_replies`] waited for.
pub(crate) fn handle_unread_reply(
    call: &mut Call<'_>,
    mut handle_reply: impl FnMut(Reply, &Pipeline, &Arc<Server>) -> Result<(), Error>,
) -> Result<(), Error> {
    if let Some(parsed) = call.take_unread_reply() {
        handle_reply(parsed, call.pipeline().ok_or(Error::Closed)?, call.server())?;
        call.release_reply();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_one_request_for_each_server() {
        let requests: Vec<ServerRequest<'_>> =
            [7, 8, 7, 7, 8].map(|slot| (slot, [Request::Version])).into();
        assert_eq!(request_rounds(&requests), [vec![0, 1], vec![2, 4], vec![3]]);
    }
}
