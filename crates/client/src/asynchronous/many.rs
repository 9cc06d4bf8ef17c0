//! The requests of a bulk call of the tokio client: to all servers at once.

use super::AsyncClient;
use super::driving::{drive, receive_all};
use crate::bulk::{Ask, Ended, Reply, counted, read_held, rounds};
use crate::client::Budget;
use crate::error::Error;

impl AsyncClient {
    /// Makes all requests and hands over each reply; returns how each ask ended.
    pub(crate) async fn ask_many(
        &self,
        asks: &[Ask<'_>],
        budget: &Budget<'_>,
        each: &mut impl FnMut(Reply<'_>) -> Result<(), Error>,
    ) -> Result<Vec<Ended>, Error> {
        let mut ended: Vec<Ended> = asks.iter().map(|_| Ended::default()).collect();
        for round in rounds(asks) {
            let mut permits = Vec::with_capacity(round.len());
            for (place, _) in round.iter().filter_map(|&ask| asks.get(ask)) {
                let server = self.core.server(*place)?;
                permits.push(self.gate(*place, &server, budget).await?);
            }
            let mut calls = self.core.calls(asks, &round, budget)?;
            for (call, _) in &mut calls {
                call.never_wait();
            }
            receive_all(&mut calls).await;
            for (ask, (mut call, error)) in round.into_iter().zip(calls) {
                let Some(end) = ended.get_mut(ask) else {
                    continue;
                };
                end.error = error;
                if end.error.is_none() {
                    let mut read = counted(ask, &mut end.replies, each);
                    end.error = match read_held(&mut call, &mut read) {
                        Ok(()) => drive(&mut call, read).await.err(),
                        Err(error) => Some(error),
                    };
                }
            }
        }
        Ok(ended)
    }
}
