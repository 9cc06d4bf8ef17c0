//! The signals of a server process. What they do depends on how far its start is: a replacement that is being prepared
//! is given up, and what comes when that is no longer possible waits for the server.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glasscache_server::{Cancellation, ServerControl, notify, print_without_waiting};
use nix::sys::signal::{SigSet, Signal};

use crate::output::{Exit, Failure};

/// The name of the thread that handles the signals, by which other processes recognise a server.
pub(crate) const SIGNAL_THREAD: &str = "gc-signals";

/// The handled signals, which are blocked in every thread; one thread waits for them.
pub(crate) struct ServerSignals(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    is_stopping: bool,
    /// Whether SIGTERM and SIGINT save the items, as SIGUSR1 does.
    saves_on_term: bool,
    /// Until there is a server.
    cancellation: Option<Cancellation>,
    cancelled_by: Option<Signal>,
    /// Signals that wait for the server, each once.
    waiting_signals: Vec<Signal>,
    server: Option<ServerControl>,
}

impl ServerSignals {
    /// Blocks the signals in this thread and those that it starts, and handles them in one of its own: now, while that
    /// can still fail.
    pub(crate) fn handle(saves_on_term: bool) -> Result<ServerSignals, Failure> {
        let failure = |error: &dyn Display| {
            Failure::new(Exit::Unreachable, format!("cannot wait for signals: {error}"))
        };
        let blocked_signals: SigSet =
            [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGUSR1]
                .into_iter()
                .collect();
        blocked_signals.thread_block().map_err(|error| failure(&error))?;
        let state = State { saves_on_term, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let shared_state = Arc::clone(&state);
        let wait_for_signals = move || {
            while let Ok(signal) = blocked_signals.wait() {
                lock(&shared_state).handle(signal);
            }
        };
        let builder = std::thread::Builder::new().name(SIGNAL_THREAD.to_owned());
        builder.spawn(wait_for_signals).map_err(|error| failure(&error))?;
        Ok(ServerSignals(state))
    }

    /// From now on, signals that stop a server give up its start.
    pub(crate) fn set_cancellation(&self, cancellation: Cancellation) {
        lock(&self.0).cancellation = Some(cancellation);
    }

    /// From now on, signals are for this server, as are those that waited.
    pub(crate) fn set_server(&self, server: ServerControl) {
        let mut state = lock(&self.0);
        for signal in std::mem::take(&mut state.waiting_signals) {
            state.apply_to_server(signal, &server);
        }
        state.server = Some(server);
    }

    /// Ends the process if a signal is the reason for `failure`.
    pub(crate) fn exit_if_cancelled(&self, failure: Failure) -> Failure {
        if let Some(signal) = lock(&self.0).cancelled_by {
            print_without_waiting(&format!("{}\n", failure.to_text()));
            exit_by(signal);
        }
        failure
    }
}

impl State {
    fn handle(&mut self, signal: Signal) {
        let stops_server = signal != Signal::SIGHUP;
        if self.is_stopping && matches!(signal, Signal::SIGINT | Signal::SIGTERM) {
            // The first one starts an orderly shutdown; a second one exits immediately.
            exit_by(signal);
        }
        self.is_stopping |= stops_server;
        if let Some(server) = &self.server {
            self.apply_to_server(signal, server);
        } else if stops_server && self.cancellation.as_ref().is_some_and(Cancellation::cancel) {
            self.cancelled_by = Some(signal);
        } else if !self.waiting_signals.contains(&signal) {
            self.waiting_signals.push(signal);
        }
    }

    fn apply_to_server(&self, signal: Signal, server: &ServerControl) {
        if signal == Signal::SIGHUP {
            return server.reload();
        }
        notify("STOPPING=1");
        if signal == Signal::SIGUSR1 || self.saves_on_term {
            server.stop_and_save();
        } else {
            server.stop();
        }
    }
}

fn exit_by(signal: Signal) -> ! {
    std::process::exit(128 + signal as i32)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
