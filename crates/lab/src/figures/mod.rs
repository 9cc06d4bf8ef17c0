//! The program `figures`, for the developers of this project: what a request costs beside memcached and beside an older
//! build, and the bounds that a server always keeps. `make bench`, `make bench-builds` and `make bench-bounds` call it; it
//! is not installed.
//!
//! What a user compares on his own servers is in [`crate::bench`]. `speed` measures the cost of a request,
//! `interference` its tail latency beside other load, `builds` the cost of a change, `bounds` and `fill_sequence`
//! the memory of one server; the commands print them and keep them as a record. Progress goes to stderr.

mod bounds;
mod bounds_command;
mod builds;
mod builds_command;
mod command;
mod fill_sequence;
mod interference;
mod scenario;
mod speed;
mod speed_command;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::{Value, json};

use crate::bench::{Error, Programs};
use command::{Failure, Measured};

const EXAMPLES: &str = "\
Examples:
  figures speed --list                                  the scenarios
  figures speed --scenario get-50 --scenario set-1k     two of them, some minutes
  figures speed --memcached ./memcached --json --keep results
  figures bounds -m 64 --part bounds --bound empty
  figures builds --old ./glasscache-before              this build beside an older one, a quarter of an hour";

/// Measure what only the developers of glasscache need.
#[derive(Parser)]
#[command(name = "figures", after_help = EXAMPLES)]
struct Cli {
    /// Print the result as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Keep the result as DATE-NAME.json in this folder
    #[arg(long, value_name = "FOLDER", global = true)]
    keep: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// CPU per request and latency compared with memcached, in interleaved rounds
    Speed(speed_command::Args),
    /// CPU per request compared with another build of glasscache, every scenario in interleaved pairs
    Builds(builds_command::Args),
    /// The bounds that a server always keeps, and its memory through fills of shifting sizes
    Bounds(bounds_command::Args),
}

impl Command {
    fn run(self) -> Result<Measured, Failure> {
        match self {
            Self::Speed(args) => args.run(),
            Self::Builds(args) => args.run(),
            Self::Bounds(args) => args.run(),
        }
    }
}

/// Runs the program on the arguments of this process; its exit codes are those of `glasscache`.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.run().and_then(|measured| print_and_keep(measured, cli.json, cli.keep)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints a result, and keeps it unless an error ended it early.
fn print_and_keep(measured: Measured, is_json: bool, keep: Option<PathBuf>) -> Result<(), Failure> {
    let Measured { result, text, record, ended_by } = measured;
    let output = if is_json { envelope(&result).to_string() } else { text };
    // A reader that has gone wants nothing more.
    let _ = writeln!(std::io::stdout(), "{}", output.trim_end());
    if let Some(failure) = ended_by {
        return Err(failure);
    }
    if let (Some(folder), Some(record)) = (keep, record) {
        let path = record.write_to(&folder)?;
        eprintln!("kept as {}", path.display());
    }
    Ok(())
}

/// The envelope that `glasscache bench --json` prints around its result.
fn envelope(result: &Value) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    json!({ "schema": 2, "version": version, "command": "bench", "result": result, "error": null })
}

/// The programs, with the `glasscache` beside this one if none is named.
fn with_own_glasscache(mut programs: Programs) -> Result<Programs, Failure> {
    if programs.glasscache.is_none() {
        programs.glasscache = Some(find_own_glasscache()?);
    }
    Ok(programs)
}

/// The `glasscache` in the folder of this program.
fn find_own_glasscache() -> Result<PathBuf, Failure> {
    let this_program = std::env::current_exe().map_err(Error::Start)?;
    let program = this_program.with_file_name("glasscache");
    if program.is_file() {
        return Ok(program);
    }
    let path = program.display();
    Err(Failure::usage(format!("{path} does not exist: build it (make release), or name another")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_has_no_contradiction() {
        Cli::command().debug_assert();
    }
}
