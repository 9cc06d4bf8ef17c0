//! The output of all commands: data on stdout, messages on stderr, JSON on request, exit codes.
//!
//! With `--json` a run prints one document, the envelope: `schema`, `version`, `command`, `result`, `error`
//! (docs/reference/json.md). A result is printed when the command ends, together with the error that ended it, so
//! that what was measured before a failure is kept. The rows of a listing are printed as they arrive: a server may
//! hold millions of keys.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use glasscache_lab::bench::record;
use serde_json::{Value, json};

/// Version of the envelope: 2 since results and errors share one form.
const SCHEMA: u64 = 2;

/// Commands whose results are kept and compared. `record` is not among them: its arguments can contain a secret.
const REPEATABLE_COMMANDS: [&str; 9] =
    ["profile", "bench", "codec", "tour", "curve", "inspect", "simulate", "replay", "slabs"];

/// Whether the results of a command, such as `bench misses`, are kept and compared.
pub(crate) fn is_repeatable(command: &str) -> bool {
    let first_word = command.split(' ').next().unwrap_or_default();
    REPEATABLE_COMMANDS.contains(&first_word)
}

/// What is needed to repeat a result: the arguments, the date, the machine.
fn collect_run_facts() -> Value {
    let arguments = std::env::args_os().skip(1);
    let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    json!({
        "arguments": arguments.collect::<Vec<String>>(),
        "date": record::format_now(),
        "machine": record::describe_machine(),
    })
}

/// The exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Success = 0,
    /// A negative result: a missing key, a failed check.
    Finding = 1,
    /// The command line or a setting is wrong.
    Usage = 2,
    /// A server cannot be reached, or a socket, file or memory is not available.
    Unreachable = 3,
    /// A reply or a file is invalid.
    BadData = 4,
    /// Ctrl-C ended the command; the results so far were printed.
    Interrupted = 130,
}

impl Exit {
    /// Every exit code, for the reference.
    #[cfg(test)]
    pub(crate) const ALL: [Exit; 6] = [
        Exit::Success,
        Exit::Finding,
        Exit::Usage,
        Exit::Unreachable,
        Exit::BadData,
        Exit::Interrupted,
    ];

    /// The name of the failure in JSON.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Exit::Success => "none",
            Exit::Finding => "finding",
            Exit::Usage => "usage",
            Exit::Unreachable => "unreachable",
            Exit::BadData => "bad-data",
            Exit::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure that ends the process with `exit` after one sentence.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), hint: None }
    }

    /// Ctrl-C ended the command after it printed what it had.
    pub(crate) fn stopped() -> Failure {
        Failure::new(
            Exit::Interrupted,
            "stopped: these are the results so far; no file was written",
        )
    }

    /// All failures as one, with the exit code and the hint of the first; none if there was none.
    pub(crate) fn join(failures: Vec<Failure>) -> Option<Failure> {
        failures.into_iter().reduce(|first, next| Failure {
            message: format!("{}; {}", first.message, next.message),
            ..first
        })
    }

    /// Wrong usage.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// What failed, without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Whether the message has these words.
    pub(crate) fn is_about(&self, words: &str) -> bool {
        self.message.contains(words)
    }

    /// Adds a hint about what to do, which is printed on a second line.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint where there is none.
    pub(crate) fn or_hint(self, hint: impl Into<String>) -> Failure {
        if self.hint.is_some() { self } else { self.with_hint(hint) }
    }

    /// Replaces the hint if a server could not be reached, where a command has an option of its own for it.
    pub(crate) fn with_hint_if_unreachable(self, hint: &str) -> Failure {
        match self.exit {
            Exit::Unreachable => self.with_hint(hint),
            _ => self,
        }
    }

    /// Prints the message on stderr and returns the exit code.
    fn report(&self) -> ExitCode {
        // Where stderr is closed or full, the exit code is left.
        let _ = writeln!(io::stderr(), "{}", self.to_text());
        self.exit.into()
    }

    /// The message and the hint, a line each.
    pub(crate) fn to_text(&self) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
        format!("glasscache: {}{hint}", self.message)
    }

    /// The value of `error` in the envelope.
    fn to_document(&self) -> Value {
        let message = match &self.hint {
            Some(hint) => format!("{}; {hint}", self.message),
            None => self.message.clone(),
        };
        json!({ "message": message, "kind": self.exit.kind(), "exit": self.exit as u8 })
    }
}

