//! The words of the client: each call about one key, as a method that blocks.

use glasscache_protocol::meta::request::{Arithmetic, WireKey};
use glasscache_protocol::text::request::StoreWord;

use super::{Budget, Client, Value};
use crate::error::Error;
use crate::operation::{Calculate, Delete, Get, GetAndTouch, Inspect, Store, Touch};
use crate::outcome::Outcome;
use crate::pipeline::{Answer, MetaAnswer};
use crate::request::{Item, Request};

impl Client {
    /// The value under a key, or `None`.
    pub fn get(
        &self,
        key: WireKey<'_>,
        cas: bool,
        budget: &Budget<'_>,
    ) -> Result<Option<Value>, Error> {
        self.run(&Get { key, cas }, budget)
    }

    /// The value under a key, which then expires at `exptime`.
    pub fn get_and_touch(
        &self,
        key: WireKey<'_>,
        exptime: i64,
        budget: &Budget<'_>,
    ) -> Result<Option<Value>, Error> {
        self.run(&GetAndTouch { key, exptime }, budget)
    }

    /// The value under a key and what the server knows of it.
    pub fn inspect(
        &self,
        key: WireKey<'_>,
        budget: &Budget<'_>,
    ) -> Result<Option<(Value, MetaAnswer)>, Error> {
        self.run(&Inspect { key }, budget)
    }

    /// Stores a value; without waiting for the outcome if `noreply` and it has less than [`QUIET_BYTES_MAX`](crate::QUIET_BYTES_MAX).
    pub fn store(
        &self,
        word: StoreWord,
        item: Item<'_>,
        exptime: i64,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<Outcome, Error> {
        let store = Store::new(word, item, exptime, noreply);
        if let Some(error) = store.refusal(self.options().value_bytes_max) {
            // What is refused must not leave an older value to be read in its place.
            self.delete(item.key, false, budget)?;
            return Err(error);
        }
        self.run(&store, budget)
            .map_err(|error| self.with_limit(error, item.key, budget))
    }

    /// A refusal for length with the server's limit, which its words do not say, if it answers in time.
    fn with_limit(&self, mut error: Error, key: WireKey<'_>, budget: &Budget<'_>) -> Error {
        if let Error::TooLarge { limit, .. } = &mut error
            && *limit == 0
        {
            match self.item_bytes_max(self.place_of(key.bytes), budget) {
                Ok(bytes) => *limit = bytes,
                Err(interrupted) => return interrupted,
            }
        }
        error
    }

    /// The bytes of an item that a server takes at most; 0 if it does not say so in time.
    ///
    /// The only error is [`Error::Interrupted`]: another leaves the limit unknown.
    pub fn item_bytes_max(&self, place: usize, budget: &Budget<'_>) -> Result<u64, Error> {
        let mut limit = 0;
        let asked = self.ask(place, &[SETTINGS], budget, &mut |answer, _| {
            limit = item_bytes_max(&answer).unwrap_or(0);
            Ok(())
        });
        match asked {
            Ok(()) => Ok(limit),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(_) => Ok(0),
        }
    }

    /// Removes a key; whether it was there.
    pub fn delete(
        &self,
        key: WireKey<'_>,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<bool, Error> {
        self.run(&Delete { key, noreply }, budget)
    }

    /// Gives a key a new expiry; whether it was there.
    pub fn touch(
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
        self.run(&touch, budget)
    }

    /// Adds to or subtracts from a number; `None` if there is none, or if nobody waits.
    pub fn arithmetic(
        &self,
        key: WireKey<'_>,
        by: Arithmetic,
        noreply: bool,
        budget: &Budget<'_>,
    ) -> Result<Option<u64>, Error> {
        self.run(&Calculate { key, by, noreply }, budget)
    }

    /// Adds to or subtracts from a number, or stores `first` where there is none, which is `initial`.
    ///
    /// The server could do both in one command, but what it makes then has no flags: it would be read as bytes.
    pub fn arithmetic_from(
        &self,
        by: Arithmetic,
        (initial, first): (u64, Item<'_>),
        exptime: i64,
        budget: &Budget<'_>,
    ) -> Result<Option<u64>, Error> {
        for _ in 0..ATTEMPTS {
            let number = self.arithmetic(first.key, by, false, budget)?;
            if number.is_some() {
                return Ok(number);
            }
            if self.store(StoreWord::Add, first, exptime, false, budget)? == Outcome::Done {
                return Ok(Some(initial));
            }
        }
        Ok(None)
    }
}

/// How often a number is looked for that another makes and removes again.
const ATTEMPTS: usize = 3;

/// What a server is asked for the limit that its refusals do not say.
pub(crate) const SETTINGS: Request<'static> = Request::Stats {
    argument: b"settings",
};

/// `item_size_max` of `stats settings`.
pub(crate) fn item_bytes_max(answer: &Answer) -> Option<u64> {
    let Answer::Rows(rows) = answer else {
        return None;
    };
    let row = rows.iter().find(|(name, _)| name == "item_size_max")?;
    row.1.parse().ok()
}
