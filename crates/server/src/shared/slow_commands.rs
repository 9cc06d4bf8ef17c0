//! The slowest commands of the last hour, with what each of them waited for.
//!
//! What waits for something is timed from its first wait to its reply. Of all else a worker times one in a few of the runs of
//! its connections (`shared/command_times`), and each iteration of its event loop.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use glasscache_store::Seconds;

use crate::shared::connection_info::Peer;
use crate::shared::lock::lock;

/// How many are kept: the slowest.
const COMMANDS_MAX: usize = 64;

/// How long a command is kept.
const KEPT_S: u32 = 3600;

/// What a command can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitReason {
    Execution,
    OtherConnections,
    Segment,
    UploadMemory,
    PeerMemory,
    Password,
    Socket,
}

/// Every reason, with its name and what it means.
#[rustfmt::skip]
pub(crate) static WAIT_REASONS: [(WaitReason, &str, &str); 7] = [
    (WaitReason::Execution, "execution", "the command itself, and the call that sent its reply"),
    (WaitReason::OtherConnections, "other_connections", "other connections of the same worker, which were served before it"),
    (WaitReason::Segment, "segment", "memory that an eviction makes free as soon as the other workers no longer read it"),
    (WaitReason::UploadMemory, "upload_memory", "memory of items that other values are being received into"),
    (WaitReason::PeerMemory, "peer_memory", "memory outside the store, of which others hold all that is granted (`peer_bytes_limit`)"),
    (WaitReason::Password, "password", "the check of a password"),
    (WaitReason::Socket, "socket", "the client, which did not read the reply"),
];

impl WaitReason {
    /// The name in statistics.
    pub(crate) fn name(self) -> &'static str {
        WAIT_REASONS.get(self as usize).map_or("", |(_, name, _)| name)
    }

    /// What it means, as a part of a sentence.
    fn meaning(self) -> &'static str {
        WAIT_REASONS.get(self as usize).map_or("", |(_, _, meaning)| meaning)
    }
}

/// The name and the key of a command, without anything else of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandText {
    pub(crate) name: &'static str,
    /// Empty if it has none, or more than one.
    pub(crate) key: Box<[u8]>,
}

/// The name of a command that is not known.
const UNKNOWN: &str = "unknown";

impl CommandText {
    /// A command of which nothing is known.
    pub(crate) fn unknown() -> CommandText {
        CommandText::without_key(UNKNOWN)
    }

    /// A command without a key.
    pub(crate) fn without_key(name: &'static str) -> CommandText {
        CommandText { name, key: Box::default() }
    }
}

/// A command that took longer than the limit.
#[derive(Debug, Clone)]
pub(crate) struct SlowCommand {
    pub(crate) command: CommandText,
    /// `None` if it is not known which of several it was.
    pub(crate) client: Option<Peer>,
    /// Bytes received and sent for it; `None` as `client`.
    pub(crate) bytes: Option<u64>,
    /// From the moment at which the event loop learned of it.
    pub(crate) time: Duration,
    /// What it waited for longest.
    pub(crate) reason: WaitReason,
    /// How long it waited for that.
    pub(crate) waited: Duration,
    /// When it ended.
    pub(crate) ended_at: Seconds,
}

impl SlowCommand {
    /// The line of the log, without the key: logs are copied to where keys may not be.
    pub(crate) fn describe(&self) -> String {
        let SlowCommand { command, time, reason, waited, .. } = self;
        let client = self.client.as_ref().map_or(String::new(), |client| format!(" of {client}"));
        let name = if command.name == UNKNOWN { "command" } else { command.name };
        let ms = |time: &Duration| time.as_millis();
        format!(
            "glasscache: slow {}{client}: {} ms, of which {} ms {} ({}); `stats slow` has more",
            name,
            ms(time),
            ms(waited),
            reason.name(),
            reason.meaning()
        )
    }
}

/// The slowest commands.
#[derive(Debug)]
pub(crate) struct SlowCommands {
    /// From when on a command is slow.
    limit: Duration,
    total: AtomicU64,
    /// Microseconds that the next one must take to be among the slowest, which is exact while none is too old.
    least_us: AtomicU64,
    commands: Mutex<Vec<SlowCommand>>,
}

