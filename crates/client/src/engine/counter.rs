//! A counter: an `incr` or `decr` that creates a missing number.
//!
//! The server could do both in one command, but the number would have no client flags and be read as bytes.

use glasscache_protocol::meta::request::Arithmetic;
use glasscache_protocol::text::request::StoreMode;

use super::uncertain::OwnedKey;
use super::{Step, StepOutcome, Steps};
use crate::error::Error;
use crate::request::{Item, Request};
use crate::write_outcome::WriteOutcome;

/// How often the increment is tried while other clients create and remove the number in between.
const ATTEMPTS_MAX: u32 = 3;

/// The number that a [`Counter`] begins with, as the codec writes it.
#[derive(Debug, Clone)]
pub struct InitialNumber {
    /// The number.
    pub number: u64,
    /// Its client flags.
    pub flags: u32,
    /// Its digits.
    pub digits: String,
    /// When it expires, as on the wire.
    pub exptime: i64,
}

/// The steps of an `incr` or `decr` with an initial value; they end with the number, or with none if another
/// removed it each time.
#[derive(Debug)]
pub struct Counter {
    key: OwnedKey,
    arithmetic: Arithmetic,
    initial_number: InitialNumber,
    attempts: u32,
    is_storing: bool,
    result: Option<Result<Option<u64>, Error>>,
}

impl Counter {
    /// Adds to the number under `key`, or stores `initial_number` there.
    pub fn new(
        key: impl Into<OwnedKey>,
        delta: u64,
        is_decrement: bool,
        initial_number: InitialNumber,
    ) -> Self {
        Self {
            key: key.into(),
            arithmetic: Arithmetic { delta, is_decrement, initial: None },
            initial_number,
            attempts: 0,
            is_storing: false,
            result: None,
        }
    }
}

impl Steps for Counter {
    type Output = Result<Option<u64>, Error>;

    fn step(&self) -> Option<Step<'_>> {
        let (key, arithmetic, noreply) = (self.key.wire_key(), self.arithmetic, false);
        if self.result.is_some() {
            return None;
        }
        let request = if self.is_storing {
            let InitialNumber { flags, digits, exptime, .. } = &self.initial_number;
            let (flags, body) = (*flags, digits.as_bytes());
            Request::Store {
                mode: StoreMode::Add,
                item: Item { key, flags, body },
                exptime: *exptime,
                noreply,
            }
        } else {
            Request::Arithmetic { key, arithmetic, noreply }
        };
        Some(Step { key, request })
    }

    fn handle_result(&mut self, step_result: Result<StepOutcome, Error>) {
        match step_result {
            Err(error) => self.result = Some(Err(error)),
            Ok(StepOutcome::Number(None)) => self.is_storing = true,
            Ok(StepOutcome::Number(number)) => self.result = Some(Ok(number)),
            Ok(StepOutcome::WriteOutcome(WriteOutcome::Done)) => {
                self.result = Some(Ok(Some(self.initial_number.number)));
            }
            Ok(_) => {
                self.is_storing = false;
                self.attempts += 1;
                if self.attempts == ATTEMPTS_MAX {
                    self.result = Some(Ok(None));
                }
            }
        }
    }

    fn finish(self) -> Self::Output {
        self.result.unwrap_or(Ok(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glasscache_protocol::meta::request::WireKey;

    fn counter() -> Counter {
        let key = WireKey { bytes: b"n", is_base64: false };
        let initial_number = InitialNumber { number: 7, flags: 3, digits: "7".into(), exptime: 60 };
        Counter::new(key, 2, true, initial_number)
    }

    /// How many steps there were of a counter whose steps end like this, and its result.
    fn run_steps(results: &[Result<StepOutcome, Error>]) -> (usize, Result<Option<u64>, Error>) {
        let mut counter = counter();
        let mut results = results.iter();
        let mut step_count = 0;
        while let Some(step) = counter.step() {
            match step.request {
                Request::Arithmetic { arithmetic, .. } => {
                    assert!(
                        step_count % 2 == 0
                            && arithmetic.initial.is_none()
                            && arithmetic.is_decrement
                            && arithmetic.delta == 2
                    );
                }
                Request::Store { mode, item, .. } => {
                    assert!(step_count % 2 == 1 && mode == StoreMode::Add);
                    assert_eq!((item.flags, item.body), (3, &b"7"[..]));
                }
                request => panic!("{request:?}"),
            }
            step_count += 1;
            counter.handle_result(results.next().unwrap().clone());
        }
        (step_count, counter.finish())
    }

    #[test]
    fn a_counter_is_incremented_or_created() {
        let not_found = Ok(StepOutcome::Number(None));
        assert_eq!(run_steps(&[Ok(StepOutcome::Number(Some(5)))]), (1, Ok(Some(5))));
        let stored = Ok(StepOutcome::WriteOutcome(WriteOutcome::Done));
        assert_eq!(run_steps(&[not_found, stored]), (2, Ok(Some(7))));
    }

    #[test]
    fn a_counter_that_others_create_and_delete_is_attempted_three_times() {
        let not_found = || Ok(StepOutcome::Number(None));
        let not_stored = || Ok(StepOutcome::WriteOutcome(WriteOutcome::NotStored));
        let found_at_last = [not_found(), not_stored(), Ok(StepOutcome::Number(Some(9)))];
        assert_eq!(run_steps(&found_at_last), (3, Ok(Some(9))));
        let removed_each_time =
            [not_found(), not_stored(), not_found(), not_stored(), not_found(), not_stored()];
        assert_eq!(run_steps(&removed_each_time), (6, Ok(None)));
    }

    #[test]
    fn a_failed_step_ends_the_call() {
        let failed = [Ok(StepOutcome::Number(None)), Err(Error::Closed)];
        assert_eq!(run_steps(&failed), (2, Err(Error::Closed)));
    }
}
