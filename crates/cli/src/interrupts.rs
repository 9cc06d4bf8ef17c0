//! Ctrl-C: a command that has begun to measure stops and prints what it has; before that it ends with the same exit
//! code and the same error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::output::{Exit, Failure, Output, is_repeatable};

/// Commands that only summarise results: like those whose results are repeatable, they print one result at their end,
/// and may read for long before.
const SUMMARISING_COMMANDS: [&str; 2] = ["rollout", "report"];

/// Whether the command has a [`new_stop_flag`] and ends itself.
static STOPS_BY_FLAG: AtomicBool = AtomicBool::new(false);

/// Ends the process at a Ctrl-C that comes before the command has a [`new_stop_flag`].
pub(crate) fn end_at_early_interrupt(prints_json: bool, command: &str) -> Result<(), Failure> {
    if !is_repeatable(command) && !SUMMARISING_COMMANDS.contains(&command) {
        return Ok(());
    }
    let mut interrupts = Signals::new([SIGINT])?;
    let command = command.to_owned();
    std::thread::Builder::new().name("interrupts".to_owned()).spawn(move || {
        for _ in interrupts.forever() {
            // Relaxed: nothing else is read that the command has written.
            if !STOPS_BY_FLAG.load(Ordering::Relaxed) {
                let failure = Failure::new(Exit::Interrupted, "stopped before there was a result");
                Output::new(prints_json, &command).finish(Err(failure));
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    })?;
    Ok(())
}

/// A flag that Ctrl-C sets.
pub(crate) fn new_stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, Arc::clone(&stop))?;
    STOPS_BY_FLAG.store(true, Ordering::Relaxed);
    Ok(stop)
}

/// A flag that Ctrl-C sets; a Ctrl-C while it is set ends the process as the shell expects.
pub(crate) fn new_stop_flag_with_exit() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, Exit::Interrupted as i32, Arc::clone(&stop))?;
    flag::register(SIGINT, Arc::clone(&stop))?;
    STOPS_BY_FLAG.store(true, Ordering::Relaxed);
    Ok(stop)
}
