//! What follows a bulk store after the reply to every batch: values next to one that was refused without being named are
//! stored again, each with a reply of its own, and those that were too large leave no older value.

use std::collections::{BTreeMap, VecDeque};

use glasscache_protocol::text::request::StoreMode;

use super::{Done, Failures, Step, Steps, TooLarge};
use crate::error::Error;
use crate::request::{Item, Request};

/// A value of a bulk store: its index in the call, and the index of its server.
pub(crate) type Indices = (usize, usize);

/// The items of a bulk store, wherever they are kept.
pub trait Items {
    /// The item at an index.
    fn item(&self, index: usize) -> Option<Item<'_>>;
}

impl Items for &[Item<'_>] {
    fn item(&self, index: usize) -> Option<Item<'_>> {
        self.get(index).copied()
    }
}

/// The steps after a bulk store; they end with the failures in the order of the call, or are interrupted.
#[derive(Debug)]
pub struct StoreManySteps<I> {
    items: I,
    /// On which condition, and with which expiry, they are stored.
    how: (StoreMode, i64),
    again: VecDeque<Indices>,
    failed: VecDeque<(Indices, Error)>,
    refused: Option<(Indices, TooLarge)>,
    /// The limits that servers have reported, by slot.
    limits: BTreeMap<usize, u64>,
    ends: Result<Failures, Error>,
}

impl<I: Items> StoreManySteps<I> {
    /// Follows a store of `items`, of which some are to be stored `again` and some have `failed`.
    pub(crate) fn new(
        items: I,
        how: (StoreMode, i64),
        again: VecDeque<Indices>,
        failed: VecDeque<(Indices, Error)>,
    ) -> Self {
        let mut steps = Self {
            items,
            how,
            again,
            failed,
            refused: None,
            limits: BTreeMap::new(),
            ends: Ok(Vec::new()),
        };
        steps.take_next_refusal();
        steps
    }

    /// Continues with the next failure that needs steps, once nothing is to be stored again.
    fn take_next_refusal(&mut self) {
        while self.again.is_empty() && self.refused.is_none() {
            let Some((indices, mut error)) = self.failed.pop_front() else {
                return;
            };
            match (&mut error, self.items.item(indices.0)) {
                (Error::TooLarge { limit, .. }, Some(item)) => {
                    if *limit == 0 {
                        *limit = self.limits.get(&indices.1).copied().unwrap_or(0);
                    }
                    self.refused = Some((indices, TooLarge::new(item.key, error)));
                }
                _ => self.fail(indices, error),
            }
        }
    }

    fn fail(&mut self, (index, _): Indices, error: Error) {
        if let Ok(failures) = &mut self.ends {
            failures.push((index, error));
        }
    }
}

impl<I: Items> Steps for StoreManySteps<I> {
    type Output = Result<Failures, Error>;

    fn step(&self) -> Option<Step<'_>> {
        match (&self.ends, &self.refused) {
            (Err(_), _) => None,
            (_, Some((_, steps))) => steps.step(),
            _ => {
                let item = self.items.item(self.again.front()?.0)?;
                let (word, exptime) = self.how;
                let noreply = false;
                let request = Request::Store {
                    word,
                    item,
                    exptime,
                    noreply,
                };
                let key = item.key;
                Some(Step { key, request })
            }
        }
    }

    fn take(&mut self, done: Result<Done, Error>) {
        if done == Err(Error::Interrupted) {
            self.ends = Err(Error::Interrupted);
            return;
        }
        if let Some((indices, mut steps)) = self.refused.take() {
            steps.take(done);
            if steps.step().is_some() {
                self.refused = Some((indices, steps));
                return;
            }
            let error = steps.finish();
            if let Error::TooLarge { limit, .. } = error {
                self.limits.insert(indices.1, limit);
            }
            self.fail(indices, error);
        } else if let (Some(indices), Err(error)) = (self.again.pop_front(), done) {
            self.failed.push_back((indices, error));
        }
        self.take_next_refusal();
    }

    fn finish(self) -> Self::Output {
        let mut failures = self.ends?;
        failures.sort_by_key(|(index, _)| *index);
        Ok(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use glasscache_protocol::meta::request::WireKey;

    const HOW: (StoreMode, i64) = (StoreMode::Set, 0);

    fn item(key: &'static [u8]) -> Item<'static> {
        let is_base64 = false;
        Item {
            key: WireKey {
                bytes: key,
                is_base64,
            },
            flags: 0,
            body: b"body",
        }
    }

    fn too_large(limit: u64) -> Error {
        Error::TooLarge {
            key: "k".into(),
            bytes: 4,
            limit,
        }
    }

    /// The requests of all steps as `what key`, and what came of them.
    fn run(
        mut steps: StoreManySteps<&[Item<'_>]>,
        mut respond: impl FnMut(&str) -> Result<Done, Error>,
    ) -> (Vec<String>, Result<Failures, Error>) {
        let mut requests = Vec::new();
        while let Some(step) = steps.step() {
            let what = match step.request {
                Request::Store { .. } => "store",
                Request::Delete { .. } => "delete",
                Request::Stats { .. } => "limit",
                request => panic!("{request:?}"),
            };
            let request = format!("{what} {}", String::from_utf8_lossy(step.key.bytes));
            let done = respond(&request);
            requests.push(request);
            steps.take(done);
        }
        (requests, steps.finish())
    }

    #[test]
    fn a_refused_value_is_removed_and_the_limit_of_its_server_queried_once() {
        let items = [item(b"a"), item(b"b"), item(b"c"), item(b"d")];
        let again = VecDeque::from([(0, 5), (1, 5), (2, 5)]);
        let failed = VecDeque::from([((3, 0), too_large(9))]);
        let steps = StoreManySteps::new(&items[..], HOW, again, failed);
        let (requests, failures) = run(steps, |what| match what {
            "store b" => Ok(Done::Outcome(Outcome::Done)),
            "store a" | "store c" => Err(too_large(0)),
            "limit c" | "limit a" => Ok(Done::ItemBytesMax(3)),
            _ => Ok(Done::Outcome(Outcome::NotFound)),
        });
        let stores = ["store a", "store b", "store c"];
        let rest = ["delete d", "delete a", "limit a", "delete c"];
        assert_eq!(requests, [&stores[..], &rest[..]].concat());
        let (own, server) = (too_large(9), too_large(3));
        assert_eq!(
            failures,
            Ok(vec![(0, server.clone()), (2, server), (3, own)])
        );
    }

    #[test]
    fn other_failures_need_no_step_and_an_interruption_ends_all() {
        let items = [item(b"a"), item(b"b")];
        let failed = VecDeque::from([((1, 0), Error::Closed)]);
        let steps = StoreManySteps::new(&items[..], HOW, VecDeque::new(), failed);
        assert_eq!(
            run(steps, |_| panic!()),
            (vec![], Ok(vec![(1, Error::Closed)]))
        );
        let failed = VecDeque::from([((0, 0), too_large(1)), ((1, 0), too_large(1))]);
        let steps = StoreManySteps::new(&items[..], HOW, VecDeque::new(), failed);
        let (requests, failures) = run(steps, |_| Err(Error::Interrupted));
        assert_eq!((requests.len(), failures), (1, Err(Error::Interrupted)));
    }
}
