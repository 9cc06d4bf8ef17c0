//! The requests of a bulk call of the tokio client: to all servers at once.

use super::driving::{drive, receive_first_replies};
use super::{AsyncClient, acquire_permit};
use crate::bulk::{
    BulkReply, BulkResult, ServerRequest, handle_and_count_replies, handle_unread_reply,
    request_rounds,
};
use crate::client::Budget;
use crate::error::Error;

impl AsyncClient {
    /// Sends all requests and passes on each reply; returns how each request ended.
    pub(crate) async fn request_many(
        &self,
        requests: &[ServerRequest<'_>],
        budget: &Budget<'_>,
        handle_reply: &mut impl FnMut(BulkReply<'_>) -> Result<(), Error>,
    ) -> Result<Vec<BulkResult>, Error> {
        let mut results: Vec<BulkResult> = requests.iter().map(|_| BulkResult::default()).collect();
        for round in request_rounds(requests) {
            let mut permits = Vec::with_capacity(round.len());
            for (slot, _) in round.iter().filter_map(|&request_index| requests.get(request_index)) {
                let server = self.core.server(*slot)?;
                permits.push(acquire_permit(&server, budget).await?);
            }
            let mut calls = self.core.create_calls(requests, &round, budget)?;
            for (call, _) in &mut calls {
                call.set_nonblocking();
            }
            receive_first_replies(&mut calls).await;
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
                    bulk_result.error =
                        match handle_unread_reply(&mut call, &mut handle_counted_reply) {
                            Ok(()) => drive(&mut call, handle_counted_reply).await.err(),
                            Err(error) => Some(error),
                        };
                }
            }
        }
        Ok(results)
    }
}
