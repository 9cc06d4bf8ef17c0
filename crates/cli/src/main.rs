//! The binary `glasscache`: reads the command line and hands over to one file per subcommand.
//!
//! A command is parse, call, print: every computation lives in the crates below. Data goes to stdout,
//! everything else to stderr, and the exit code reports the result (see `output`).
#![forbid(unsafe_code)]

mod access;
mod args;
mod commands;
mod daemon;
mod discovery;
mod embedded;
mod files;
mod ineffective_settings;
mod interrupts;
mod live_figures;
mod live_target;
mod output;
mod page_file;
mod page_table;
mod parallel;
#[cfg(test)]
mod reference;
mod report;
mod seconds;
mod server_process;
mod server_reader;
mod server_signals;
mod setting_lists;
mod settings;
mod target;
mod traces;
mod value_sizes;
mod version;

use std::process::ExitCode;

use glasscache_features as _;

/// In place of the allocator of musl, with which the static build is slow.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match args::parse() {
        Ok((cli, command_path, effect_check)) => {
            let out = output::Output::new(cli.json, &command_path);
            let outcome = effect_check
                .and_then(|()| interrupts::end_at_early_interrupt(cli.json, &command_path))
                .and_then(|()| cli.command.run(&out));
            out.finish(outcome)
        }
        Err(error) => args::report(&error),
    }
}
