//! `glasscache slabs`: the memory waste of a memcached, and the classes that would waste least.
//!
//! Without a source it prints the classes of the settings. With one (a running server, a trace, a
//! histogram) it shows the waste of each class and compares factors, the exact optimum and segments.

mod plan_input;
mod source;
mod tables;

use std::path::{Path, PathBuf};

use glasscache_sim::slabs::classes::{SlabClasses, SlabConfig};
use glasscache_sim::slabs::optimum::SIZES_MAX;
use glasscache_sim::strategy::parse_bytes;
use serde_json::json;

use crate::access;
use crate::output::{Exit, Failure, Output};
use crate::report::{Detail, print_report, write_report_page};
use crate::traces::InputArgs;

/// The memory limit of a source that has none.
const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;

const EXAMPLES: &str = "\
A source is HOST:PORT of a running server, a trace (.parquet, .csv, .jsonl with a column size), or a \
histogram: a CSV file whose header is `size,count` (bytes of the value; keys of --key-bytes) or \
`item_bytes,count` (memcached's measure, header included).

Examples:
  glasscache slabs --factor 1.08 --json                chunk sizes of -f 1.08
  glasscache slabs 127.0.0.1:11211                     a running memcached
  glasscache slabs sizes.csv --memory 1g --classes 40";

/// Show the waste of memcached's slab classes, and the best possible classes
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// HOST:PORT of a server, a trace, or a histogram of sizes
    source: Option<String>,
    /// Growth factor, as -f of memcached
    #[arg(short, long, default_value_t = 1.25, value_name = "F")]
    factor: f64,
    /// Minimum space for key, value and flags in bytes, as -n of memcached
    #[arg(id = "chunk", short = 'n', long = "chunk", default_value_t = 48, value_name = "BYTES")]
    chunk_bytes_min: u32,
    /// Largest item, as -I of memcached
    #[arg(short = 'I', long, default_value = "1m", value_name = "BYTES")]
    item_max: String,
    /// Largest chunk, as `-o slab_chunk_max` of memcached
    #[arg(long, default_value = "512k", value_name = "BYTES")]
    slab_chunk_max: String,
    /// Explicit chunk sizes, as `-o slab_sizes` of memcached: 96-208-1024
    #[arg(long, value_delimiter = '-', value_name = "SIZES")]
    slab_sizes: Option<Vec<u32>>,
    /// Maximum number of classes of the optimum (memcached accepts 62)
    #[arg(short = 'k', long, default_value_t = SIZES_MAX as u32, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=62))]
    classes: u32,
    /// Memory limit for which the number of items is computed [default: -m of the server, else 1g]
    #[arg(short, long, value_name = "BYTES")]
    memory: Option<String>,
    /// Bytes of a key if the source has no key sizes
    #[arg(long, default_value_t = 30, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=250))]
    key_bytes: u32,
    /// Print every class and setting, not only the first six
    #[arg(long)]
    all: bool,
    /// Also write a web page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    trace_options: InputArgs,
    #[command(flatten)]
    access: access::Args,
}

impl Args {
    /// Prints the classes, or their cost.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let config = self.build_config()?;
        config.check().map_err(|error| Failure::usage(error.to_string()))?;
        let Some(source) = &self.source else {
            return print_classes(out, &config);
        };
        let memory_bytes = self.memory.as_deref().map(|text| parse_amount(text, "--memory"));
        let memory_bytes = memory_bytes.transpose()?;
        let plan_input =
            source::read(source, config, self.key_bytes, &self.trace_options, &self.access)?;
        let memory_bytes = memory_bytes.or(plan_input.memory_bytes).unwrap_or(MEMORY_BYTES_DEFAULT);
        let comparison = tables::Comparison::new(&plan_input, memory_bytes, self.classes as usize);
        let report = comparison.to_report();
        print_report(&report, out, Detail { prints_all: self.all, is_wide: false })?;
        write_report_page(report, self.html.as_deref(), &self.source_files())?;
        Ok(Exit::Success)
    }

    /// The file that the sizes come from, if one is read.
    fn source_files(&self) -> Vec<&Path> {
        let source = self.source.as_deref().map(Path::new);
        source.filter(|path| path.exists()).into_iter().collect()
    }

    fn build_config(&self) -> Result<SlabConfig, Failure> {
        let parse_u32_amount = |text: &str, flag: &str| {
            let amount = parse_amount(text, flag)?;
            u32::try_from(amount)
                .map_err(|_| Failure::usage(format!("{text} is more than 4 GiB ({flag})")))
        };
        Ok(SlabConfig {
            factor: self.factor,
            chunk_bytes_min: self.chunk_bytes_min,
            item_bytes_max: parse_u32_amount(&self.item_max, "--item-max")?,
            slab_chunk_bytes_max: parse_u32_amount(&self.slab_chunk_max, "--slab-chunk-max")?,
            slab_sizes: self.slab_sizes.clone(),
        })
    }
}

/// The classes alone, as `memcached -vv` prints them.
fn print_classes(out: &Output, config: &SlabConfig) -> Result<Exit, Failure> {
    let classes = SlabClasses::new(config);
    if out.is_json() {
        out.set_result(&json!({ "chunk_sizes": classes.chunk_sizes() }));
    } else {
        out.print_bytes(classes.to_string().as_bytes())?;
    }
    Ok(Exit::Success)
}

fn parse_amount(text: &str, flag: &str) -> Result<u64, Failure> {
    parse_bytes(text).ok_or_else(|| {
        Failure::usage(format!("`{text}` is not a number of bytes such as 64m ({flag})"))
    })
}
