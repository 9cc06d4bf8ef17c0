//! `glasscache completions`: the completion script of a shell, made from the command line's own definition.

use clap_complete::{Shell, generate};

use crate::output::{Exit, Failure, Output};

const EXAMPLES: &str = "\
Examples:
  glasscache completions bash > /etc/bash_completion.d/glasscache
  glasscache completions zsh > \"${fpath[1]}/_glasscache\"
  glasscache completions fish > ~/.config/fish/completions/glasscache.fish";

/// Print completions for a shell.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Prints the script.
    pub(crate) fn run(self, mut definition: clap::Command, out: &Output) -> Result<Exit, Failure> {
        if out.is_json() {
            return Err(Failure::usage("--json: a completion script has no JSON form"));
        }
        let mut script = Vec::new();
        generate(self.shell, &mut definition, "glasscache", &mut script);
        out.print_bytes(&script)?;
        Ok(Exit::Success)
    }
}
