//! The steps after a value that was too large for the server or for this client: the older value is removed, so
//! that it is never read instead of the refused one, and the server's limit is queried where it is not known.

use super::step::SETTINGS_REQUEST;
use super::uncertain::OwnedKey;
use super::{Step, StepOutcome, Steps};
use crate::error::Error;
use crate::request::Request;

/// The steps after a refused value; they end with the error that its caller gets.
#[derive(Debug)]
pub struct RefusedValueSteps {
    key: OwnedKey,
    error: Error,
    stage: RefusedValueStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusedValueStage {
    Removing,
    Querying,
    Finished,
}

impl RefusedValueSteps {
    /// Follows `error`, the refusal of a value under `key`.
    pub fn new(key: impl Into<OwnedKey>, error: Error) -> Self {
        Self { key: key.into(), error, stage: RefusedValueStage::Removing }
    }

    /// The same without removing the older value, because the key may have been written again meanwhile.
    pub fn without_removal(key: impl Into<OwnedKey>, error: Error) -> Self {
        Self { stage: RefusedValueStage::Querying, ..Self::new(key, error) }
    }
}

impl Steps for RefusedValueSteps {
    type Output = Error;

    fn step(&self) -> Option<Step<'_>> {
        let key = self.key.wire_key();
        let request = match self.stage {
            RefusedValueStage::Removing => Request::Delete { key, noreply: false },
            RefusedValueStage::Querying => SETTINGS_REQUEST,
            RefusedValueStage::Finished => return None,
        };
        Some(Step { key, request })
    }

    fn handle_result(&mut self, step_result: Result<StepOutcome, Error>) {
        let was_removing = self.stage == RefusedValueStage::Removing;
        self.stage = RefusedValueStage::Finished;
        match (step_result, &mut self.error) {
            // An older value that may remain is worse than a refused one.
            (Err(error), _) if was_removing => self.error = error,
            (Err(Error::Interrupted), _) => self.error = Error::Interrupted,
            (Ok(_), Error::TooLarge { limit: 0, .. }) if was_removing => {
                self.stage = RefusedValueStage::Querying;
            }
            (Ok(StepOutcome::ItemBytesMax(server_limit)), Error::TooLarge { limit, .. }) => {
                *limit = server_limit;
            }
            _ => {} // the limit stays unknown, or was known before
        }
    }

    fn finish(self) -> Error {
        self.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_outcome::WriteOutcome;
    use glasscache_protocol::meta::request::WireKey;

    const KEY: WireKey<'static> = WireKey { bytes: b"k", is_base64: false };

    fn steps_after_refusal(limit: u64) -> RefusedValueSteps {
        let error = Error::TooLarge { key: "k".into(), bytes: 9, limit };
        RefusedValueSteps::new(KEY, error)
    }

    fn run_steps(
        mut steps: RefusedValueSteps,
        results: [Result<StepOutcome, Error>; 2],
    ) -> (usize, Error) {
        let mut results = results.into_iter();
        let mut step_count = 0;
        while let Some(step) = steps.step() {
            match (step_count, step.request) {
                (0, Request::Delete { key, .. }) => assert_eq!(key, KEY),
                (1, Request::Stats { argument }) => assert_eq!(argument, b"settings"),
                (_, request) => panic!("{request:?}"),
            }
            step_count += 1;
            steps.handle_result(results.next().unwrap());
        }
        (step_count, steps.finish())
    }

    #[test]
    fn an_unknown_limit_is_queried_and_a_known_one_is_not() {
        let results = || {
            [
                Ok(StepOutcome::WriteOutcome(WriteOutcome::NotFound)),
                Ok(StepOutcome::ItemBytesMax(5)),
            ]
        };
        let error_with = |limit| steps_after_refusal(limit).finish();
        assert_eq!(run_steps(steps_after_refusal(0), results()), (2, error_with(5)));
        assert_eq!(run_steps(steps_after_refusal(7), results()), (1, error_with(7)));
    }

    #[test]
    fn a_failed_removal_is_the_error_and_a_failed_query_is_not() {
        let results = [Err(Error::Closed), Ok(StepOutcome::ItemBytesMax(5))];
        assert_eq!(run_steps(steps_after_refusal(0), results), (1, Error::Closed));
        let results = [Ok(StepOutcome::WriteOutcome(WriteOutcome::Done)), Err(Error::Closed)];
        assert_eq!(
            run_steps(steps_after_refusal(0), results),
            (2, steps_after_refusal(0).finish())
        );
        let results = [Ok(StepOutcome::WriteOutcome(WriteOutcome::Done)), Err(Error::Interrupted)];
        assert_eq!(run_steps(steps_after_refusal(0), results), (2, Error::Interrupted));
    }
}
