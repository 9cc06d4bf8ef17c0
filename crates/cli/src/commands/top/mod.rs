//! `glasscache top`: what servers are doing, as one table that is refreshed.
//!
//! The first columns are those of memcached's `damemtop`. All figures are differences of `stats`, so that they are the
//! same for memcached and glasscache. Without a terminal the table is printed once.

mod sampler;
mod screen;
mod table;

use self::sampler::{Sample, Sampler};
use self::table::{TABLE_WIDTH_MAX, Table};
use crate::discovery;
use crate::output::{Exit, Failure, Output};
use crate::seconds;
use crate::server_reader::ServerReader;
use crate::target::Target;

const EXAMPLES: &str = "\
Examples:
  glasscache top
  glasscache top cache1:11211 cache2:11211
  glasscache top --discover dns:cache.internal:11211
  glasscache top --interval 10           figures over ten seconds
  glasscache top --once                  print the table once
  glasscache top --once --json | jq '.result[].hit_ratio'

The hit ratio and the rates are those of the last interval; - means not known yet. With --discover the list of servers \
is read again every five seconds.

Keyboard: left and right choose the column to sort by, r reverses the order, o restores the order of the servers, q quits.";

/// Show what servers are doing, in a table that is refreshed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Servers as host:port or path of a unix socket, instead of --server
    #[arg(value_name = "TARGET")]
    positional_servers: Vec<String>,
    /// Seconds between two refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Print the table once, after one interval; implied by --json and where stdout is not a terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    discovery: discovery::Args,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// Shows the table until it is ended, or prints it once.
    pub(crate) fn run(mut self, out: &Output) -> Result<Exit, Failure> {
        if !self.positional_servers.is_empty() {
            self.target.use_positional(Some(self.positional_servers.join(",")));
        }
        let interval = seconds::to_duration("--interval", self.interval)?;
        self.discovery.apply_to(&mut self.target)?;
        let readers = ServerReader::open_all(&self.target)?;
        if !self.once && !out.is_json() && out.is_terminal() {
            let found = self.discovery.keep_looking(&self.target)?;
            screen::run(Sampler::new(readers, found), interval)?;
            return Ok(Exit::Success);
        }
        let mut sampler = Sampler::new(readers, None);
        sampler.sample();
        std::thread::sleep(interval);
        print_once(sampler.sample(), out)
    }
}

/// Prints the rows; fails if no server responded.
fn print_once(sample: Sample, out: &Output) -> Result<Exit, Failure> {
    let rows = sample.rows;
    out.begin_list();
    if out.is_json() {
        for row in &rows {
            out.print_row(&row.to_document())?;
        }
    } else {
        let table = Table::new(&rows, TABLE_WIDTH_MAX);
        out.print_line(table.header())?;
        for line in table.lines() {
            out.print_line(line.text.trim_end())?;
        }
    }
    if rows.iter().any(|row| row.figures.is_ok()) {
        return Ok(Exit::Success);
    }
    let failures = rows.into_iter().filter_map(|row| row.figures.err()).collect();
    Failure::join(failures).map_or(Ok(Exit::Success), Err)
}
