//! `glasscache stop`: stops a server on this machine, also in a container that has no shell to send a signal from.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid};
use serde_json::json;

use crate::files::read_text;
use crate::output::{Exit, Failure, Output};
use crate::server_process::{HeldProcess, ItemMemory, ServerProcess, has_snapshot, list_servers};

const EXAMPLES: &str = "\
Examples:
  glasscache stop                        the only server of this user, or process 1 of a container
  glasscache stop --save                 its items in -e come back at the next start
  glasscache stop --pidfile /run/glasscache/pid --wait 10

The exit code is 1 when the server still runs after --wait seconds, or has ended without saving its items.";

/// Stop a server of this machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Save the items of the memory file (-e), as SIGUSR1 does
    #[arg(long)]
    save: bool,
    /// File with the process id, as the server writes it (-P)
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    pidfile: Option<PathBuf>,
    /// Process id of the server [default: the only server of this user, else process 1]
    #[arg(long, value_name = "N")]
    pid: Option<u32>,
    /// How long to wait for its end, in seconds; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
}

impl Args {
    /// Sends the signal, waits for the end of the server, and prints what happened.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let server_id = match (&self.pidfile, self.pid) {
            (Some(path), _) => read_process_id(path)?,
            (None, Some(id)) => id,
            (None, None) => choose_server(&list_servers(), geteuid().as_raw())?,
        };
        let process = open_server(server_id)?;
        // Looked up after it is held: its id cannot become another's meanwhile.
        let server = ServerProcess::find(server_id).ok_or_else(|| {
            Failure::new(
                Exit::Unreachable,
                format!("process {server_id} is not a glasscache server"),
            )
        })?;
        let item_memory = server.find_item_memory();
        if self.save && item_memory == ItemMemory::Anonymous {
            return Err(Failure::usage(format!(
                "--save has no effect: server {server_id} has no memory file (-e): leave it out"
            )));
        }
        let signal = if self.save { Signal::USR1 } else { Signal::TERM };
        let sent_at = Instant::now();
        process.send(signal).map_err(|error| describe_refusal(&server, error))?;
        let has_ended = process
            .wait(Duration::from_secs(self.wait))
            .map_err(|error| Failure::new(Exit::Unreachable, format!("cannot wait: {error}")))?;
        let is_saved = match &item_memory {
            ItemMemory::File(path) if has_ended => Some(has_snapshot(path)),
            _ => None,
        };
        self.report(&Outcome { server_id, sent_at, has_ended, is_saved }, out)
    }

    fn report(&self, outcome: &Outcome, out: &Output) -> Result<Exit, Failure> {
        let &Outcome { server_id, has_ended, is_saved, .. } = outcome;
        let signal = if self.save { "SIGUSR1" } else { "SIGTERM" };
        let seconds = outcome.sent_at.elapsed().as_secs_f64();
        let is_done = (has_ended || self.wait == 0) && !(self.save && is_saved == Some(false));
        let exit = if is_done { Exit::Success } else { Exit::Finding };
        if out.is_json() {
            out.set_result(&json!({
                "pid": server_id,
                "signal": signal,
                "seconds": seconds,
                "ended": has_ended,
                "saved": is_saved,
            }));
            return Ok(exit);
        }
        let items = match is_saved {
            Some(true) => "; its items are saved",
            Some(false) if self.save => "; its items are not saved, its log has the reason",
            Some(false) => "; its items are not saved (--save)",
            None if self.save && has_ended => "; its log has whether its items are saved",
            None => "",
        };
        out.print_line(match (has_ended, self.wait) {
            (true, _) => format!("server {server_id} has ended after {seconds:.2} s{items}"),
            (false, 0) => format!("server {server_id} has been sent {signal}"),
            (false, wait) => format!(
                "server {server_id} has been sent {signal} and still runs after {wait} s; SIGTERM ends it at once now"
            ),
        })?;
        Ok(exit)
    }
}

/// What became of the server.
struct Outcome {
    server_id: u32,
    sent_at: Instant,
    has_ended: bool,
    /// Whether its items are saved; `None` where it has no memory file, or none that this user can find.
    is_saved: Option<bool>,
}

fn read_process_id(path: &Path) -> Result<u32, Failure> {
    let text = read_text(path).map_err(|error| {
        Failure::new(
            Exit::Unreachable,
            format!("--pidfile: cannot read {}: {error}", path.display()),
        )
    })?;
    text.trim().parse().map_err(|_| {
        Failure::usage(format!("--pidfile: {} does not have a process id", path.display()))
    })
}

/// The only server of this user, else process 1 if it is one.
fn choose_server(servers: &[ServerProcess], user_id: u32) -> Result<u32, Failure> {
    let own_servers: Vec<&ServerProcess> =
        servers.iter().filter(|server| server.user_id == user_id).collect();
    if let [server] = own_servers[..] {
        return Ok(server.id);
    }
    if servers.iter().any(|server| server.id == 1) {
        return Ok(1);
    }
    let candidates: Vec<&ServerProcess> =
        if own_servers.is_empty() { servers.iter().collect() } else { own_servers };
    if candidates.is_empty() {
        return Err(Failure::new(Exit::Unreachable, "no glasscache server runs on this machine"));
    }
    let list: Vec<String> = candidates.iter().map(|server| describe(server)).collect();
    let reason = if candidates[0].user_id == user_id {
        "several servers run"
    } else {
        "no server of this user runs"
    };
    let message = format!("{reason}: {}", list.join("; "));
    Err(Failure::usage(message).with_hint("--pid N names one"))
}

fn describe(server: &ServerProcess) -> String {
    format!("{} (user {}) {}", server.id, server.user_id, server.command_line)
}

fn open_server(id: u32) -> Result<HeldProcess, Failure> {
    let process = HeldProcess::open(id).map_err(|error| {
        Failure::new(Exit::Unreachable, format!("process {id} cannot be opened: {error}"))
    })?;
    process.ok_or_else(|| Failure::new(Exit::Unreachable, format!("no process has the id {id}")))
}

fn describe_refusal(server: &ServerProcess, error: rustix::io::Errno) -> Failure {
    let message = format!("server {} cannot be stopped: {error}", server.id);
    Failure::new(Exit::Unreachable, message)
        .with_hint(format!("it runs as user {}: run this as that user or as root", server.user_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: u32, user_id: u32) -> ServerProcess {
        ServerProcess { id, user_id, command_line: format!("glasscache serve -p {id}") }
    }

    #[test]
    fn the_only_server_of_the_user_then_process_1_is_chosen() {
        let choose = |servers: &[ServerProcess]| choose_server(servers, 7).map_err(|f| f.to_text());
        assert_eq!(choose(&[server(20, 7), server(30, 8)]), Ok(20));
        assert_eq!(choose(&[server(1, 8), server(30, 9)]), Ok(1));
        assert_eq!(choose(&[server(1, 7), server(30, 7)]), Ok(1));
        let refusal = choose(&[server(20, 7), server(30, 7), server(40, 8)]).unwrap_err();
        assert!(refusal.contains("20 (user 7) glasscache serve -p 20; 30 (user 7)"), "{refusal}");
        assert!(!refusal.contains("40") && refusal.contains("--pid N"), "{refusal}");
        let refusal = choose(&[server(40, 8)]).unwrap_err();
        assert!(refusal.contains("no server of this user") && refusal.contains("40"), "{refusal}");
        assert!(choose(&[]).unwrap_err().contains("no glasscache server"));
    }
}
