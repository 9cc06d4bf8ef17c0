//! The command line: one line per subcommand, in the order of the help.
//!
//! To add a command, write `commands/<name>.rs` with a clap `Args` struct and
//! `run(self, &Output) -> Result<Exit, Failure>`, and add one line to `commands!` below.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands;
use crate::ineffective_settings;
use crate::output::{Exit, Failure, Output};
use crate::version::version_text;

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 a finding or a failed check, 2 wrong usage, 3 cannot reach or cannot open, \
4 the data cannot be understood.

Examples:
  glasscache serve -m 1024 -t 4          a server with one gigabyte
  glasscache -m 1024 -t 4                the same, as memcached is started
  glasscache set greeting hello          store a value on 127.0.0.1:11211
  glasscache get greeting                and read it back
  glasscache tour ~/photos --vs          what a folder costs here and in memcached
  glasscache generate topic-tree site    a made-up request log ...
  glasscache simulate site               ... and what its requests would have waited";

/// A memcached-compatible cache that you can see through: server, lab and tools.
#[derive(Parser)]
#[command(name = "glasscache", version = version_text(), propagate_version = true, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// Print results as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The second list contains the commands that need the definition of the command line.
macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident => $module:ident,)*;
     $($(#[$printer_doc:meta])* $printer:ident => $printer_module:ident,)*) => {
        /// Every subcommand.
        #[derive(Subcommand)]
        pub(crate) enum Command {
            $($(#[$doc])* $variant(commands::$module::Args),)*
            $($(#[$printer_doc])* $printer(commands::$printer_module::Args),)*
        }

        impl Command {
            /// Runs the chosen command.
            pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
                match self {
                    $(Command::$variant(args) => args.run(out),)*
                    $(Command::$printer(args) => args.run(Cli::command(), out),)*
                }
            }
        }
    };
}

commands! {
    /// Run the server, with memcached's flags
    Serve => serve,
    /// Stop a server of this machine
    Stop => stop,
    /// Fill a server with the items of another
    Warm => warm,
    /// Show or check the server's settings and where each comes from
    Config => config,
    /// Check whether a server responds
    Ping => ping,
    /// Print the values of keys
    Get => get,
    /// Store a value
    Set => set,
    /// Remove keys
    Delete => delete,
    /// Print a summary of a server, or its counters
    Stats => stats,
    /// Show what servers are doing, in a table that is refreshed
    Top => top,
    /// Print what is wrong with a server, and what to change
    Doctor => doctor,
    /// Explain a server's hit ratio: which gets miss, and why
    Why => why,
    /// List the keys of a server
    Keys => keys,
    /// Measure what a get costs, by size and number of keys, and where its time goes
    Profile => profile,
    /// Put load on a server, or compare this one with a memcached
    Bench => bench,
    /// Measure what serialising and compressing values costs, and recommend a codec
    Codec => codec,
    /// Store a folder in a temporary server, read it back and measure the cost
    Tour => tour,
    /// Record what a server is asked for
    Record => record,
    /// How much memory a trace needs, under which policy
    Curve => curve,
    /// Generate a workload
    Generate => generate,
    /// Summarise the contents of a trace
    Inspect => inspect,
    /// Replay a request log under strategies: what would each request have waited?
    Simulate => simulate,
    /// Make recorded requests again under a strategy, and compare with the forecast
    Replay => replay,
    /// Compare the requests that run a strategy with the others: continue, wait or roll back?
    Rollout => rollout,
    /// Show the waste of memcached's slab classes, and the best possible classes
    Slabs => slabs,
    /// Show the results in a folder as one page
    Report => report,
    /// Explain or purge what the HTTP cache of an application stores
    Web => web,
    ;
    /// Print completions for a shell
    Completions => completions,
    /// Write the manual pages
    Man => man,
}

/// The command line of this process, the words of its command, such as `config show`, and whether its settings have
/// an effect.
pub(crate) fn parse() -> Result<(Cli, String, Result<(), Failure>), clap::Error> {
    let matches = Cli::command().try_get_matches_from(read_arguments())?;
    let mut cli =
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))?;
    let mut command_path = read_subcommand_path(&matches);
    if let Command::Web(arguments) = &cli.command {
        (cli.json, command_path) =
            (cli.json || arguments.requests_json(), arguments.command_path());
    }
    let effect_check = ineffective_settings::check(&command_path, &matches);
    Ok((cli, command_path, effect_check))
}

/// The arguments of this process, its name among them, with the command where memcached's form leaves it out.
fn read_arguments() -> Vec<OsString> {
    add_command(std::env::args_os().collect())
}

/// `memcached FLAGS`, `glasscache FLAGS` and `glasscache memcached FLAGS`, as in a container, are
/// `glasscache serve FLAGS`, and so is `glasscache FLAGS serve FLAGS`.
fn add_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_named_memcached =
        arguments.first().is_some_and(|program| Path::new(program).ends_with("memcached"));
    let first = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    let begins_with_flag = first.starts_with('-')
        && !["--", "--json", "--help", "-h", "--version", "-V"].contains(&first);
    if first == "memcached" {
        arguments.splice(1..2, ["serve".into()]);
    } else if begins_with_flag || is_named_memcached {
        arguments.insert(1, "serve".into());
        let later = arguments.iter().skip(2).position(|argument| argument == OsStr::new("serve"));
        // It may be the value of a flag, such as a user.
        if let Some(index) = later
            && Cli::command().try_get_matches_from(&arguments).is_err()
        {
            arguments.remove(index + 2);
        }
    }
    arguments
}