impl SlowCommands {
    /// None yet; a limit of 0 ms switches them off.
    pub(crate) fn new(limit_ms: u32) -> SlowCommands {
        let limit = match limit_ms {
            0 => Duration::MAX,
            limit_ms => Duration::from_millis(limit_ms.into()),
        };
        SlowCommands {
            limit,
            total: AtomicU64::new(0),
            least_us: AtomicU64::new(0),
            commands: Mutex::default(),
        }
    }

    /// From when on a command is slow.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// How many there were since the start.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Adds one, in place of the fastest if there are too many.
    pub(crate) fn record(&self, slow: SlowCommand) {
        let now = slow.ended_at;
        let time_us = to_us(slow.time);
        let count = self.total.fetch_add(1, Ordering::Relaxed);
        // Now and then those that are too old are looked for in any case.
        if time_us < self.least_us.load(Ordering::Relaxed)
            && !count.is_multiple_of(COMMANDS_MAX as u64)
        {
            return;
        }
        let mut commands = lock(&self.commands);
        commands.retain(|kept| is_recent(kept, now));
        commands.push(slow);
        commands.sort_by_key(|kept| std::cmp::Reverse(kept.time));
        commands.truncate(COMMANDS_MAX);
        let least_us = match commands.get(COMMANDS_MAX - 1) {
            Some(fastest) => to_us(fastest.time),
            None => 0,
        };
        self.least_us.store(least_us, Ordering::Relaxed);
    }

    /// Those of the last hour, the slowest first.
    pub(crate) fn list(&self, now: Seconds) -> Vec<SlowCommand> {
        lock(&self.commands).iter().filter(|kept| is_recent(kept, now)).cloned().collect()
    }
}

fn is_recent(kept: &SlowCommand, now: Seconds) -> bool {
    now.0.saturating_sub(kept.ended_at.0) < KEPT_S
}

/// In whole microseconds.
pub(crate) fn to_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(time_ms: u64, ended_s: u32) -> SlowCommand {
        SlowCommand {
            command: CommandText { name: "get", key: Box::from(*b"a") },
            client: Some(Peer::Unix),
            bytes: Some(7),
            time: Duration::from_millis(time_ms),
            reason: WaitReason::Segment,
            waited: Duration::from_millis(time_ms / 2),
            ended_at: Seconds(ended_s),
        }
    }

    fn times_ms(commands: &SlowCommands, now_s: u32) -> Vec<u128> {
        commands.list(Seconds(now_s)).iter().map(|kept| kept.time.as_millis()).collect()
    }

    #[test]
    fn reasons_are_listed_in_the_order_of_their_numbers() {
        for (index, (reason, name, _)) in WAIT_REASONS.iter().enumerate() {
            assert_eq!((*reason as usize, reason.name()), (index, *name));
        }
    }

    #[test]
    fn the_slowest_are_kept_and_all_are_counted() {
        let commands = SlowCommands::new(10);
        (0..1000).for_each(|ms| commands.record(slow(ms * 7919 % 1000, 5)));
        assert_eq!(times_ms(&commands, 5), (936..1000).rev().collect::<Vec<_>>());
        assert_eq!(commands.total(), 1000);
    }

    #[test]
    fn what_is_older_than_an_hour_makes_room_for_faster_ones() {
        let commands = SlowCommands::new(10);
        (0..64).for_each(|_| commands.record(slow(500, 5)));
        assert_eq!(times_ms(&commands, 3604).len(), 64);
        assert_eq!(times_ms(&commands, 3605).len(), 0);
        (0..65).for_each(|_| commands.record(slow(20, 4000)));
        let kept = times_ms(&commands, 4000);
        assert!(!kept.is_empty() && kept.iter().all(|ms| *ms == 20), "{kept:?}");
    }

    #[test]
    fn a_line_of_the_log_has_the_reason_and_no_key() {
        let line = slow(152, 5).describe();
        let start = "glasscache: slow get of a unix socket: 152 ms, of which 76 ms segment (memory";
        assert!(line.starts_with(start), "{line}");
        let command = CommandText::unknown();
        let unknown = SlowCommand { command, client: None, ..slow(152, 5) };
        assert!(unknown.describe().starts_with("glasscache: slow command: 152 ms"));
    }
}
