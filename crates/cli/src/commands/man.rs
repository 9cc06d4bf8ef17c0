//! `glasscache man`: the manual pages, one a subcommand, made from the command line's own definition.

use std::path::PathBuf;

use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache man /usr/local/share/man/man1
  glasscache man . && man ./glasscache-serve.1";

/// Write the manual pages into a folder.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The folder, which must exist
    folder: PathBuf,
}

impl Args {
    /// Writes `glasscache.1` and a page for each subcommand.
    pub(crate) fn run(self, definition: clap::Command, out: &Output) -> Result<Exit, Failure> {
        if out.is_json() {
            return Err(Failure::usage("--json: manual pages have no JSON form"));
        }
        clap_mangen::generate_to(definition, &self.folder).map_err(|error| {
            Failure::new(
                Exit::Unreachable,
                format!("cannot write into {}: {error}", self.folder.display()),
            )
        })?;
        out.print_line(format!("manual pages written to {}", self.folder.display()))?;
        Ok(Exit::Success)
    }
}
