//! The figures of one server: its statistics before and after the interval, its connections, a sample of its keys, the
//! gets of the interval, and its process where that is on this machine.

use std::io::BufReader;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use glasscache_client::address::Endpoint;
use glasscache_findings::connections::Connections;
use glasscache_findings::curve::Curve;
use glasscache_findings::hot_keys::{KeyCounts, read_hot_keys};
use glasscache_findings::key_sample::KeySample;
use glasscache_findings::{Figures, HotKey};
use glasscache_lab::why::watch_keys;

use super::{Observation, process};
use crate::commands::keys::for_each_key;
use crate::commands::why::start_watch;
use crate::output::Failure;
use crate::server_reader::{ServerReader, borrow_rows};
use crate::target::{Target, read_line};

/// What a server replies to a connection above `-c`.
const TOO_MANY_CONNECTIONS: &str = "Too many open connections";
/// How long that may take.
const REFUSAL_WAIT: Duration = Duration::from_millis(300);

/// Observes one server for the time of the observation.
pub(super) fn observe(
    target: &Target,
    reader: &ServerReader,
    observation: &Observation,
) -> Result<Figures, Failure> {
    let before = match reader.read_counters() {
        Err(_) if refuses_connections(target, reader.endpoint()) => {
            return Ok(Figures { refuses_connections: true, ..Figures::default() });
        }
        counters => counters?,
    };
    let proc_folder = find_proc_folder(observation, reader.endpoint());
    let pages_before = proc_folder.map_or(0, process::read_pages_swapped_in);
    let hot_keys = observe_gets(target, reader, observation);
    let now = reader.read_counters()?;
    let pages_swapped_in =
        || proc_folder.map_or(0, process::read_pages_swapped_in).saturating_sub(pages_before);
    let machine = proc_folder.and_then(|folder| process::read_machine(folder, now.pid));
    let connection_rows = reader.read_rows("conns").ok();
    Ok(Figures {
        recent: Some(now.since(&before)),
        seconds: observation.duration.as_secs_f64(),
        eviction_age_s: reader.read_rows("items").ok().and_then(|rows| find_eviction_age(&rows)),
        connections: connection_rows.as_ref().map(|rows| Connections::of(borrow_rows(rows))),
        hot_keys,
        curve: reader.read_rows("curve").ok().map(|rows| Curve::of(borrow_rows(&rows))),
        key_sample: (!observation.is_light)
            .then(|| sample_keys(target, reader.endpoint()))
            .flatten(),
        machine: machine.map(|machine| glasscache_findings::Machine {
            pages_swapped_in: pages_swapped_in(),
            ..machine
        }),
        now,
        ..Figures::default()
    })
}

/// Whether the server refuses a new connection because of `-c`: it then says so before it receives a request.
fn refuses_connections(target: &Target, endpoint: &Endpoint) -> bool {
    let first_line = target.connect(endpoint).and_then(|mut stream| {
        stream.set_read_timeout(REFUSAL_WAIT)?;
        read_line(&mut *stream)
    });
    first_line.is_ok_and(|line| line.contains(TOO_MANY_CONNECTIONS))
}

/// The folder with what the kernel reports of the server, if it is on this machine or the folder is named.
fn find_proc_folder<'o>(observation: &'o Observation, endpoint: &Endpoint) -> Option<&'o Path> {
    let is_local = match endpoint {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp(host, _) => {
            host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
    };
    let kernel_folder = is_local.then_some(Path::new(process::PROC));
    observation.proc_folder.as_deref().or(kernel_folder)
}

/// Waits for the time of the observation; the hottest keys of that time, none where the server cannot be watched.
///
/// A glasscache samples its gets itself, and is watched only as long as its sample has none.
fn observe_gets(target: &Target, reader: &ServerReader, observation: &Observation) -> Vec<HotKey> {
    let started = Instant::now();
    let read_own_sample = || {
        let rows = reader.read_rows("hotkeys 1m requests").unwrap_or_default();
        read_hot_keys(borrow_rows(&rows))
    };
    let is_watched = !observation.is_light && read_own_sample().is_empty();
    let watched = if is_watched {
        watch_gets(target, reader.endpoint(), observation.duration)
    } else {
        Vec::new()
    };
    std::thread::sleep(observation.duration.saturating_sub(started.elapsed()));
    if watched.is_empty() { read_own_sample() } else { watched }
}

fn watch_gets(target: &Target, endpoint: &Endpoint, duration: Duration) -> Vec<HotKey> {
    let mut counts = KeyCounts::default();
    if let Ok((stream, _)) = start_watch(endpoint, target, &["watch fetchers\r\n"]) {
        // A watch that fails midway leaves what it has seen.
        let _ = watch_keys(BufReader::new(stream), duration, &mut |key| counts.push(key));
    }
    counts.hottest()
}

/// How long the last evicted items had not been used, the shortest of all slab classes.
fn find_eviction_age(rows: &[(String, String)]) -> Option<u64> {
    let ages = borrow_rows(rows).filter(|(name, _)| name.ends_with(":evicted_time"));
    ages.filter_map(|(_, age)| age.parse().ok()).filter(|&age: &u64| age > 0).min()
}

/// The first keys of a dump; `None` where the server lists none.
fn sample_keys(target: &Target, endpoint: &Endpoint) -> Option<KeySample> {
    let mut sample = KeySample::default();
    for_each_key(target, endpoint, &mut |fields| Ok(sample.push_line(fields))).ok()?;
    Some(sample)
}
