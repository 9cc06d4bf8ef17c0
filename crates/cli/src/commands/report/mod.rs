//! `glasscache report`: the results in a folder as one page, with machine, versions and the commands to repeat them.
//!
//! A result is a file that a command printed with `--json`, or that `bench --keep` wrote. The page shows what each
//! says: its sentence first, then its figures as tables, and charts of the curves and profiles.

mod page;
mod result;

use std::path::{Path, PathBuf};

use glasscache_lab::text::wrap;
use serde_json::{Value, json};

use crate::output::{Exit, Failure, Output};
use crate::page_file;
use result::ResultFile;

const EXAMPLES: &str = "\
Examples:
  glasscache profile cache1:11211 --json > results/profile.json
  glasscache curve trace.parquet --json > results/curve.json
  glasscache report results                      writes results/report.html";

/// Show the results in a folder as one page.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folder with results: files *.json of commands with --json, or of `bench --keep`
    folder: PathBuf,
    /// Where to write the page [default: report.html in the folder]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    /// Reads the results, writes the page and lists them.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        let (results, left_out) = read_folder(&self.folder)?;
        if results.is_empty() {
            let folder = self.folder.display();
            return Err(Failure::new(
                Exit::BadData,
                format!("no result of a command is in {folder}"),
            )
            .with_hint("glasscache profile --json > FOLDER/profile.json writes one"));
        }
        let path = self.html.unwrap_or_else(|| self.folder.join("report.html"));
        let folder_name = self.folder.file_name().unwrap_or(self.folder.as_os_str());
        let page = page::build_page(&folder_name.to_string_lossy(), &results, &left_out);
        page_file::write(&path, page, &[])?;
        if out.is_json() {
            let list_entries: Vec<Value> = results.iter().map(ResultFile::to_list_entry).collect();
            out.set_result(&json!({ "page": path, "results": list_entries, "left_out": left_out }));
            return Ok(Exit::Success);
        }
        let result_count = results.len();
        let noun = if result_count == 1 { "result" } else { "results" };
        out.print_line(wrap(&format!("{result_count} {noun} on {}.", path.display())))?;
        for result in &results {
            out.print_line(format!("\n{}: {}", result.name, result.command_line()))?;
            out.print_line(wrap(&result.find_sentence()))?;
        }
        if !left_out.is_empty() {
            let note = format!("Left out, because they are not results: {}.", left_out.join(", "));
            out.print_line(format!("\n{}", wrap(&note)))?;
        }
        Ok(Exit::Success)
    }
}

/// The results of a folder by file name, and the names of JSON files that are not results.
fn read_folder(folder: &Path) -> Result<(Vec<ResultFile>, Vec<String>), Failure> {
    let read_failure = |path: &Path, error: std::io::Error| {
        Failure::new(Exit::Unreachable, format!("cannot read {}: {error}", path.display()))
    };
    let entries = std::fs::read_dir(folder).map_err(|error| read_failure(folder, error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort_unstable();
    let (mut results, mut left_out) = (Vec::new(), Vec::new());
    for path in paths {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = std::fs::read(&path).map_err(|error| read_failure(&path, error))?;
        let document: Value = serde_json::from_slice(&bytes).map_err(|error| {
            let message = format!("{}: not a JSON document: {error}", path.display());
            Failure::new(Exit::BadData, message)
                .with_hint("it may have been cut; write it again, or remove it")
        })?;
        match ResultFile::from_document(&file_name, &document) {
            Some(result) => results.push(result),
            None => left_out.push(file_name.into_owned()),
        }
    }
    Ok((results, left_out))
}
