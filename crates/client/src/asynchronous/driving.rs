//! Calls driven to their end by tokio.
//!
//! The call's own state machine does everything but the waiting. A future that is dropped drops its
//! call, whose connection is closed then unless every reply was read to its end.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tokio::time::timeout_at;

use crate::bulk::CallWithError;
use crate::call::{Call, CallEvent, WaitFor};
use crate::error::Error;
use crate::pipeline::{Pipeline, Reply};
use crate::pool::Server;

/// Drives a call to its end.
pub(crate) async fn drive(
    call: &mut Call<'_>,
    mut handle_reply: impl FnMut(Reply, &Pipeline, &Arc<Server>) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        match next_event(call).await? {
            CallEvent::Reply(reply) => {
                let pipeline = call.pipeline().ok_or(Error::Closed)?;
                handle_reply(reply, pipeline, call.server())?;
                call.release_reply();
            }
            CallEvent::Finished => return Ok(()),
            CallEvent::Body(_) | CallEvent::Interrupted | CallEvent::Waiting => {} // not returned by `next_event`
        }
    }
}

/// Drives calls to several servers until each has received its first reply or has failed.
pub(super) async fn receive_first_replies(calls: &mut [CallWithError<'_>]) {
    let first_replies = calls.iter_mut().map(|(call, error)| async move {
        match next_event(call).await {
            Ok(CallEvent::Reply(reply)) => call.set_unread_reply(reply),
            Ok(_) => {} // a call without a reply
            Err(step_error) => *error = Some(step_error),
        }
    });
    join_all(
        first_replies.map(|first_reply| {
            Box::pin(first_reply) as Pin<Box<dyn Future<Output = ()> + Send + '_>>
        }),
    )
    .await;
}

/// Waits for all futures at once.
async fn join_all<'f>(
    futures: impl Iterator<Item = Pin<Box<dyn Future<Output = ()> + Send + 'f>>>,
) {
    let mut unfinished: Vec<_> = futures.collect();
    poll_fn(|context| {
        unfinished.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if unfinished.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Drives a call until there is a reply, or all were read.
async fn next_event(call: &mut Call<'_>) -> Result<CallEvent, Error> {
    let mut event = call.step()?;
    while event == CallEvent::Waiting {
        let deadline = tokio::time::Instant::from_std(call.deadline());
        event = match call.next_wait() {
            Some(WaitFor::Lookup(host, port)) => {
                let server = call.server().clone();
                match timeout_at(deadline, server.resolver.resolve(&host, port)).await {
                    Ok(resolved) => call.set_resolved(resolved),
                    Err(_) => call.time_out()?,
                }
                call.step()?
            }
            Some(WaitFor::Socket(socket, interest)) => {
                let wake_time = tokio::time::Instant::from_std(call.wait_deadline());
                let mut step_result = Ok(CallEvent::Waiting);
                let step = || {
                    step_result = call.step();
                    !matches!(step_result, Ok(CallEvent::Waiting))
                };
                match timeout_at(wake_time, socket.try_when_ready(interest, step)).await {
                    Ok(Ok(())) => step_result?,
                    Ok(Err(_)) => {
                        call.handle_connection_lost()?; // the runtime in which it was made is gone
                        call.step()?
                    }
                    Err(_) if Instant::now() < call.deadline() => call.step()?, // its next address
                    Err(_) => {
                        call.time_out()?;
                        call.step()?
                    }
                }
            }
            None => call.step()?,
        };
    }
    Ok(event)
}
