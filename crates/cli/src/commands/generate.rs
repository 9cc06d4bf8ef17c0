//! `glasscache generate`: generated workloads, for trying the tools without recorded data.
//!
//! A key stream is written to one file whose name determines the format, a request log to a folder.
//! docs/reference/formats.md describes both; `glasscache_sim` generates them.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use glasscache_lab::text::{format_count, wrap};
use glasscache_sim::trace::generate::keys::KeyWorkload;
use glasscache_sim::trace::generate::topic_tree::{LATENCY_JSON, TopicTreeConfig, topic_tree};
use glasscache_sim::trace::generate::twitter::{CLUSTERS, twitter_cluster};
use glasscache_sim::trace::writer::Writer;
use glasscache_sim::trace::{Batch, Format};
use serde_json::json;

use crate::files::{AtomicFile, to_write_failure, write_atomically};
use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache generate zipf keys.parquet --requests 1000000 --keys 100000 --skew 0.9
  glasscache generate twitter-cluster 12 cluster12.csv
  glasscache generate topic-tree log/";

/// Generate a workload; the same seed gives the same workload.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    workload: WorkloadArgs,
}

#[derive(Subcommand)]
enum WorkloadArgs {
    /// A key stream: rank k as often as 1 / k^skew
    Zipf(ZipfArgs),
    /// A key stream after the published figures of one of Twitter's clusters
    TwitterCluster(ClusterArgs),
    /// A request log: visitors of a site of topics, pages and lessons
    TopicTree(TreeArgs),
}

#[derive(clap::Args)]
struct ZipfArgs {
    /// File to write: .parquet, .csv or .jsonl
    file: PathBuf,
    /// Requests in all
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
    /// Keys to draw from
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Exponent; 0 for a uniform distribution
    #[arg(long, default_value_t = 1.0)]
    skew: f64,
    /// Mean bytes of a value, log-normal; without it no sizes are written
    #[arg(long, value_name = "BYTES", default_value_t = 0.0, hide_default_value = true)]
    size: f64,
    /// Share of requests that read; the others write
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    reads: f64,
    /// Seed of the draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct ClusterArgs {
    /// Number of the cluster, 1 to 54
    cluster: u32,
    /// File to write: .parquet, .csv or .jsonl
    file: PathBuf,
    /// Requests in all
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
    /// Seed of the draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(clap::Args)]
struct TreeArgs {
    /// Folder to write to
    folder: PathBuf,
    /// Requests in all
    #[arg(long, default_value_t = 200_000)]
    requests: u32,
    /// Items of the site
    #[arg(long, default_value_t = 20_000)]
    items: u32,
    /// Application processes that serve the requests
    #[arg(long, default_value_t = 4)]
    instances: u16,
    /// Format of the files
    #[arg(long, value_enum, default_value = "parquet")]
    format: LogFormat,
    /// Seed of the draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// items.parquet and requests.parquet
    Parquet,
    /// items.jsonl and requests.jsonl
    Jsonl,
}

impl Args {
    /// Writes the workload and prints where.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        match self.workload {
            WorkloadArgs::Zipf(args) => args.run(out),
            WorkloadArgs::TwitterCluster(args) => args.run(out),
            WorkloadArgs::TopicTree(args) => args.run(out),
        }
    }
}

impl ZipfArgs {
    fn run(self, out: &Output) -> Result<Exit, Failure> {
        if !(0.0..=10.0).contains(&self.skew) {
            return Err(Failure::usage(format!("--skew is from 0 to 10, not {}", self.skew)));
        }
        if self.keys == 0 || self.keys > 1 << 40 {
            return Err(Failure::usage(format!("--keys is from 1 to 2^40, not {}", self.keys)));
        }
        let workload = KeyWorkload {
            requests: self.requests,
            keys: self.keys,
            skew: self.skew,
            size_mean: self.size,
            read_share: self.reads,
            seed: self.seed,
            ..KeyWorkload::default()
        };
        write_keys(out, workload, &self.file)
    }
}

