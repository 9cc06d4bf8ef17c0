//! The output of all commands: data on stdout, messages on stderr, JSON on request, exit codes.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Schema version of all JSON documents.
const SCHEMA: u64 = 1;

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
        Failure {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// Wrong usage.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Adds a hint about what to do, which is printed on a second line.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Prints the message on stderr, with `--json` also a document on stdout, and returns the exit code.
    pub(crate) fn report(self, out: &Output) -> ExitCode {
        if out.is_json() {
            let document = serde_json::json!({ "error": self.message, "hint": self.hint,
                "exit": self.exit as u8 });
            // If stdout is closed, only the message on stderr is printed.
            let _ = out.document(&document);
        }
        eprintln!("glasscache: {}", self.message);
        if let Some(hint) = self.hint {
            eprintln!("hint: {hint}");
        }
        self.exit.into()
    }
}

impl From<io::Error> for Failure {
    /// A closed pipe is not an error (`glasscache ... | head`); other errors of stdout are reported.
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        Failure::new(
            Exit::Unreachable,
            format!("cannot write the output: {error}"),
        )
    }
}

/// Where a command prints its data.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    stdout: io::Stdout,
}

impl Output {
    /// Text output, or JSON output if `json`.
    pub(crate) fn new(json: bool) -> Output {
        Output {
            json,
            stdout: io::stdout(),
        }
    }

    /// Whether JSON was requested.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.stdout.is_terminal()
    }

    /// Prints one line of text.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        Ok(writeln!(self.stdout.lock(), "{}", text.as_ref())?)
    }

    /// Prints one JSON document on one line, with its schema version (docs/reference/json.md).
    pub(crate) fn document(&self, document: &serde_json::Value) -> Result<(), Failure> {
        let mut document = document.clone();
        if let Some(object) = document.as_object_mut() {
            object.insert("schema".to_owned(), SCHEMA.into());
        }
        self.line(document.to_string())
    }

    /// Prints bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = self.stdout.lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }
}
