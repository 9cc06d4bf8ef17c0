//! `glasscache inspect`: what is in a trace, before anything is computed from it.
//!
//! A file is read as a key stream, a folder as a request log; either is read to its end, so a fault anywhere is found.

mod fact;
mod key_stream;
mod request_log;

use std::path::PathBuf;

use glasscache_lab::text::{format_two_columns, wrap};
use glasscache_sim::page::{Page, Table};
use serde_json::{Value, json};

use crate::output::{Exit, Failure, Output};
use crate::page_file;
use crate::page_table::format_first_rows;
use crate::traces::InputArgs;
use fact::Fact;

const EXAMPLES: &str = "\
Examples:
  glasscache inspect requests.parquet
  glasscache inspect recorded/ --html recorded.html
  glasscache inspect export.csv --key-column url --size-column bytes";

/// What is in this trace?
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Key stream (.parquet, .csv, .jsonl, or a log) or folder of a request log
    trace: PathBuf,
    /// Print up to a thousand of the most used items and prefixes of a request log, not only six
    #[arg(long)]
    all: bool,
    /// Write what it holds as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
}

/// What a trace holds.
struct Contents {
    facts: Vec<Fact>,
    /// For the terminal and the page, after the facts.
    tables: Vec<Table>,
    sentence: String,
}

impl Args {
    /// Reads the trace and prints what it holds.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let contents = if self.trace.is_dir() {
            request_log::inspect(&self.trace)?
        } else {
            key_stream::inspect(&self.trace, &self.input)?
        };
        if out.is_json() {
            out.set_result(&contents.to_document());
        } else {
            out.print_line(wrap(&contents.sentence))?;
            out.print_line("")?;
            out.print_bytes(format_two_columns(contents.listed_facts()).as_bytes())?;
            for table in &contents.tables {
                out.print_line("")?;
                out.print_bytes(format_first_rows(table, None, self.all).as_bytes())?;
            }
        }
        if let Some(path) = &self.html {
            let title = format!("What is in {}", self.trace.display());
            page_file::write(path, contents.into_page(title), &[&self.trace])?;
        }
        Ok(Exit::Success)
    }
}

/// Rows of a table on the page.
const PAGE_ROWS_MAX: usize = 50;

fn limit_page_rows(mut table: Table) -> Table {
    table.rows.truncate(PAGE_ROWS_MAX);
    table
}

impl Contents {
    /// Name and text of each fact that no table has.
    fn listed_facts(&self) -> impl Iterator<Item = (String, String)> {
        let listed = self.facts.iter().filter(|fact| !fact.is_in_table);
        listed.map(|fact| (fact.name.replace('_', " "), fact.format_value()))
    }

    fn to_document(&self) -> Value {
        let mut document = json!({ "sentence": self.sentence });
        for fact in &self.facts {
            document[fact.name] = fact.value.clone();
        }
        document
    }

    fn into_page(self, title: String) -> Page {
        let facts_table = Table {
            title: "Counts".to_owned(),
            header: vec!["name".to_owned(), "value".to_owned()],
            rows: self.listed_facts().map(|(name, text)| vec![name, text]).collect(),
        };
        Page {
            title,
            sentence: self.sentence,
            tables: std::iter::once(facts_table)
                .chain(self.tables.into_iter().map(limit_page_rows))
                .collect(),
            ..Page::default()
        }
    }
}
