//! Bulk calls of the tokio client: all servers at once, each key's failure told.

use std::time::Duration;

use glasscache_protocol::meta::request::WireKey;
use glasscache_protocol::text::request::StoreWord;

use super::AsyncClient;
use super::driving::{drive, receive_all};
use crate::bulk::{
    Ask, Ended, Failures, Indexed, Judged, Reads, Removals, Reply, Stores, counted, read_held,
    rounds,
};
use crate::client::Budget;
use crate::error::Error;
use crate::request::Item;

impl AsyncClient {
    /// Makes all requests and hands over each reply; returns how each ask ended.
    async fn ask_many(
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

    /// Reads many plain keys, without their namespace: place of the key, client flags, bytes.
    pub async fn get_many(
        &self,
        keys: &[&[u8]],
        budget: &Budget<'_>,
    ) -> Result<(Vec<Indexed>, Failures), Error> {
        let reads = Reads::new(&self.core, keys);
        let asks = reads.asks(self.core.keys().namespace, false);
        let (mut values, mut bytes) = (Vec::new(), 0);
        let ended = self
            .ask_many(&asks, budget, &mut |reply| {
                bytes += reads.values(reply, |index, found, body| {
                    values.push((index, found.flags, body.to_vec()));
                    Ok(())
                })?;
                Ok(())
            })
            .await?;
        self.core
            .count_bulk(keys.len(), bytes, budget, Duration::ZERO);
        Ok((values, reads.failures(&ended)))
    }

    /// Stores many values, each answered for itself only if it fails.
    pub async fn store_many(
        &self,
        word: StoreWord,
        items: &[Item<'_>],
        exptime: i64,
        budget: &Budget<'_>,
    ) -> Result<Failures, Error> {
        let stores = Stores::new(&self.core, word, items, exptime);
        for key in stores.refused_keys(items) {
            self.delete(key, false, budget).await?; // no older value is read in its place
        }
        let mut judged = Judged::default();
        let ended = self
            .ask_many(&stores.asks(), budget, &mut |reply| {
                stores.judge(reply, &mut judged);
                Ok(())
            })
            .await?;
        stores.note_unanswered(&ended, &mut judged);
        for (index, store) in stores.again(&judged) {
            if let Err(error) = self.run(&store, budget).await {
                judged.failures.push((index, error));
            }
        }
        for place in judged.places_without_limit(&self.core, items) {
            let limit = self.item_bytes_max(place, budget).await;
            judged.tell_limit(&self.core, items, place, limit);
        }
        self.core
            .count_bulk(items.len(), stores.bytes(), budget, Duration::ZERO);
        Ok(stores.conclude(judged))
    }

    /// Removes many keys; those that were not there are no failures.
    pub async fn delete_many(
        &self,
        keys: &[WireKey<'_>],
        budget: &Budget<'_>,
    ) -> Result<Failures, Error> {
        let removals = Removals::new(&self.core, keys);
        let mut failures = Vec::new();
        let ended = self
            .ask_many(&removals.asks(), budget, &mut |reply| {
                failures.extend(removals.failure(reply));
                Ok(())
            })
            .await?;
        failures.extend(removals.unanswered(&ended));
        self.core.count_bulk(keys.len(), 0, budget, Duration::ZERO);
        Ok(failures)
    }
}
