//! `record --listen`: a request log of a program that cannot be changed, by a proxy in front of its server.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use glasscache_lab::record::proxy::{Proxy, ProxyError, ProxyStats};
use glasscache_lab::text::{format_count, wrap};
use glasscache_record::Options;
use serde_json::json;

use super::Args;
use crate::interrupts::new_stop_flag;
use crate::output::{Exit, Failure, Output};

/// How soon the end is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Records until Ctrl-C, or for as long as `--for` says.
pub(super) fn run(
    args: &Args,
    (listen, server): (&str, &str),
    out: &Output,
) -> Result<Exit, Failure> {
    let options = Options {
        sample: args.sample_share.unwrap_or(1.0),
        salt: args.salt.as_ref().map(|salt| salt.as_bytes().to_vec()),
        ..Options::new(&args.out_path)
    };
    let stop = new_stop_flag()?;
    let gap = Duration::from_millis(args.gap_ms);
    let proxy = Proxy::start(listen, server, options, gap).map_err(|error| match error {
        ProxyError::Listen(error) => {
            Failure::new(Exit::Unreachable, format!("listening on {listen} failed: {error}"))
                .with_hint("--listen takes a free address such as 127.0.0.1:11212")
        }
        ProxyError::Options(error) => Failure::usage(error.to_string()),
    })?;
    eprintln!("listening on {}, in front of {server}; Ctrl-C ends the log", proxy.address());
    let started = Instant::now();
    let is_time_over = || args.duration.is_some_and(|duration| started.elapsed() >= duration);
    while !stop.load(Ordering::Relaxed) && !is_time_over() {
        std::thread::sleep(POLL_INTERVAL);
        if let Some(warning) = proxy.take_warning() {
            eprintln!("warning: {warning}");
        }
    }
    let stats = proxy.stop();
    report(args, &stats, out)?;
    let is_incomplete = stats.dropped_requests > 0 || stats.refused_connections > 0;
    Ok(if is_incomplete { Exit::Finding } else { Exit::Success })
}

fn report(args: &Args, stats: &ProxyStats, out: &Output) -> Result<(), Failure> {
    if out.is_json() {
        out.set_result(&json!(stats));
        return Ok(());
    }
    let folder = args.out_path.display();
    out.print_line(wrap(&format!(
        "{folder}: {} requests of {} connections, {} keys read, {} writes",
        format_count(stats.recorded_requests),
        format_count(stats.connections),
        format_count(stats.reads),
        format_count(stats.writes),
    )))?;
    out.print_line(wrap(&format!(
        "the proxy's own part of the hop: {:.1} us in each direction",
        stats.hop_us
    )))?;
    let problems = [
        (stats.refused_connections, "connections were closed: the server could not be reached"),
        (
            stats.unrecorded_connections,
            "connections were passed on and not recorded: neither text nor meta",
        ),
        (
            stats.dropped_requests,
            "requests are not in the log: no memory was left, or the folder cannot be written",
        ),
    ];
    for (problem_count, problem) in problems {
        if problem_count > 0 {
            out.print_line(wrap(&format!("{} {problem}", format_count(problem_count))))?;
        }
    }
    out.print_line(format!("next: glasscache inspect {folder}"))
}
