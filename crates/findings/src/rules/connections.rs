//! Connections: all in use, refused, or open and unused.

use std::time::Duration;

use crate::numbers::{format_count, format_duration};
use crate::{Figures, Finding};

/// Share of `-c` from which on the next burst is refused.
const FULL_SHARE: f64 = 0.95;
/// Share of the open connections that send nothing.
const IDLE_SHARE_OF_OPEN: f64 = 0.8;
/// Share of `-c` that they take.
const IDLE_SHARE_OF_MAX: f64 = 0.1;
/// The least number of idle connections worth a word.
const IDLE_MIN: u64 = 20;
/// How long a connection of a live pool may be idle.
const IDLE_S_MAX: u64 = 60;

/// All connections that `-c` allows are open, or almost.
pub(super) fn find_full(figures: &Figures) -> Option<Finding> {
    let now = &figures.now;
    let setting = setting_of(now.connections_max);
    let gain = "room for bursts; or fewer connections in each client's pool".to_owned();
    if figures.refuses_connections {
        let sentence = "A new connection is refused: all that -c allows are open.".to_owned();
        let value = now.connections_max as f64;
        return Some(Finding { id: "connections_full", sentence, value, setting, gain });
    }
    // One of them is the caller's.
    let open = now.connections;
    let is_full = now.connections_max > 0 && open as f64 >= FULL_SHARE * now.connections_max as f64;
    is_full.then(|| Finding {
        id: "connections_full",
        sentence: format!(
            "{} of the {} connections that -c allows are open; {} were refused so far.",
            format_count(open),
            format_count(now.connections_max),
            format_count(now.connections_refused),
        ),
        value: open as f64,
        setting,
        gain,
    })
}

/// Connections were refused because of `-c`.
pub(super) fn find_refused(figures: &Figures) -> Option<Finding> {
    let now = &figures.now;
    let refused = now.connections_refused;
    (refused > 0).then(|| Finding {
        id: "refused_connections",
        sentence: format!(
            "{} connections were refused in {} because -c allows only {}; {} are open now.",
            format_count(refused),
            format_duration(Duration::from_secs(now.uptime_s)),
            format_count(now.connections_max),
            format_count(now.connections),
        ),
        value: refused as f64,
        setting: setting_of(now.connections_max),
        gain: "no client is refused at the next peak".to_owned(),
    })
}

fn setting_of(connections_max: u64) -> String {
    match connections_max {
        0 => "-c".to_owned(),
        connections_max => format!("-c {}", connections_max * 2),
    }
}

/// Most connections are open and send nothing: pools of clients that are gone, or far too large.
pub(super) fn find_dead_client_pool(figures: &Figures) -> Option<Finding> {
    let connections = figures.connections.as_ref()?;
    let connections_max = figures.now.connections_max;
    // A server that has just started cannot have connections that were idle for long.
    let idle_s_min = IDLE_S_MAX.min((figures.now.uptime_s / 3).max(figures.seconds as u64)).max(1);
    let idle = connections.count_idle(idle_s_min);
    let is_dead = idle >= IDLE_MIN
        && idle as f64 >= IDLE_SHARE_OF_OPEN * connections.count() as f64
        && idle as f64 >= IDLE_SHARE_OF_MAX * connections_max as f64;
    is_dead.then(|| Finding {
        id: "dead_client_pool",
        sentence: format!(
            "{} of {} connections have sent nothing for {} and more.",
            format_count(idle),
            format_count(connections.count()),
            format_duration(Duration::from_secs(idle_s_min)),
        ),
        value: idle as f64,
        setting: "-o idle_timeout=60".to_owned(),
        gain: format!(
            "{} of the {} connections that -c allows become free; smaller pools in the clients bring the same",
            format_count(idle),
            format_count(connections_max),
        ),
    })
}
