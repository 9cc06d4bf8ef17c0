//! What people and scripts see: data on stdout, the rest on stderr, JSON on request, exit codes.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Version of the form of all JSON documents.
const SCHEMA: u64 = 1;

/// How a command ended, as scripts see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done as asked.
    Done = 0,
    /// A finding: a missed key, a failed check.
    Finding = 1,
    /// The command line or a setting is wrong.
    Usage = 2,
    /// A server cannot be reached, or a socket, file or memory cannot be had.
    Unreachable = 3,
    /// What came back or was read cannot be understood.
    BadData = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not do what was asked.
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

    /// The same failure with the next step on a line of its own.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Prints the sentence on stderr, for machines also a document on stdout, and returns the exit code.
    pub(crate) fn report(self, out: &Output) -> ExitCode {
        if out.is_json() {
            let document = serde_json::json!({ "error": self.message, "hint": self.hint,
                "exit": self.exit as u8 });
            // Where stdout is closed the sentence on stderr is all there is.
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
    /// Writing to a closed pipe is how `head` says it has enough; other errors of stdout are told.
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
    /// An output for people, or for machines when `json`.
    pub(crate) fn new(json: bool) -> Output {
        Output {
            json,
            stdout: io::stdout(),
        }
    }

    /// Whether the caller asked for JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person looks at the output as it comes.
    pub(crate) fn is_terminal(&self) -> bool {
        self.stdout.is_terminal()
    }

    /// Prints one line of text.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        Ok(writeln!(self.stdout.lock(), "{}", text.as_ref())?)
    }

    /// Prints one JSON document on a line of its own, with the version of its form (docs/reference/json.md).
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
