//! The binary `glasscache`: reads the command line and hands over to one file per subcommand.
//!
//! A command is parse, call, print: every computation lives in the crates below. Data goes to stdout,
//! everything else to stderr, and the exit code reports the result (see `output`).
#![forbid(unsafe_code)]

mod args;
mod commands;
mod daemon;
mod output;
mod parallel;
mod settings;
mod table;
mod text_table;
mod traces;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    let out = output::Output::new(cli.json);
    match cli.command.run(&out) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(&out),
    }
}