fn read_subcommand_path(matches: &ArgMatches) -> String {
    match matches.subcommand() {
        None => String::new(),
        Some((name, subcommand_matches)) => {
            format!("{name} {}", read_subcommand_path(subcommand_matches)).trim().to_owned()
        }
    }
}

/// Prints help and version on request, else the error of a command line that cannot be parsed: on stderr as clap
/// formats it, and with `--json` in the envelope as well.
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    let arguments: Vec<OsString> = read_arguments().split_off(1);
    let is_json = arguments
        .iter()
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--json");
    // Where the stream is closed nothing can be printed.
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Success.into();
    }
    if is_json {
        let text = error.render().to_string();
        let sentence = extract_first_sentence(&text);
        let out = Output::new(true, &find_subcommand_path(&arguments));
        return out.finish_quietly(&Failure::usage(sentence));
    }
    Exit::Usage.into()
}

/// What clap prints of an error up to the first empty line, in one line: a list of arguments belongs to its sentence.
fn extract_first_sentence(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.trim().is_empty());
    let trimmed_lines: Vec<&str> = lines.map(str::trim).collect();
    trimmed_lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// The words of the command that these arguments name, as far as they name one.
fn find_subcommand_path(arguments: &[OsString]) -> String {
    let (mut command, mut command_path) = (Cli::command(), Vec::new());
    for argument in arguments {
        if let Some(subcommand) = command.find_subcommand(argument) {
            command_path.push(subcommand.get_name().to_owned());
            command = subcommand.clone();
        }
    }
    command_path.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments with a variable that exclude another one, or that another one excludes: clap refuses the other one
    /// wherever the variable is set, but a variable is a default.
    fn find_conflicting_variables(command: &clap::Command, found: &mut Vec<String>) {
        let arguments: Vec<&clap::Arg> = command.get_arguments().collect();
        for argument in &arguments {
            for excluded in command.get_arg_conflicts_with(argument) {
                if argument.get_env().is_some() || excluded.get_env().is_some() {
                    let ids = [argument, excluded].map(|one| one.get_id().as_str());
                    found.push(format!("{}: {} excludes {}", command.get_name(), ids[0], ids[1]));
                }
            }
        }
        for subcommand in command.get_subcommands() {
            find_conflicting_variables(subcommand, found);
        }
    }

    #[test]
    fn memcacheds_arguments_are_those_of_serve() {
        let cases = [
            ("glasscache -m 64 -c 1024", "glasscache serve -m 64 -c 1024"),
            ("/usr/bin/memcached", "/usr/bin/memcached serve"),
            ("glasscache memcached -m 64", "glasscache serve -m 64"),
            ("memcached -h", "memcached serve -h"),
            ("memcached serve -m 64", "memcached serve -m 64"),
            ("glasscache --memory-limit=64 serve -v", "glasscache serve --memory-limit=64 -v"),
            ("glasscache -u serve -v", "glasscache serve -u serve -v"),
            ("glasscache", "glasscache"),
            ("glasscache -h", "glasscache -h"),
            ("glasscache --json stats", "glasscache --json stats"),
            ("glasscache get -m", "glasscache get -m"),
        ];
        for (given, expected) in cases {
            let arguments = add_command(given.split(' ').map(OsString::from).collect());
            assert_eq!(arguments.join(OsStr::new(" ")), OsStr::new(expected), "{given}");
        }
    }

    /// A paragraph as clap wraps it: each line has as many words as fit.
    fn wrap_paragraph(paragraph: &str, width: usize) -> String {
        let mut wrapped = String::new();
        let mut column = 0;
        for word in paragraph.split(' ') {
            if column > 0 && column + 1 + word.len() > width {
                wrapped.push('\n');
                column = 0;
            } else if column > 0 {
                wrapped.push(' ');
                column += 1;
            }
            wrapped.push_str(word);
            column += word.len();
        }
        wrapped
    }

    /// What follows the arguments in the help of each command has paragraphs, each of which is one line of the text, and
    /// indented lines of examples and tables below a heading.
    fn find_broken_paragraphs(command: &clap::Command, width: usize, found: &mut Vec<String>) {
        let name = command.get_bin_name().unwrap_or_default();
        let after_help = command.get_after_long_help().or_else(|| command.get_after_help());
        let text = after_help.map(ToString::to_string).unwrap_or_default();
        let help = command.clone().render_long_help().to_string();
        let is_prose = |line: &&str| !line.is_empty() && !line.starts_with(' ');
        for (line, next_line) in text.lines().zip(text.lines().skip(1)) {
            let ends_sentence = line.ends_with(['.', ':']);
            if is_prose(&line) && is_prose(&next_line) && !ends_sentence {
                found.push(format!("{name}: broken in the source after: {line}"));
            }
        }
        for paragraph in text.lines().filter(is_prose) {
            if !help.contains(&wrap_paragraph(paragraph, width)) {
                found.push(format!("{name}: not wrapped at {width}: {paragraph}"));
            }
        }
        for subcommand in command.get_subcommands() {
            find_broken_paragraphs(subcommand, width, found);
        }
    }

    #[test]
    fn the_terminal_breaks_the_paragraphs_of_each_help() {
        for width in [60, 100] {
            let mut command = Cli::command().term_width(width);
            command.build();
            let mut found = Vec::new();
            find_broken_paragraphs(&command, width, &mut found);
            assert_eq!(found, Vec::<String>::new());
        }
    }

    #[test]
    fn no_argument_that_a_variable_sets_excludes_another() {
        let mut command = Cli::command();
        command.build();
        let mut found = Vec::new();
        find_conflicting_variables(&command, &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
