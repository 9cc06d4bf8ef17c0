//! The words of the tokio client: each call about one key, awaited.

use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::request::StoreWord;

use super::AsyncClient;
use crate::client::{Budget, SETTINGS, Value, item_bytes_max};
use crate::error::Error;
use crate::operation::{Calculate, Delete, Get, GetAndTouch, Inspect, Store, Touch};
use crate::outcome::Outcome;
use crate::pipeline::MetaAnswer;
use crate::request::Item;

impl AsyncClient {
    /// The value under a key, or `None`.
    pub async fn get(
        &self,
        key: WireKey<'_>,
        cas: bool,
        budget: &Budget<'_>,
    ) -> Result<Option<Value>, Error> {
        self.run(&Get { key, cas }, budget).await
    }

    /// The value under a key, which then expires at `exptime`.
    pub async fn get_and_touch(
        &self,
        key: WireKey<'_>,
        exptime: i64,
        budget: &Budget<'_>,
    ) -> Result<Option<Value>, Error> {
        self.run(&GetAndTouch { key, exptime }, budget).await
    }

    /// The value under a key and what the server knows of it.
    pub async fn inspect(
        &self,
        key: WireKey<'_>,
        budget: &Budget<'_>,
    ) -> Result<Option<(Value, MetaAnswer)>, Error> {
        self.run(&Inspect { key }, budget).await
    }

    /// Stores a value; without waiting for the outcome if `noreply` and it has less than [`QUIET_BYTES_MAX`](crate::QUIET_BYTES_MAX).
    pub async fn store(
        &self,
        word: StoreWord,
        item: Item<'_>,
        exptime: i64,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<Outcome, Error> {
        let store = Store::new(word, item, exptime, noreply);
        if let Some(error) = store.refusal(self.core.options().value_bytes_max) {
            // What is refused must not leave an older value to be read in its place.
            self.delete(item.key, false, budget).await?;
            return Err(error);
        }
        let mut stored = self.run(&store, budget).await;
        if let Err(Error::TooLarge { limit, .. }) = &mut stored {
            let place = self.core.place_of(item.key.bytes);
            *limit = self.item_bytes_max(place, budget).await;
        }
        stored
    }

    /// The bytes of an item that a server takes at most; 0 if it does not say so in time.
    pub(super) async fn item_bytes_max(&self, place: usize, budget: &Budget<'_>) -> u64 {
        let Ok(server) = self.core.server(place) else {
            return 0;
        };
        let asked = self.ask(place, server, SETTINGS, budget).await;
        asked.ok().as_ref().and_then(item_bytes_max).unwrap_or(0)
    }

    /// Removes a key; whether it was there.
    pub async fn delete(
        &self,
        key: WireKey<'_>,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<bool, Error> {
        self.run(&Delete { key, noreply }, budget).await
    }

    /// Gives a key a new expiry; whether it was there.
    pub async fn touch(
        &self,
        key: WireKey<'_>,
        exptime: i64,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<bool, Error> {
        let touch = Touch {
            key,
            exptime,
            noreply,
        };
        self.run(&touch, budget).await
    }

    /// Adds to or subtracts from a number; `None` if there is none, or if nobody waits.
    pub async fn arithmetic(
        &self,
        key: WireKey<'_>,
        by: Arithmetic,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<Option<u64>, Error> {
        self.run(&Calculate { key, by, noreply }, budget).await
    }
}
