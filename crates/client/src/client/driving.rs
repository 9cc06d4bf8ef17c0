//! Calls of the blocking client, driven to their end.

use std::sync::Arc;

use super::{Budget, Client};
use crate::call::{Call, CallEvent};
use crate::costs::{CostPart, TimeSpent, nanoseconds};
use crate::engine::operation::Operation;
use crate::error::Error;
use crate::observe::RequestSummary;
use crate::pipeline::{Pipeline, Reply};
use crate::pool::Server;
use crate::request::Request;
use crate::request_record::RecordedCall;
use crate::write_buffer::BufferResult;

impl Client {
    /// Makes a call about one key and returns what its reply means; its cost is counted.
    pub fn run<O: Operation>(
        &self,
        operation: &O,
        budget: &Budget<'_>,
    ) -> Result<O::Output, Error> {
        let mut reader = ReplyReader::new(operation, self, budget);
        let server = self.server_of(operation.key().bytes)?;
        let requests = [operation.request()];
        if let [request] = &requests
            && request.is_noreply()
            && self.buffer_write(operation, request, &server, budget)?
        {
            return Ok(operation.quiet_output());
        }
        let mut call = Call::new(server, &requests, budget.started, budget.deadline);
        drive(&mut call, budget, &mut |reply, pipeline, server| {
            reader.record_reply(reply, pipeline, &server.name);
            Ok(())
        })?;
        reader.finish_and_count(self, &call, budget.spent)
    }

    /// Enqueues a quiet write, if it is part of a burst; its cost is counted. False: it was not enqueued.
    fn buffer_write<O: Operation>(
        &self,
        operation: &O,
        request: &Request<'_>,
        server: &Arc<Server>,
        budget: &Budget<'_>,
    ) -> Result<bool, Error> {
        let mut spent = budget.spent;
        match server.buffer_write(request, budget.started) {
            BufferResult::SendNow => return Ok(false),
            BufferResult::Enqueued | BufferResult::EnqueuedWithoutSender => {}
            BufferResult::CallerSendsBatch => {
                server.flush_buffered_writes(
                    budget.started,
                    budget.deadline,
                    budget.should_continue,
                )?;
                spent.add_time(CostPart::Wire, budget.started.elapsed());
            }
        }
        self.observe(&RequestSummary {
            key: Some(operation.key()),
            class: operation.class(),
            found_bytes: 0,
            has_value: false,
            spent,
        });
        Ok(true)
    }

    /// Makes requests to one server and hands over each reply in order.
    #[expect(clippy::unused_self, reason = "the tokio client's waits for a permit")]
    pub(crate) fn request_server(
        &self,
        server: Arc<Server>,
        requests: &[Request<'_>],
        budget: &Budget<'_>,
        handle_reply: &mut impl FnMut(Reply, &Pipeline, &Arc<Server>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut call = Call::new(server, requests, budget.started, budget.deadline);
        drive(&mut call, budget, handle_reply)
    }

    /// Passes a finished call to the observers; the times of `call` are added to what else was spent on it.
    #[inline]
    pub fn observe_finished(&self, mut summary: RequestSummary<'_>, call: &Call<'_>) {
        if self.is_observed() {
            // The time of a write began before its value was made, which is neither waiting nor wire.
            let spent = &mut summary.spent;
            let encode_ns = spent.part_ns(CostPart::Serialise) + spent.part_ns(CostPart::Compress);
            let wait_ns = nanoseconds(call.times().wait_time());
            let wire_ns = nanoseconds(call.times().wire_time());
            let encode_ns_after_wait = encode_ns.saturating_sub(wait_ns);
            spent.add(CostPart::Wait, wait_ns.saturating_sub(encode_ns));
            spent.add(CostPart::Wire, wire_ns.saturating_sub(encode_ns_after_wait));
            self.observe(&summary);
        }
    }
}

/// The reply to an operation while its call is driven.
pub(crate) struct ReplyReader<'o, O: Operation> {
    operation: &'o O,
    result: Option<Result<O::Output, Error>>,
    found_bytes: usize,
    has_value: bool,
    recorded_call: RecordedCall<'o>,
}

impl<'o, O: Operation> ReplyReader<'o, O> {
    /// Begins the call, whose record ends with the drop of the reader.
    pub(crate) fn new(operation: &'o O, client: &Client, budget: &Budget<'o>) -> Self {
        Self {
            recorded_call: budget.begin_operation(operation, client.keys()),
            operation,
            result: None,
            found_bytes: 0,
            has_value: false,
        }
    }

    /// Takes the reply.
    pub(crate) fn record_reply(&mut self, reply: Reply, pipeline: &Pipeline, server: &str) {
        self.has_value |= !pipeline.found_values().is_empty();
        let value_bytes = pipeline.found_values().iter().map(|found| found.value_bytes);
        self.found_bytes += value_bytes.sum::<usize>();
        self.result = Some(self.operation.read(reply, pipeline, server));
    }

    /// Counts the finished call and returns its result.
    pub(crate) fn finish_and_count(
        self,
        client: &Client,
        call: &Call<'_>,
        spent: TimeSpent,
    ) -> Result<O::Output, Error> {
        let summary = RequestSummary {
            key: Some(self.operation.key()),
            class: self.operation.class(),
            found_bytes: self.found_bytes,
            has_value: self.has_value,
            spent,
        };
        client.observe_finished(summary, call);
        self.recorded_call.set_size(0, self.found_bytes);
        self.result.unwrap_or_else(|| Ok(self.operation.quiet_output()))
    }
}

/// Drives a call to its end.
pub(crate) fn drive(
    call: &mut Call<'_>,
    budget: &Budget<'_>,
    handle_reply: &mut impl FnMut(Reply, &Pipeline, &Arc<Server>) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        match call.run()? {
            CallEvent::Reply(reply) => {
                let pipeline = call.pipeline().ok_or(Error::Closed)?;
                handle_reply(reply, pipeline, call.server())?;
                call.release_reply();
                if call.has_finished() {
                    return Ok(());
                }
            }
            CallEvent::Finished => return Ok(()),
            CallEvent::Interrupted if (budget.should_continue)() => {}
            CallEvent::Interrupted => return Err(Error::Interrupted),
            CallEvent::Body(_) | CallEvent::Waiting => {} // neither is given to a call driven alone like this
        }
    }
}
