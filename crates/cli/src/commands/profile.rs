//! `glasscache profile`: what a get costs, by size of the value and by number of keys, and where its time goes.

use std::path::PathBuf;
use std::time::Duration;

use glasscache_lab::access::Protocol;
use glasscache_lab::profile::{self, Settings};
use glasscache_lab::target::Target;
use serde_json::Value;

use crate::access;
use crate::files::write_atomically;
use crate::interrupts::new_stop_flag;
use crate::live_target::{LiveTarget, call_failure, new_progress_bar, parse_duration};
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_outcome, write_report_page};
use crate::target::MeasuredServer;

const EXAMPLES: &str = "\
Examples:
  glasscache profile                                   a server started for it
  glasscache profile 10.0.0.5:11211                    any memcached
  glasscache profile cache1:11211 --vs cache2:11211    two servers, interleaved
  glasscache profile cache1:11211 --via pylibmc        another client than ours
  glasscache profile cache1:11211 --protocol binary --user app
                                                       binary, with a login by SASL
  glasscache profile cache1:11211 --for 1h --html day.html";

/// Measure what a get costs, and write the latency table that `simulate` reads.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: MeasuredServer,
    /// Compare with this server, in interleaved rounds
    #[arg(long, value_name = "TARGET")]
    vs: Option<String>,
    /// Measure this Python client instead of ours
    #[arg(long, value_name = "CLIENT", value_parser = ["pylibmc", "pymemcache", "glasscache"])]
    via: Option<String>,
    /// The protocol of the client: auto is meta, or text where the server has no meta
    #[arg(long, value_enum, default_value = "auto")]
    protocol: ClientProtocol,
    /// Calls for each size and width
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    calls: u64,
    /// Sizes of the values, in bytes
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "1,10,100,1000,10000,100000,1000000"
    )]
    sizes: Vec<usize>,
    /// Numbers of keys in a multi-get
    #[arg(long, value_name = "KEYS", value_delimiter = ',', default_value = "1,3,5,10,100")]
    widths: Vec<usize>,
    /// Threads that call at the same time
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "via", value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Calls a second in an open loop, instead of one after the other
    #[arg(long, value_name = "N", conflicts_with = "via", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Repeat for this long, such as 30s or 1h, instead of until the calls are done
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, conflicts_with = "calls")]
    run_for: Option<Duration>,
    /// Where to write the latency table
    #[arg(long, value_name = "FILE", default_value = "latency.json")]
    latency_out: PathBuf,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Seed of the values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print every percentile
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    access: access::Args,
}

/// The values of `--protocol`, those of the clients' own setting.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum ClientProtocol {
    Auto,
    Binary,
}

impl From<ClientProtocol> for Protocol {
    fn from(protocol: ClientProtocol) -> Self {
        match protocol {
            ClientProtocol::Auto => Self::Text,
            ClientProtocol::Binary => Self::Binary,
        }
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok();
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| format!("{text:?}: expected a number above 0"))
}

impl Args {
    /// Measures, prints and writes the table.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        self.check_arguments()?;
        let targets = self.open_targets()?;
        let settings = Settings {
            calls: self.calls as usize,
            sizes: self.sizes.clone(),
            widths: self.widths.clone(),
            threads: self.threads as usize,
            rate: self.rate,
            via: self.via.clone(),
            seed: self.seed,
            run_for: self.run_for,
            stop: new_stop_flag()?,
        };
        let measured_targets: Vec<&Target> = targets.iter().map(|target| &**target).collect();
        let bar = new_progress_bar();
        let outcome = profile::run(&settings, &measured_targets, |done_share| {
            bar.set_position((done_share * 1000.0) as u64);
        });
        bar.finish_and_clear();
        let (outcome, latency_table) = outcome.map_err(|error| call_failure(&error))?;
        let detail = Detail { prints_all: true, is_wide: self.wide };
        let exit = print_outcome(&outcome, out, detail, |error| {
            call_failure(error)
                .with_hint("what was measured before is printed; no file was written")
        })?;
        self.write_latency_table(latency_table)?;
        write_report_page(outcome.report, self.html.as_deref(), &[])?;
        Ok(exit)
    }

    fn check_arguments(&self) -> Result<(), Failure> {
        if self.sizes.iter().any(|&size| size > 1 << 30) {
            return Err(Failure::usage("--sizes: a value has at most 1 GiB (1073741824 bytes)"));
        }
        if self.widths.iter().any(|&width| width == 0 || width > 10_000) {
            return Err(Failure::usage("--widths: a multi-get has 1 to 10000 keys"));
        }
        if self.vs.is_some() && self.target.address().is_none() {
            return Err(Failure::usage("--vs compares with a target: name that one, too"));
        }
        if self.target.address().is_none() && self.access.is_given() {
            return Err(access::missing_target_failure());
        }
        if self.via.is_some() && self.access.is_given() {
            return Err(Failure::usage(
                "--via: another client is measured without TLS and without a login",
            ));
        }
        if self.via.as_deref() == Some("pymemcache") && self.protocol == ClientProtocol::Binary {
            return Err(Failure::usage("--via pymemcache: it does not speak binary")
                .with_hint("pylibmc and glasscache do"));
        }
        Ok(())
    }

    fn open_targets(&self) -> Result<Vec<LiveTarget>, Failure> {
        let credentials = self.access.read_credentials()?;
        let open = |address| LiveTarget::open(address, &credentials, self.protocol.into());
        let mut targets = vec![open(self.target.address())?];
        if let Some(vs_address) = &self.vs {
            targets.push(open(Some(vs_address))?);
        }
        Ok(targets)
    }

    fn write_latency_table(&self, latency_table: Option<Value>) -> Result<(), Failure> {
        if let Some(latency_table) = latency_table {
            let text = format!("{latency_table:#}\n");
            write_atomically(&self.latency_out, text.as_bytes())?;
            eprintln!("latency table written to {}", self.latency_out.display());
        } else {
            eprintln!(
                "note: {} is not written, for a latency table needs sizes from 1 byte on and widths that the server stores",
                self.latency_out.display()
            );
        }
        Ok(())
    }
}
