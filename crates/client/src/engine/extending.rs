//! An `append` or `prepend`: the flags of the value under the key are read first, because the server joins bytes and does not
//! know what they mean. A compressed value, a number or a container would be destroyed.

use glasscache_protocol::text::request::StoreMode;

use super::uncertain::OwnedKey;
use super::{Step, StepOutcome, Steps};
use crate::error::Error;
use crate::request::{Item, Request};
use crate::value::Codec;
use crate::write_outcome::WriteOutcome;

/// How often it is tried while other clients change the value in between.
const ATTEMPTS_MAX: u32 = 10;

/// The steps of an `append` or `prepend`; a value of another form is left as it is.
#[derive(Debug)]
pub struct Extending {
    codec: Codec,
    mode: StoreMode,
    key: OwnedKey,
    bytes: Vec<u8>,
    noreply: bool,
    attempts: u32,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Reading,
    /// The value has a form that can be extended, and this CAS unique.
    Storing(u64),
    Finished(Result<WriteOutcome, Error>),
}

impl Extending {
    /// Joins `bytes` to the value under a key: `mode` is [`StoreMode::Append`] or [`StoreMode::Prepend`].
    pub fn new(
        codec: Codec,
        mode: StoreMode,
        key: impl Into<OwnedKey>,
        bytes: &[u8],
        noreply: bool,
    ) -> Self {
        // A dialect without types joins any bytes.
        let stage = if codec.has_types() { Stage::Reading } else { Stage::Storing(0) };
        let (key, bytes) = (key.into(), bytes.to_vec());
        Self { codec, mode, key, bytes, noreply, attempts: 0, stage }
    }

    fn handle_flags(&mut self, flags_and_cas: Option<(u32, u64)>) -> Stage {
        match flags_and_cas {
            None => Stage::Finished(Ok(WriteOutcome::NotStored)),
            Some((flags, cas)) if self.codec.can_extend(flags, &self.bytes) => Stage::Storing(cas),
            Some((flags, _)) => {
                let key = String::from_utf8_lossy(self.key.wire_key().bytes).into_owned();
                Stage::Finished(Err(Error::NotExtendable { key, flags }))
            }
        }
    }

    fn handle_outcome(&mut self, outcome: WriteOutcome) -> Stage {
        self.attempts += 1;
        match outcome {
            WriteOutcome::Exists if self.attempts < ATTEMPTS_MAX => Stage::Reading,
            outcome => Stage::Finished(Ok(outcome)),
        }
    }
}

impl Steps for Extending {
    type Output = Result<WriteOutcome, Error>;

    fn step(&self) -> Option<Step<'_>> {
        let key = self.key.wire_key();
        let request = match self.stage {
            Stage::Reading => Request::Flags { key },
            Stage::Storing(unique) => {
                let item = Item { key, flags: 0, body: &self.bytes };
                Request::Extend { mode: self.mode, item, unique, noreply: self.noreply }
            }
            Stage::Finished(_) => return None,
        };
        Some(Step { key, request })
    }

    fn handle_result(&mut self, step_result: Result<StepOutcome, Error>) {
        self.stage = match step_result {
            Ok(StepOutcome::Flags(flags_and_cas)) => self.handle_flags(flags_and_cas),
            Ok(StepOutcome::WriteOutcome(outcome)) => self.handle_outcome(outcome),
            Ok(_) => Stage::Finished(Ok(WriteOutcome::NotStored)),
            Err(error) => Stage::Finished(Err(error)),
        };
    }

    fn finish(self) -> Self::Output {
        match self.stage {
            Stage::Finished(result) => result,
            Stage::Reading | Stage::Storing(_) => Ok(WriteOutcome::NotStored),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{CodecOptions, Dialect, ValueRef};
    use glasscache_protocol::meta::request::WireKey;

    const KEY: WireKey<'static> = WireKey { bytes: b"k", is_base64: false };

    /// How a call ends whose flags are read as these, and how many requests it takes.
    fn run_steps(
        dialect: Dialect,
        flags: Option<u32>,
        bytes: &[u8],
        outcomes: &[WriteOutcome],
    ) -> (usize, Result<WriteOutcome, Error>) {
        let codec = Codec::new(CodecOptions::of(dialect)).unwrap();
        let mut steps = Extending::new(codec, StoreMode::Append, KEY, bytes, false);
        let (mut outcomes, mut request_count) = (outcomes.iter(), 0);
        while let Some(step) = steps.step() {
            let result = match step.request {
                Request::Flags { .. } => StepOutcome::Flags(flags.map(|flags| (flags, 7))),
                Request::Extend { item, .. } => {
                    assert_eq!(item.body, bytes);
                    StepOutcome::WriteOutcome(*outcomes.next().unwrap())
                }
                request => panic!("{request:?}"),
            };
            request_count += 1;
            steps.handle_result(Ok(result));
        }
        (request_count, steps.finish())
    }

    fn flags_of(value: &ValueRef<'_>) -> u32 {
        Codec::default().encode(value).unwrap().flags
    }

    #[test]
    fn plain_text_and_bytes_are_extended_and_all_else_is_left_as_it_is() {
        let own = Dialect::Glasscache;
        let done = [WriteOutcome::Done];
        let text = "long text ".repeat(1000);
        for flags in [0, flags_of(&ValueRef::Str("a")), flags_of(&ValueRef::RawJson(b"[]"))] {
            assert_eq!(run_steps(own, Some(flags), b"x", &done), (2, Ok(WriteOutcome::Done)));
        }
        let digits = flags_of(&ValueRef::Int(5));
        assert_eq!(run_steps(own, Some(digits), b"0", &done), (2, Ok(WriteOutcome::Done)));
        let not_extended = [
            (flags_of(&ValueRef::Str(&text)), &b"x"[..]),
            (flags_of(&ValueRef::Str("a")), b"\xff"),
            (flags_of(&ValueRef::Int(5)), b"x"),
            (flags_of(&ValueRef::Int(5)), b"-1"),
            (flags_of(&ValueRef::Json(b"{}")), b"{}"),
            (flags_of(&ValueRef::Ints(&[1, 2])), b"x"),
            (flags_of(&ValueRef::Bool(true)), b"1"),
            (flags_of(&ValueRef::None), b""),
            (flags_of(&ValueRef::Manifest(b"m")), b"x"),
            (Dialect::COMPUTE_INFO_FLAGS, b"x"),
        ];
        for (flags, bytes) in not_extended {
            let (request_count, result) = run_steps(own, Some(flags), bytes, &[]);
            let is_refused = matches!(result, Err(Error::NotExtendable { .. }));
            assert!(request_count == 1 && is_refused, "{flags:#x} {result:?}");
        }
    }

    #[test]
    fn a_missing_value_is_not_stored_and_a_changed_one_is_looked_at_again() {
        let own = Dialect::Glasscache;
        assert_eq!(run_steps(own, None, b"x", &[]), (1, Ok(WriteOutcome::NotStored)));
        let changed_once = [WriteOutcome::Exists, WriteOutcome::Done];
        assert_eq!(run_steps(own, Some(0), b"x", &changed_once), (4, Ok(WriteOutcome::Done)));
        let always_changed = [WriteOutcome::Exists; ATTEMPTS_MAX as usize];
        assert_eq!(run_steps(own, Some(0), b"x", &always_changed), (20, Ok(WriteOutcome::Exists)));
    }

    #[test]
    fn a_dialect_without_types_takes_one_request() {
        let done = [WriteOutcome::Done];
        assert_eq!(run_steps(Dialect::Raw, None, b"\xff", &done), (1, Ok(WriteOutcome::Done)));
    }
}
