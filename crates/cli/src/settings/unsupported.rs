//! Flags and options of memcached that have no counterpart here: each is refused with its own reason instead of
//! "unexpected argument".

use clap::{Arg, ArgAction, ArgMatches, Command};

/// The list of differences.
const DIFFERENCES_PAGE: &str =
    "docs/decisions/protocol.md#0022-what-differs-from-memcached-and-why";

/// A flag that is refused.
struct UnsupportedFlag {
    letter: char,
    name: &'static str,
    takes_value: bool,
    reason: &'static str,
}

const CIPHERS_REASON: &str = "the cipher suites are fixed: those of TLS 1.3, and of TLS 1.2 those with forward secrecy and authenticated encryption; leave it out";
const KERNEL_TLS_REASON: &str = "records are encrypted by the server itself; leave it out";
const PROXY_REASON: &str = "the built-in proxy of memcached is not supported; let clients distribute keys over servers, or use a proxy such as mcrouter";
const EXTSTORE_REASON: &str = "items are kept in memory only";

static UNSUPPORTED_FLAGS: &[UnsupportedFlag] = &[
    new_flag('N', "napi-ids", true, "connections are not spread over threads by network queue"),
    new_flag('E', "engine", true, "there are no storage engines to load"),
    new_flag('q', "detail-disable", false, "memcached no longer has it either"),
    new_flag('i', "license", false, "the licence is in the file LICENSE"),
];

const fn new_flag(
    letter: char,
    name: &'static str,
    takes_value: bool,
    reason: &'static str,
) -> UnsupportedFlag {
    UnsupportedFlag { letter, name, takes_value, reason }
}

/// Adds the flags to a command, hidden in its help.
pub(super) fn add_unsupported_flags(command: Command) -> Command {
    UNSUPPORTED_FLAGS.iter().fold(command, |command, flag| {
        let argument = Arg::new(flag.name).short(flag.letter).long(flag.name).hide(true);
        command.arg(if flag.takes_value {
            argument.action(ArgAction::Append).num_args(0..=1)
        } else {
            argument.action(ArgAction::SetTrue)
        })
    })
}

/// The refusal of the first such flag that was given.
pub(super) fn find_flag_refusal(matches: &ArgMatches) -> Option<String> {
    let is_given = |flag: &&UnsupportedFlag| {
        matches.value_source(flag.name) == Some(clap::parser::ValueSource::CommandLine)
    };
    let flag = UNSUPPORTED_FLAGS.iter().find(is_given)?;
    let UnsupportedFlag { letter, name, reason, .. } = flag;
    Some(format!("memcached's -{letter} (--{name}): {reason} ({DIFFERENCES_PAGE})"))
}

/// The reason why an option of memcached for `-o` is refused, if it is one of those without a counterpart.
pub(super) fn find_option_refusal(name: &str) -> Option<String> {
    let reason = match name {
        "ssl_ciphers" => CIPHERS_REASON,
        "ssl_kernel_tls" => KERNEL_TLS_REASON,
        _ if name.starts_with("proxy_") => PROXY_REASON,
        _ if name.starts_with("ext_") || name == "no_drop_unread" || name == "drop_unread" => {
            EXTSTORE_REASON
        }
        "drop_privileges" | "no_drop_privileges" | "strict_privileges" => {
            "no system call filter is installed; the systemd unit in deploy/ has one"
        }
        _ => return None,
    };
    Some(format!("{reason} ({DIFFERENCES_PAGE})"))
}
