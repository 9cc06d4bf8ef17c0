//! The steps of a bulk store after the reply to every request: values next to one that was refused without being named
//! are stored again, each with a reply of its own, and those that were too large leave no older value.

use std::collections::{BTreeMap, VecDeque};

use glasscache_protocol::text::request::StoreMode;

use super::{Failures, RefusedValueSteps, Step, StepOutcome, Steps};
use crate::error::Error;
use crate::request::{Item, Request};

/// The index of an item in its bulk store, and the slot of its server.
pub(crate) type IndexAndSlot = (usize, usize);

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
    mode_and_exptime: (StoreMode, i64),
    items_to_retry: VecDeque<IndexAndSlot>,
    failed_items: VecDeque<(IndexAndSlot, Error)>,
    refused_value_steps: Option<(IndexAndSlot, RefusedValueSteps)>,
    /// The limits that servers have reported, by slot.
    limits_by_slot: BTreeMap<usize, u64>,
    result: Result<Failures, Error>,
}

impl<I: Items> StoreManySteps<I> {
    /// Follows a store of `items`, of which `items_to_retry` are stored again and `failed_items` were not stored.
    pub(crate) fn new(
        items: I,
        mode_and_exptime: (StoreMode, i64),
        items_to_retry: VecDeque<IndexAndSlot>,
        failed_items: VecDeque<(IndexAndSlot, Error)>,
    ) -> Self {
        let mut steps = Self {
            items,
            mode_and_exptime,
            items_to_retry,
            failed_items,
            refused_value_steps: None,
            limits_by_slot: BTreeMap::new(),
            result: Ok(Vec::new()),
        };
        steps.take_next_refusal();
        steps
    }

    /// Continues with the next failure that needs steps, once nothing is to be stored again.
    fn take_next_refusal(&mut self) {
        while self.items_to_retry.is_empty() && self.refused_value_steps.is_none() {
            let Some(((index, slot), mut error)) = self.failed_items.pop_front() else {
                return;
            };
            match (&mut error, self.items.item(index)) {
                (Error::TooLarge { limit, .. }, Some(item)) => {
                    if *limit == 0 {
                        *limit = self.limits_by_slot.get(&slot).copied().unwrap_or(0);
                    }
                    self.refused_value_steps =
                        Some(((index, slot), RefusedValueSteps::new(item.key, error)));
                }
                _ => self.fail((index, slot), error),
            }
        }
    }

    fn fail(&mut self, (index, _): IndexAndSlot, error: Error) {
        if let Ok(failures) = &mut self.result {
            failures.push((index, error));
        }
    }
}

impl<I: Items> Steps for StoreManySteps<I> {
    type Output = Result<Failures, Error>;

    fn step(&self) -> Option<Step<'_>> {
        match (&self.result, &self.refused_value_steps) {
            (Err(_), _) => None,
            (_, Some((_, steps))) => steps.step(),
            _ => {
                let &(index, _) = self.items_to_retry.front()?;
                let item = self.items.item(index)?;
                let (mode, exptime) = self.mode_and_exptime;
                let noreply = false;
                let request = Request::Store { mode, item, exptime, noreply };
                let key = item.key;
                Some(Step { key, request })
            }
        }
    }

    fn handle_result(&mut self, step_result: Result<StepOutcome, Error>) {
        if step_result == Err(Error::Interrupted) {
            self.result = Err(Error::Interrupted);
            return;
        }
        if let Some(((index, slot), mut steps)) = self.refused_value_steps.take() {
            steps.handle_result(step_result);
            if steps.step().is_some() {
                self.refused_value_steps = Some(((index, slot), steps));
                return;
            }
            let error = steps.finish();
            if let Error::TooLarge { limit, .. } = error {
                self.limits_by_slot.insert(slot, limit);
            }
            self.fail((index, slot), error);
        } else if let (Some(index_and_slot), Err(error)) =
            (self.items_to_retry.pop_front(), step_result)
        {
            self.failed_items.push_back((index_and_slot, error));
        }
        self.take_next_refusal();
    }

    fn finish(self) -> Self::Output {
        let mut failures = self.result?;
        failures.sort_by_key(|(index, _)| *index);
        Ok(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_outcome::WriteOutcome;
    use glasscache_protocol::meta::request::WireKey;

    const MODE_AND_EXPTIME: (StoreMode, i64) = (StoreMode::Set, 0);

    fn item(key: &'static [u8]) -> Item<'static> {
        let is_base64 = false;
        Item { key: WireKey { bytes: key, is_base64 }, flags: 0, body: b"body" }
    }

    fn too_large(limit: u64) -> Error {
        Error::TooLarge { key: "k".into(), bytes: 4, limit }
    }

    /// The requests of all steps as `request_name key`, and what came of them.
    fn run_steps(
        mut steps: StoreManySteps<&[Item<'_>]>,
        mut respond: impl FnMut(&str) -> Result<StepOutcome, Error>,
    ) -> (Vec<String>, Result<Failures, Error>) {
        let mut requests = Vec::new();
        while let Some(step) = steps.step() {
            let request_name = match step.request {
                Request::Store { .. } => "store",
                Request::Delete { .. } => "delete",
                Request::Stats { .. } => "limit",
                request => panic!("{request:?}"),
            };
            let request_text =
                format!("{request_name} {}", String::from_utf8_lossy(step.key.bytes));
            let step_result = respond(&request_text);
            requests.push(request_text);
            steps.handle_result(step_result);
        }
        (requests, steps.finish())
    }

    #[test]
    fn a_refused_value_is_removed_and_the_limit_of_its_server_queried_once() {
        let items = [item(b"a"), item(b"b"), item(b"c"), item(b"d")];
        let items_to_retry = VecDeque::from([(0, 5), (1, 5), (2, 5)]);
        let failed_items = VecDeque::from([((3, 0), too_large(9))]);
        let steps = StoreManySteps::new(&items[..], MODE_AND_EXPTIME, items_to_retry, failed_items);
        let (requests, failures) = run_steps(steps, |request_text| match request_text {
            "store b" => Ok(StepOutcome::WriteOutcome(WriteOutcome::Done)),
            "store a" | "store c" => Err(too_large(0)),
            "limit c" | "limit a" => Ok(StepOutcome::ItemBytesMax(3)),
            _ => Ok(StepOutcome::WriteOutcome(WriteOutcome::NotFound)),
        });
        let stores = ["store a", "store b", "store c"];
        let later_requests = ["delete d", "delete a", "limit a", "delete c"];
        assert_eq!(requests, [&stores[..], &later_requests[..]].concat());
        let (client_limit, server_limit) = (too_large(9), too_large(3));
        assert_eq!(
            failures,
            Ok(vec![(0, server_limit.clone()), (2, server_limit), (3, client_limit)])
        );
    }

    #[test]
    fn other_failures_need_no_step_and_an_interruption_ends_all() {
        let items = [item(b"a"), item(b"b")];
        let failed_items = VecDeque::from([((1, 0), Error::Closed)]);
        let steps =
            StoreManySteps::new(&items[..], MODE_AND_EXPTIME, VecDeque::new(), failed_items);
        assert_eq!(run_steps(steps, |_| panic!()), (vec![], Ok(vec![(1, Error::Closed)])));
        let failed_items = VecDeque::from([((0, 0), too_large(1)), ((1, 0), too_large(1))]);
        let steps =
            StoreManySteps::new(&items[..], MODE_AND_EXPTIME, VecDeque::new(), failed_items);
        let (requests, failures) = run_steps(steps, |_| Err(Error::Interrupted));
        assert_eq!((requests.len(), failures), (1, Err(Error::Interrupted)));
    }
}
