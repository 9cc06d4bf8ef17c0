//! `glasscache doctor`: what is wrong with a server, and which setting would change it.
//!
//! Observes each server for some seconds (`observe`) and prints the findings of `glasscache_findings`, which also the
//! page of a server has. With a memcached it works from its statistics, a sample of its keys and its watch.

mod observe;
mod process;

use std::path::PathBuf;
use std::time::Duration;

use glasscache_findings::{Figures, Finding, find};
use glasscache_lab::report::{Report, ReportTable};
use glasscache_lab::text::{format_count_of, format_duration};
use serde_json::{Value, json};

use crate::discovery;
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_report};
use crate::seconds;
use crate::server_reader::ServerReader;
use crate::target::Target;

const EXAMPLES: &str = "\
Examples:
  glasscache doctor
  glasscache doctor cache1:11211 cache2:11211
  glasscache doctor --seconds 60 cache1  rates and hot keys over a minute
  glasscache doctor --discover dns:cache.internal:11211
  glasscache doctor --json | jq '.result.findings[0].sentence'
  glasscache doctor || echo \"something to change\"

The exit code is 1 if anything was found. From each server it reads the statistics, the fields of the first 10,000 keys \
(lru_crawler metadump), and the gets while it is observed (watch); --light leaves out the last two.";

/// Print what is wrong with a server, and what to change.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Servers as host:port or path of a unix socket, instead of --server
    #[arg(value_name = "TARGET")]
    positional_servers: Vec<String>,
    /// How long each server is observed
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// Statistics only: no sample of the keys, no watch of the gets
    #[arg(long)]
    light: bool,
    /// Folder with what the kernel reports: PID/status and vmstat [default: /proc, of servers on this machine]
    #[arg(long, value_name = "FOLDER", env = "GLASSCACHE_PROC", hide_env_values = true)]
    proc: Option<PathBuf>,
    #[command(flatten)]
    discovery: discovery::Args,
    #[command(flatten)]
    target: Target,
}

/// How servers are observed.
struct Observation {
    duration: Duration,
    is_light: bool,
    proc_folder: Option<PathBuf>,
}

/// One server with its figures, or why there are none.
type Observed = (String, Result<Figures, Failure>);

impl Args {
    /// Observes the servers and prints the findings.
    pub(crate) fn run(mut self, out: &Output) -> Result<Exit, Failure> {
        if !self.positional_servers.is_empty() {
            self.target.use_positional(Some(self.positional_servers.join(",")));
        }
        self.discovery.apply_to(&mut self.target)?;
        let duration = seconds::to_duration("--seconds", self.seconds)?;
        let readers = ServerReader::open_all(&self.target)?;
        let server_count = format_count_of(readers.len() as u64, "server", "servers");
        eprintln!("observing {server_count} for {} ...", format_duration(duration));
        let observation =
            Observation { duration, is_light: self.light, proc_folder: self.proc.clone() };
        let (mut findings, mut failures, mut observed_servers) =
            (Vec::new(), Vec::new(), Vec::new());
        for (server, figures) in observe_all(&self.target, &readers, &observation) {
            match figures {
                Ok(figures) => {
                    let found = find(&figures);
                    observed_servers.push((server.clone(), figures, found.len()));
                    findings.extend(found.into_iter().map(|finding| (server.clone(), finding)));
                }
                Err(failure) => failures.push(failure),
            }
        }
        sort_by_importance(&mut findings);
        if !observed_servers.is_empty() {
            let report = build_report(&observed_servers, &findings, duration);
            print_report(&report, out, Detail::default())?;
        }
        let exit = if findings.is_empty() { Exit::Success } else { Exit::Finding };
        Failure::join(failures).map_or(Ok(exit), Err)
    }
}

/// Observes all servers at the same time, each on a thread of its own.
fn observe_all(
    target: &Target,
    readers: &[ServerReader],
    observation: &Observation,
) -> Vec<Observed> {
    std::thread::scope(|scope| {
        let observers: Vec<_> = readers
            .iter()
            .map(|reader| scope.spawn(move || observe::observe(target, reader, observation)))
            .collect();
        let results = observers.into_iter().map(|observer| {
            observer
                .join()
                .unwrap_or_else(|_| Err(Failure::new(Exit::BadData, "the observation ended early")))
        });
        readers.iter().map(ToString::to_string).zip(results).collect()
    })
}

/// The most important findings first, of whichever server.
fn sort_by_importance(findings: &mut [(String, Finding)]) {
    findings.sort_by_key(|(_, finding)| {
        glasscache_findings::KINDS.iter().position(|kind| kind.id == finding.id)
    });
}

fn build_report(
    servers: &[(String, Figures, usize)],
    findings: &[(String, Finding)],
    duration: Duration,
) -> Report {
    let server_rows: Vec<Value> = servers
        .iter()
        .map(|(server, figures, finding_count)| {
            json!({ "server": server, "version": figures.now.version, "uptime_s": figures.now.uptime_s,
                "findings": finding_count })
        })
        .collect();
    let finding_rows: Vec<Value> = findings
        .iter()
        .map(|(server, finding)| {
            let mut row = json!(finding);
            row["server"] = json!(server);
            row
        })
        .collect();
    Report {
        title: "Findings".to_owned(),
        sentence: format_sentence(servers, findings),
        tables: findings
            .iter()
            .enumerate()
            .map(|(index, (server, finding))| build_finding_table(index, server, finding))
            .collect(),
        result: json!({ "seconds": duration.as_secs_f64(), "servers": server_rows, "findings": finding_rows }),
        ..Report::default()
    }
}

fn format_sentence(servers: &[(String, Figures, usize)], findings: &[(String, Finding)]) -> String {
    let names = match servers {
        [(server, ..)] => server.clone(),
        servers => format_count_of(servers.len() as u64, "server", "servers"),
    };
    match findings.len() {
        0 => format!("{names}: nothing to change."),
        count => format!("{names}: {}.", format_count_of(count as u64, "finding", "findings")),
    }
}

fn build_finding_table(index: usize, server: &str, finding: &Finding) -> ReportTable {
    let title = format!("{}. {server}: {}", index + 1, finding.sentence);
    let gain = vec!["brings".to_owned(), finding.gain.clone()];
    ReportTable::new(title, ["change", finding.setting.as_str()], [gain])
}
