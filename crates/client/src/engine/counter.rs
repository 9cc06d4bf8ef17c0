//! A number that is added to, or created where there is none.
//!
//! The server could do both in one command, but what it makes then has no flags: it would be read as bytes.

use glasscache_protocol::meta::request::Arithmetic;
use glasscache_protocol::text::request::StoreMode;

use super::uncertain::OwnedKey;
use super::{Done, Step, Steps};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::request::{Item, Request};

/// How often a number is looked for that another makes and removes again.
const ATTEMPTS_MAX: u32 = 3;

/// The number that a [`Counter`] begins with, as the codec writes it.
#[derive(Debug, Clone)]
pub struct Initial {
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
    by: Arithmetic,
    initial: Initial,
    attempts: u32,
    is_storing: bool,
    end: Option<Result<Option<u64>, Error>>,
}

impl Counter {
    /// Adds to the number under `key`, or stores `initial` there.
    pub fn new(key: impl Into<OwnedKey>, delta: u64, is_decrement: bool, initial: Initial) -> Self {
        Self {
            key: key.into(),
            by: Arithmetic {
                delta,
                is_decrement,
                initial: None,
            },
            initial,
            attempts: 0,
            is_storing: false,
            end: None,
        }
    }
}

impl Steps for Counter {
    type Output = Result<Option<u64>, Error>;

    fn step(&self) -> Option<Step<'_>> {
        let (key, by, noreply) = (self.key.wire(), self.by, false);
        if self.end.is_some() {
            return None;
        }
        let request = if self.is_storing {
            let Initial {
                flags,
                digits,
                exptime,
                ..
            } = &self.initial;
            let (flags, body) = (*flags, digits.as_bytes());
            Request::Store {
                word: StoreMode::Add,
                item: Item { key, flags, body },
                exptime: *exptime,
                noreply,
            }
        } else {
            Request::Arithmetic { key, by, noreply }
        };
        Some(Step { key, request })
    }

    fn take(&mut self, done: Result<Done, Error>) {
        match done {
            Err(error) => self.end = Some(Err(error)),
            Ok(Done::Number(None)) => self.is_storing = true,
            Ok(Done::Number(number)) => self.end = Some(Ok(number)),
            Ok(Done::Outcome(Outcome::Done)) => self.end = Some(Ok(Some(self.initial.number))),
            Ok(_) => {
                self.is_storing = false;
                self.attempts += 1;
                if self.attempts == ATTEMPTS_MAX {
                    self.end = Some(Ok(None));
                }
            }
        }
    }

    fn finish(self) -> Self::Output {
        self.end.unwrap_or(Ok(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use glasscache_protocol::meta::request::WireKey;

    fn counter() -> Counter {
        let key = WireKey {
            bytes: b"n",
            is_base64: false,
        };
        let initial = Initial {
            number: 7,
            flags: 3,
            digits: "7".into(),
            exptime: 60,
        };
        Counter::new(key, 2, true, initial)
    }

    /// The result of a counter whose steps end like this, and how many there were.
    fn run(results: &[Result<Done, Error>]) -> (usize, Result<Option<u64>, Error>) {
        let mut counter = counter();
        let mut results = results.iter();
        let mut count = 0;
        while let Some(step) = counter.step() {
            match step.request {
                Request::Arithmetic { by, .. } => {
                    assert!(
                        count % 2 == 0 && by.initial.is_none() && by.is_decrement && by.delta == 2
                    );
                }
                Request::Store { word, item, .. } => {
                    assert!(count % 2 == 1 && word == StoreMode::Add);
                    assert_eq!((item.flags, item.body), (3, &b"7"[..]));
                }
                request => panic!("{request:?}"),
            }
            count += 1;
            counter.take(results.next().unwrap().clone());
        }
        (count, counter.finish())
    }

    #[test]
    fn a_number_is_added_to_or_made() {
        let none = Ok(Done::Number(None));
        assert_eq!(run(&[Ok(Done::Number(Some(5)))]), (1, Ok(Some(5))));
        let made = Ok(Done::Outcome(Outcome::Done));
        assert_eq!(run(&[none, made]), (2, Ok(Some(7))));
    }

    #[test]
    fn a_number_that_others_make_and_remove_is_looked_for_three_times() {
        let none = || Ok(Done::Number(None));
        let lost = || Ok(Done::Outcome(Outcome::NotStored));
        let late = [none(), lost(), Ok(Done::Number(Some(9)))];
        assert_eq!(run(&late), (3, Ok(Some(9))));
        let never = [none(), lost(), none(), lost(), none(), lost()];
        assert_eq!(run(&never), (6, Ok(None)));
    }

    #[test]
    fn a_failed_step_ends_it() {
        let failed = [Ok(Done::Number(None)), Err(Error::Closed)];
        assert_eq!(run(&failed), (2, Err(Error::Closed)));
    }
}
