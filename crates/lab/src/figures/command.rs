//! What the commands of `figures` share: their result, their failures, and the scenarios that they choose from.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use signal_hook::consts::SIGINT;

use super::scenario::Scenario;
use crate::bench::Error;
use crate::bench::record::Record;

/// What a command measured, complete or up to the failure that ended it.
pub(super) struct Measured {
    /// What `--json` prints.
    pub(super) result: Value,
    /// What is printed without it.
    pub(super) text: String,
    /// What `--keep` keeps; a list of scenarios has none.
    pub(super) record: Option<Record>,
    pub(super) ended_by: Option<Failure>,
}

impl Measured {
    /// The result whose JSON is its record.
    pub(super) fn of_record(record: Record, text: String, ended_by: Option<Failure>) -> Self {
        Self { result: json!(record), text, record: Some(record), ended_by }
    }
}

/// Why a command failed: one sentence and the exit code, which means what it does for `glasscache`.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    exit_code: u8,
    message: String,
}

impl Failure {
    /// Wrong usage.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { exit_code: 2, message: message.into() }
    }

    /// Prints it on stderr and returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        eprintln!("figures: {}", self.message);
        self.exit_code.into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit_code = match &error {
            error if error.is_stop() => 130,
            Error::WrongReplies { .. } => 1,
            Error::NoMemcached | Error::NoTrace { .. } | Error::Start(_) | Error::File(..) => 3,
            Error::Load { .. } => 4,
        };
        Self { exit_code, message: error.to_string() }
    }
}

/// A flag that Ctrl-C sets.
pub(super) fn new_stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&stop)).map_err(Error::Start)?;
    Ok(stop)
}

/// The scenarios with these names; all scenarios if no name is given.
pub(super) fn select_scenarios(
    scenarios: Vec<Scenario>,
    names: &[String],
) -> Result<Vec<Scenario>, Failure> {
    if let Some(unknown) =
        names.iter().find(|name| scenarios.iter().all(|scenario| scenario.name != **name))
    {
        return Err(Failure::usage(format!(
            "no scenario is called {unknown:?}; figures speed --list shows them"
        )));
    }
    let is_selected = |scenario: &Scenario| names.is_empty() || names.contains(&scenario.name);
    Ok(scenarios.into_iter().filter(is_selected).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scenario_is_refused_by_its_name() {
        let scenarios = Scenario::built_in().unwrap();
        let names = ["get-50".to_owned(), "no-such-scenario".to_owned()];
        let failure = select_scenarios(scenarios.clone(), &names).unwrap_err();
        assert_eq!(failure.exit_code, 2);
        assert!(failure.message.contains("no-such-scenario") && failure.message.contains("--list"));
        assert_eq!(select_scenarios(scenarios, &names[..1]).unwrap().len(), 1);
    }
}
