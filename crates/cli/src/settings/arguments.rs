//! The tables as command-line arguments: builds clap's arguments from them and reads what was given.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::{
    ArgumentKind, FLAGS, ResolvedSettings, Setting, Sources, extended_options, resolve, unsupported,
};
use crate::output::Failure;

/// The variable under which memcached's own test library runs its server.
const DEBUG_VARIABLE: &str = "MEMCACHED_DEBUG";

/// Whether memcached's own tests are being run.
pub(crate) fn is_debug() -> bool {
    std::env::var_os(DEBUG_VARIABLE).is_some_and(|value| value == "1")
}

/// What was given on the command line for the server, not yet read.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerFlags {
    config: Option<PathBuf>,
    flags: Vec<(&'static str, String)>,
    extended: Vec<String>,
    /// Why one of the flags is refused, whatever its value.
    refusal: Option<String>,
}

impl ServerFlags {
    /// The file with settings that is read, if there is one.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        let from_environment = || std::env::var_os("GLASSCACHE_CONFIG").map(PathBuf::from);
        self.config.clone().or_else(from_environment)
    }

    /// Joins file, environment and flags, and reads them.
    pub(crate) fn resolve(&self) -> Result<ResolvedSettings, Failure> {
        if let Some(refusal) = &self.refusal {
            return Err(Failure::usage(refusal.clone()));
        }
        let config_file = self.config_file();
        let mut environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        environment.sort();
        let sources = Sources {
            file: config_file.as_deref(),
            environment,
            flags: self.flags.clone(),
            extended: self.extended.clone(),
            is_debug: is_debug(),
        };
        resolve(&sources).map_err(|sentence| {
            Failure::usage(sentence).with_hint("glasscache serve --help lists every setting")
        })
    }
}

impl clap::Args for ServerFlags {
    fn augment_args(command: Command) -> Command {
        let config_argument = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("TOML file with settings by their long names [env: GLASSCACHE_CONFIG]");
        let extended_argument = Arg::new("extended")
            .short('o')
            .long("extended")
            .value_name("NAME[=VALUE],...")
            .action(ArgAction::Append)
            .help("options by name, listed below");
        let command = command
            .args_override_self(true)
            .arg(config_argument.value_parser(clap::value_parser!(PathBuf)));
        FLAGS
            .iter()
            .fold(unsupported::add_unsupported_flags(command), |command, setting| {
                command.arg(to_clap_argument(setting))
            })
            .arg(extended_argument)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServerFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ServerFlags, clap::Error> {
        let mut server_flags =
            ServerFlags { config: matches.get_one("config").cloned(), ..Self::default() };
        server_flags.refusal = unsupported::find_flag_refusal(matches);
        for setting in FLAGS {
            if let Some(text) = read_given_text(setting, matches) {
                server_flags.flags.push((setting.name, text));
            }
        }
        server_flags.extended =
            matches.get_many("extended").into_iter().flatten().cloned().collect();
        Ok(server_flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `listen` adds up when repeated, as with memcached; all others take the last value.
fn to_clap_argument(setting: &'static Setting) -> Arg {
    let argument = Arg::new(setting.name).long(setting.name).help(format_help(setting));
    let argument = match setting.letter {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    match setting.argument_kind {
        ArgumentKind::Nothing => argument.action(ArgAction::SetTrue),
        ArgumentKind::Count => argument.action(ArgAction::Count),
        ArgumentKind::Value(name) => {
            let argument = argument.value_name(name).allow_hyphen_values(true);
            argument.action(if setting.name == "listen" {
                ArgAction::Append
            } else {
                ArgAction::Set
            })
        }
    }
}

fn format_help(setting: &Setting) -> String {
    let default = (setting.show)(&super::Settings::default());
    let text = setting.help_text();
    match setting.argument_kind {
        ArgumentKind::Value(_) if !default.is_empty() => format!("{text} [default: {default}]"),
        _ => text,
    }
}

fn read_given_text(setting: &Setting, matches: &ArgMatches) -> Option<String> {
    match setting.argument_kind {
        ArgumentKind::Nothing => matches.get_flag(setting.name).then(|| "true".to_owned()),
        ArgumentKind::Count => Some(matches.get_count(setting.name))
            .filter(|count| *count > 0)
            .map(|count| count.to_string()),
        ArgumentKind::Value(_) => {
            let values: Vec<String> = matches.get_many(setting.name)?.cloned().collect();
            Some(values.join(","))
        }
    }
}

/// The column in which the text of an option begins, and the last column of a line.
const TEXT_COLUMN: usize = 31;
const LAST_COLUMN: usize = 98;

/// A text in lines that all begin in the same column.
fn wrap_at_text_column(text: &str) -> String {
    let mut lines = String::new();
    let mut column = TEXT_COLUMN;
    for word in text.split(' ') {
        if column > TEXT_COLUMN && column + 1 + word.len() > LAST_COLUMN {
            let _ = write!(lines, "\n{:TEXT_COLUMN$}", "");
            column = TEXT_COLUMN;
        } else if column > TEXT_COLUMN {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += word.len();
    }
    lines
}

/// The part of the help that follows the flags: the `-o` options and the other sources.
pub(crate) fn format_after_help() -> String {
    let mut text = String::from("Options for -o (a name, or name=value; several by comma):\n");
    for setting in extended_options(false) {
        let name = match setting.argument_kind {
            ArgumentKind::Value(value_name) => format!("{}={value_name}", setting.name),
            _ => setting.name.to_owned(),
        };
        let _ = writeln!(text, "  {name:<28} {}", wrap_at_text_column(&setting.help_text()));
    }
    text.push_str(
        "
Each long name is also a key of the TOML file (options for -o under [extended]) and an environment \
variable, for example GLASSCACHE_MEMORY_LIMIT; a flag wins over the environment over the file.

Examples:
  glasscache serve                       127.0.0.1:11211, 64 megabytes, 4 workers
  glasscache serve -m 4096 -t 8 -I 8m    four gigabytes, values up to 8 megabytes
  glasscache serve -p -1 -o idle_timeout=60
  glasscache serve -l 10.0.0.5 --public  for other machines, without a login
  glasscache serve -l 10.0.0.5 -Y users  for other machines, with one
  glasscache serve -l 10.0.0.5 -Y users -Z -o ssl_chain_cert=server.pem,ssl_key=server.key

Signals: SIGTERM, SIGINT and SIGUSR1 end the server once begun requests are answered, within a second; \
after SIGUSR1 the items of -e are saved, with -o save_on_term after each of them. SIGTERM or SIGINT \
once more ends it at once. glasscache stop sends them, also in a container without a shell. \
SIGHUP reads the files of -Y, --cluster-file, --http-token-file and the certificates again, opens \
--log-file again, and ends nothing.

Exit codes: 0 ended by a signal or a client, 2 wrong usage, 3 a socket, file or memory cannot be had, \
70 (--failure-exit) a worker panicked or was stuck, 130 and 143 a second SIGINT or SIGTERM.",
    );
    text
}