impl ClusterArgs {
    fn run(self, out: &Output) -> Result<Exit, Failure> {
        let workload =
            twitter_cluster(self.cluster, self.requests, self.seed).ok_or_else(|| {
                let cluster = self.cluster;
                Failure::usage(format!("no figures were published of a cluster {cluster}"))
                    .with_hint(format!(
                        "clusters are numbered 1 to {CLUSTERS}; number 5 has no figures"
                    ))
            })?;
        write_keys(out, workload, &self.file)
    }
}

impl TreeArgs {
    fn run(self, out: &Output) -> Result<Exit, Failure> {
        let Self { requests, items, instances, seed, .. } = self;
        let request_log = topic_tree(&TopicTreeConfig { requests, items, instances, seed });
        let write_failure = |error| to_write_failure(&self.folder, &error);
        let replaces_existing = self.folder.join("latency.json").exists();
        std::fs::create_dir_all(&self.folder).map_err(write_failure)?;
        let (mut items_content, mut requests_content) = (Vec::new(), Vec::new());
        let extension = match self.format {
            LogFormat::Parquet => {
                request_log
                    .write_parquet(&mut items_content, &mut requests_content)
                    .map_err(write_failure)?;
                "parquet"
            }
            LogFormat::Jsonl => {
                request_log
                    .write_jsonl(&mut items_content, &mut requests_content)
                    .map_err(write_failure)?;
                "jsonl"
            }
        };
        let write = |name: String, bytes: &[u8]| write_atomically(&self.folder.join(name), bytes);
        write(format!("items.{extension}"), &items_content)?;
        write(format!("requests.{extension}"), &requests_content)?;
        write("latency.json".to_owned(), LATENCY_JSON.as_bytes())?;
        let next_command = format!("glasscache inspect {}", self.folder.display());
        report_written(
            out,
            &self.folder,
            request_log.requests.len() as u64,
            replaces_existing,
            &next_command,
        )
    }
}

/// Writes a key stream to a file.
fn write_keys(out: &Output, workload: KeyWorkload, path: &Path) -> Result<Exit, Failure> {
    let format =
        Format::of(&path.to_string_lossy()).map_err(|error| Failure::usage(error.to_string()))?;
    let write_failure = |error| to_write_failure(path, &error);
    let replaces_existing = path.exists();
    let file = AtomicFile::create(path).map_err(write_failure)?;
    let mut writer = Writer::new(format, BufWriter::new(file)).map_err(write_failure)?;
    let (mut key_stream, mut batch, mut request_count) = (workload.start(), Batch::default(), 0);
    while key_stream.read(&mut batch) > 0 {
        request_count += batch.len() as u64;
        writer.write(&batch).map_err(write_failure)?;
    }
    let buffered_file = writer.finish().map_err(write_failure)?;
    let file = buffered_file.into_inner().map_err(|error| write_failure(error.into_error()))?;
    file.finish().map_err(write_failure)?;
    let next_command = format!("glasscache curve {}", path.display());
    report_written(out, path, request_count, replaces_existing, &next_command)
}

/// Prints what was written, whether it replaced something, and the command to try next.
fn report_written(
    out: &Output,
    path: &Path,
    request_count: u64,
    replaces_existing: bool,
    next_command: &str,
) -> Result<Exit, Failure> {
    if out.is_json() {
        let path_text = path.to_string_lossy();
        out.set_result(&json!({ "written": path_text, "requests": request_count,
            "replaced": replaces_existing }));
    } else {
        let verb = if replaces_existing { "replaced with" } else { "written," };
        out.print_line(wrap(&format!(
            "{} {verb} {} requests",
            path.display(),
            format_count(request_count)
        )))?;
        out.print_line(format!("next: {next_command}"))?;
    }
    Ok(Exit::Success)
}