impl From<io::Error> for Failure {
    /// A closed pipe is not an error (`glasscache ... | head`); other errors of stdout are reported.
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        Failure::new(Exit::Unreachable, format!("cannot write the output: {error}"))
    }
}

/// Where a command prints its data.
#[derive(Debug)]
pub(crate) struct Output {
    prints_json: bool,
    /// The words of the command, such as `config show`; empty where the command line names none.
    command: String,
    stdout: io::Stdout,
    result: RefCell<JsonResult>,
}

/// The value of `result` in the envelope, as far as it is known.
#[derive(Debug, Default)]
enum JsonResult {
    #[default]
    None,
    /// One value, printed at the end.
    Document(Value),
    /// A list of which this many rows have been printed.
    List(u64),
}

impl Output {
    /// Text output of `command`, or JSON output if `prints_json`.
    pub(crate) fn new(prints_json: bool, command: &str) -> Output {
        Output {
            prints_json,
            command: command.to_owned(),
            stdout: io::stdout(),
            result: RefCell::default(),
        }
    }

    /// Ends the output: with `--json` completes the envelope; returns the exit code.
    pub(crate) fn finish(&self, outcome: Result<Exit, Failure>) -> ExitCode {
        let failure = outcome.as_ref().err();
        if self.prints_json
            && let Err(write_failure) = self.close_envelope(failure)
            && outcome.is_ok()
        {
            return write_failure.report();
        }
        match outcome {
            Ok(exit) => exit.into(),
            Err(failure) => failure.report(),
        }
    }

    /// Completes the envelope with a failure that has been printed on stderr; returns the exit code.
    pub(crate) fn finish_quietly(&self, failure: &Failure) -> ExitCode {
        // Where stdout is closed, only the message on stderr is left.
        let _ = self.close_envelope(Some(failure));
        failure.exit.into()
    }

    fn close_envelope(&self, failure: Option<&Failure>) -> Result<(), Failure> {
        let error = failure.map_or(Value::Null, Failure::to_document);
        let envelope_start = self.envelope_start();
        match &*self.result.borrow() {
            JsonResult::List(0) if failure.is_none() => {
                self.print_line(format!("{envelope_start}[],\"error\":{error}}}"))
            }
            JsonResult::None | JsonResult::List(0) => {
                self.print_line(format!("{envelope_start}null,\"error\":{error}}}"))
            }
            JsonResult::Document(result) => {
                self.print_line(format!("{envelope_start}{result},\"error\":{error}}}"))
            }
            JsonResult::List(_) => self.print_line(format!("],\"error\":{error}}}")),
        }
    }

    /// The envelope up to the value of `result`.
    fn envelope_start(&self) -> String {
        let command = match self.command.as_str() {
            "" => Value::Null,
            command => json!(command),
        };
        let version = json!(env!("CARGO_PKG_VERSION"));
        format!("{{\"schema\":{SCHEMA},\"version\":{version},\"command\":{command},\"result\":")
    }

    /// Whether JSON was requested.
    pub(crate) fn is_json(&self) -> bool {
        self.prints_json
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.stdout.is_terminal()
    }

    /// Prints one line of text.
    pub(crate) fn print_line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        Ok(writeln!(self.stdout.lock(), "{}", text.as_ref())?)
    }

    /// Sets the result in the envelope; a later call replaces it. Results of the lab contain what repeats them.
    pub(crate) fn set_result(&self, result: &Value) {
        let mut result = result.clone();
        if is_repeatable(&self.command)
            && let Some(object) = result.as_object_mut()
        {
            object.insert("run".to_owned(), collect_run_facts());
        }
        *self.result.borrow_mut() = JsonResult::Document(result);
    }

    /// Declares that the result in the envelope is a list, even if no row follows.
    pub(crate) fn begin_list(&self) {
        *self.result.borrow_mut() = JsonResult::List(0);
    }

    /// Prints one row of a result that is a list.
    pub(crate) fn print_row(&self, row: &Value) -> Result<(), Failure> {
        let printed_rows = match *self.result.borrow() {
            JsonResult::List(printed_rows) => printed_rows,
            _ => 0,
        };
        let separator =
            if printed_rows == 0 { format!("{}[", self.envelope_start()) } else { ",".to_owned() };
        *self.result.borrow_mut() = JsonResult::List(printed_rows + 1);
        self.print_line(format!("{separator}{row}"))
    }

    /// Prints bytes as they are.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = self.stdout.lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }
}
