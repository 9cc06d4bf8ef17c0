//! Calls driven to their end by blocking: one at a time, or one request to every server.

use std::sync::Arc;
use std::time::Duration;

use super::{Budget, Client};
use crate::call::{Call, State};
use crate::costs::{Class, Part, Spent};
use crate::engine::interpret::refused;
use crate::engine::operation::Operation;
use crate::error::Error;
use crate::pipeline::{Answer, Pipeline};
use crate::pool::Server;
use crate::quiet::Gathered;
use crate::request::Request;

/// What each server answered, by its name.
pub type Answers = Vec<(String, Result<Answer, Error>)>;

impl Client {
    /// Makes a call about one key and returns what its answer means; its cost is counted.
    pub fn run<O: Operation>(
        &self,
        operation: &O,
        budget: &Budget<'_>,
    ) -> Result<O::Output, Error> {
        let server = self.server_of(operation.key().bytes)?;
        let requests = [operation.request()];
        if let [request] = &requests
            && request.is_noreply()
            && self.gather(operation, request, &server, budget)?
        {
            return Ok(operation.unasked());
        }
        let mut call = Call::new(server, &requests, budget.started, budget.deadline);
        let mut reading = Reading::new(operation);
        drive(&mut call, budget, &mut |answer, pipeline, server| {
            reading.take(answer, pipeline, &server.name);
            Ok(())
        })?;
        reading.conclude(self, &call, budget.spent)
    }

    /// Puts down a write that nobody waits for, if it is one of a row; its cost is counted.
    fn gather<O: Operation>(
        &self,
        operation: &O,
        request: &Request<'_>,
        server: &Arc<Server>,
        budget: &Budget<'_>,
    ) -> Result<bool, Error> {
        let mut spent = budget.spent;
        match server.gather(request, budget.started) {
            Gathered::No => return Ok(false),
            Gathered::Kept | Gathered::KeptWithoutSender => {}
            Gathered::Full => {
                server.send_gathered(budget.started, budget.deadline, budget.go_on)?;
                spent.add_time(Part::Wire, budget.started.elapsed());
            }
        }
        if self.options().costs {
            self.costs().count_as(operation.class(), 0, &spent);
        }
        Ok(true)
    }

    /// Asks every server the same, and returns each one's name and answer.
    ///
    /// An error is [`Error::Interrupted`], or tells of the client or the request: another is its server's answer.
    pub fn ask_all(&self, request: Request<'_>, budget: &Budget<'_>) -> Result<Answers, Error> {
        self.check_open()?;
        request.check()?;
        let requests = [request];
        let ask = |(_, server): (usize, Arc<Server>)| {
            let mut answer = Err(Error::Closed);
            let asked = ask_server(server.clone(), &requests, budget, &mut |reply, _| {
                answer = refused(reply, &server.name);
                Ok(())
            });
            match asked {
                Err(Error::Interrupted) => Err(Error::Interrupted),
                asked => Ok((server.name.clone(), asked.and(answer))),
            }
        };
        self.servers().into_iter().map(ask).collect()
    }

    /// Counts a finished call that brought so many bytes of values, with what else was `spent` on it.
    pub fn count(&self, class: Class, found_bytes: usize, call: &Call<'_>, mut spent: Spent) {
        if self.options().costs {
            // The time of a write began before its value was made, which is neither waiting nor wire.
            let made = Duration::from_nanos(spent.of(Part::Serialise) + spent.of(Part::Compress));
            let (waited, wire) = (call.waited(), call.wire_time());
            let made_after = made.saturating_sub(waited);
            spent.add_time(Part::Wait, waited.saturating_sub(made));
            spent.add_time(Part::Wire, wire.saturating_sub(made_after));
            self.costs().count_as(class, found_bytes, &spent);
        }
    }
}

/// Makes requests to one server and hands over each reply in order.
pub(super) fn ask_server(
    server: Arc<Server>,
    requests: &[Request<'_>],
    budget: &Budget<'_>,
    each: &mut dyn FnMut(Answer, &Pipeline) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut call = Call::new(server, requests, budget.started, budget.deadline);
    drive(&mut call, budget, &mut |answer, pipeline, _| {
        each(answer, pipeline)
    })
}

/// The answer to an operation while its call is driven.
pub(crate) struct Reading<'o, O: Operation> {
    operation: &'o O,
    result: Option<Result<O::Output, Error>>,
    found_bytes: usize,
}

impl<'o, O: Operation> Reading<'o, O> {
    pub(crate) fn new(operation: &'o O) -> Self {
        Self {
            operation,
            result: None,
            found_bytes: 0,
        }
    }

    /// Takes the reply.
    pub(crate) fn take(&mut self, answer: Answer, pipeline: &Pipeline, server: &str) {
        let found = pipeline.found().iter().map(|found| found.value_bytes);
        self.found_bytes += found.sum::<usize>();
        self.result = Some(self.operation.read(answer, pipeline, server));
    }

    /// Counts the call, which is finished, and returns what it brought.
    pub(crate) fn conclude(
        self,
        client: &Client,
        call: &Call<'_>,
        spent: Spent,
    ) -> Result<O::Output, Error> {
        client.count(self.operation.class(), self.found_bytes, call, spent);
        self.result.unwrap_or_else(|| Ok(self.operation.unasked()))
    }
}

/// Drives a call to its end.
pub(crate) fn drive(
    call: &mut Call<'_>,
    budget: &Budget<'_>,
    each: &mut impl FnMut(Answer, &Pipeline, &Arc<Server>) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        match call.run()? {
            State::Reply(answer) => {
                let pipeline = call.pipeline().ok_or(Error::Closed)?;
                each(answer, pipeline, call.server())?;
                call.next();
            }
            State::Finished => return Ok(()),
            State::Interrupted if (budget.go_on)() => {}
            State::Interrupted => return Err(Error::Interrupted),
            State::Body(_) | State::Waiting => {} // neither is given to a call driven alone like this
        }
    }
}
