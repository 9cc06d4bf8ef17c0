//! Settings that would have no effect with the others are refused, not ignored.
//!
//! What clap cannot express stands here: one table of rules over the arguments that were given on the command line.
//! Arguments that exclude or require each other whatever their values are declared where they are defined.

use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;
use glasscache_sim::policy::PolicyKind;

use crate::output::Failure;

/// When settings of a command have no effect.
struct IneffectiveRule {
    /// The words of the command.
    command: &'static str,
    /// The settings, by their ids in clap.
    settings: &'static [&'static str],
    /// Whether they have no effect.
    is_without_effect: fn(&ArgMatches) -> bool,
    /// Why, and what to do.
    reason: &'static str,
}

/// Settings about the form of a trace.
const TRACE_FORM_SETTINGS: &[&str] = &[
    "format",
    "key_column",
    "size_column",
    "time_column",
    "op_column",
    "ttl_column",
    "regex",
    "time_unit",
];

/// Settings of a connection to a server.
const CONNECTION_SETTINGS: &[&str] =
    &["tls", "tls_ca", "tls_cert", "tls_key", "tls_name", "user", "password"];

const RULES: &[IneffectiveRule] = &[
    IneffectiveRule {
        command: "curve",
        settings: TRACE_FORM_SETTINGS,
        is_without_effect: |matches| matches.get_flag("live"),
        reason: "with --live no trace is read: leave it out",
    },
    IneffectiveRule {
        command: "curve",
        settings: CONNECTION_SETTINGS,
        is_without_effect: |matches| !matches.get_flag("live"),
        reason: "only --live connects to a server",
    },
    IneffectiveRule {
        command: "curve",
        settings: &["time"],
        is_without_effect: |matches| !matches.get_flag("json"),
        reason: "the CPU seconds are in the JSON results: add --json",
    },
    IneffectiveRule {
        command: "curve",
        settings: &["capacities"],
        is_without_effect: |matches| has_matching_value(matches, "policies", |text| text == "none"),
        reason: "no policy is replayed at these sizes: leave out --policies none",
    },
    IneffectiveRule {
        command: "curve",
        settings: &["size_column"],
        is_without_effect: |matches| {
            !matches.get_flag("server")
                && has_matching_value(matches, "mode", |mode| mode == "objects")
        },
        reason: "objects are counted, not their bytes: add --mode bytes or --server, or leave it out",
    },
    IneffectiveRule {
        command: "curve",
        settings: &["seed"],
        is_without_effect: |matches| {
            matches.get_flag("server")
                || (!is_given(matches, "sample")
                    && !has_matching_value(matches, "policies", is_random_policy))
        },
        reason: "nothing is drawn, neither a sample nor by a policy: leave it out",
    },
    IneffectiveRule {
        command: "curve",
        settings: &["all"],
        is_without_effect: |matches| {
            let is_group = |name: &str| matches!(name, "all" | "common");
            !has_matching_value(matches, "policies", is_group)
        },
        reason: "only without the names of policies is any left out: leave one out",
    },
    IneffectiveRule {
        command: "inspect",
        settings: TRACE_FORM_SETTINGS,
        is_without_effect: |matches| {
            has_matching_value(matches, "trace", |path| Path::new(path).is_dir())
        },
        reason: "a folder is a request log, whose files have one form: leave it out",
    },
    IneffectiveRule {
        command: "inspect",
        settings: &["time_unit"],
        is_without_effect: |_| true,
        reason: "times are printed as they are in the file: leave it out",
    },
    IneffectiveRule {
        command: "inspect",
        settings: &["all"],
        is_without_effect: |matches| {
            has_matching_value(matches, "trace", |path| Path::new(path).is_file())
        },
        reason: "everything is printed of a key stream: leave it out",
    },
    IneffectiveRule {
        command: "slabs",
        settings: &["time_column", "op_column", "ttl_column", "time_unit"],
        is_without_effect: |_| true,
        reason: "of a trace only keys and sizes are read: leave it out",
    },
    IneffectiveRule {
        command: "slabs",
        settings: &["memory", "classes", "key_bytes", "all", "html"],
        is_without_effect: |matches| !is_given(matches, "source"),
        reason: "the classes alone have no items: name a server, a trace or a histogram",
    },
    IneffectiveRule {
        command: "slabs",
        settings: TRACE_FORM_SETTINGS,
        is_without_effect: |matches| {
            !is_given(matches, "source") || has_matching_value(matches, "source", is_server)
        },
        reason: "no trace is read: name one",
    },
    IneffectiveRule {
        command: "slabs",
        settings: &["factor", "chunk", "item_max", "slab_chunk_max", "slab_sizes", "key_bytes"],
        is_without_effect: |matches| has_matching_value(matches, "source", is_server),
        reason: "the settings and sizes of the server are used: leave it out",
    },
    IneffectiveRule {
        command: "slabs",
        settings: &["factor", "chunk"],
        is_without_effect: |matches| is_given(matches, "slab_sizes"),
        reason: "the classes are given by --slab-sizes: leave one out",
    },
    IneffectiveRule {
        command: "bench",
        settings: &["keys_per_get"],
        is_without_effect: |matches| {
            !has_matching_value(matches, "mix", |mix| mix.contains("multi-get="))
        },
        reason: "no multi-get is sent: give it a share, such as --mix multi-get=1",
    },
    IneffectiveRule {
        command: "bench",
        settings: &["keys_per_get"],
        is_without_effect: |matches| has_matching_value(matches, "protocol", |text| text == "meta"),
        reason: "a get has one key in meta: leave it out, or choose another --protocol",
    },
    IneffectiveRule {
        command: "bench",
        settings: &["time_column", "op_column", "ttl_column", "time_unit"],
        is_without_effect: |_| true,
        reason: "of a trace only keys and sizes are read: leave it out",
    },
    IneffectiveRule {
        command: "bench",
        settings: &["size_column"],
        is_without_effect: |matches| !has_matching_value(matches, "size", |size| size == "trace"),
        reason: "the sizes of the trace are not used: add --size trace, or leave it out",
    },
    IneffectiveRule {
        command: "bench",
        settings: &["ttl"],
        is_without_effect: |matches| {
            !is_given(matches, "fill")
                && !has_matching_value(matches, "mix", |mix| mix.contains("set="))
        },
        reason: "nothing is set while measuring: give set a share in --mix, or add --fill",
    },
    IneffectiveRule {
        command: "bench",
        settings: &["fill"],
        is_without_effect: |matches| {
            is_given(matches, "mix")
                && !has_matching_value(matches, "mix", |mix| mix.contains("get="))
        },
        reason: "no get is sent that could miss: give it a share in --mix",
    },
];

/// Commands whose text has less than their JSON, unless these settings say otherwise.
const COMMANDS_WITH_MORE_TEXT: [&str; 6] =
    ["codec", "curve", "inspect", "profile", "simulate", "slabs"];
const MORE_TEXT_SETTINGS: [&str; 2] = ["all", "wide"];

/// Refuses the first setting of a command that would have no effect.
pub(crate) fn check(command: &str, matches: &ArgMatches) -> Result<(), Failure> {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    if COMMANDS_WITH_MORE_TEXT.contains(&command) && innermost.get_flag("json") {
        let is_flag = |name: &&str| is_known(innermost, name) && innermost.get_flag(name);
        if let Some(name) = MORE_TEXT_SETTINGS.iter().find(|name| is_flag(name)) {
            let message = format!("--{name} has no effect: the JSON results have everything");
            return Err(Failure::usage(message));
        }
    }
    for rule in RULES.iter().filter(|rule| rule.command == command) {
        let given_setting = rule.settings.iter().find(|name| is_given(innermost, name));
        if let Some(name) = given_setting
            && (rule.is_without_effect)(innermost)
        {
            let flag = name.replace('_', "-");
            let message = format!("--{flag} has no effect: {}", rule.reason);
            return Err(Failure::usage(message));
        }
    }
    Ok(())
}

/// Whether the command has an argument of this name.
fn is_known(matches: &ArgMatches, name: &str) -> bool {
    matches.ids().any(|id| id == name)
}

/// Whether `--policies` names one whose misses depend on the seed, alone or among others.
fn is_random_policy(name: &str) -> bool {
    match name {
        "all" | "common" => true,
        name => name.parse().is_ok_and(PolicyKind::is_random),
    }
}

/// Whether an argument is on the command line.
fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

/// Whether a value of an argument, given or default, passes a test.
fn has_matching_value(matches: &ArgMatches, name: &str, is_match: fn(&str) -> bool) -> bool {
    let values = matches.get_raw(name).into_iter().flatten();
    values.filter_map(|value| value.to_str()).any(is_match)
}

/// Whether `slabs` takes its source for a server.
fn is_server(source: &str) -> bool {
    source.contains(':') && !Path::new(source).exists()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn find_refusal(command_line: &str) -> Option<String> {
        let words = std::iter::once("glasscache").chain(command_line.split(' '));
        let matches = Cli::command().try_get_matches_from(words).unwrap();
        let command = command_line.split(' ').next().unwrap_or_default();
        let refusal = check(command, &matches).err();
        refusal.map(|failure| format!("{failure:?}"))
    }

    #[test]
    fn settings_without_effect_are_refused_with_the_reason() {
        for (command_line, expected) in [
            ("curve a.csv --time", "--time has no effect"),
            ("curve a.csv --policies none --capacities 5", "--policies none"),
            ("curve a.csv --size-column bytes", "objects are counted"),
            ("curve a.csv --policies lru,sieve --seed 3", "nothing is drawn"),
            ("curve a.csv --server --seed 3", "nothing is drawn"),
            ("curve a.csv --policies lru --all", "names of policies"),
            ("curve a.csv --policies none --all", "names of policies"),
            ("curve a.csv --tls", "only --live connects"),
            ("curve host:1 --live --key-column url", "no trace is read"),
            ("curve a.csv --all --json", "--all has no effect: the JSON"),
            ("profile --wide --json", "--wide has no effect: the JSON"),
            ("inspect src --key-column url", "a folder is a request log"),
            ("inspect a.csv --time-unit ms", "as they are in the file"),
            ("inspect Cargo.toml --all", "of a key stream"),
            ("slabs a.csv --time-unit ms", "only keys and sizes are read"),
            ("slabs a.csv --op-column op", "only keys and sizes are read"),
            ("slabs --all", "the classes alone"),
            ("slabs --memory 2g", "--memory has no effect"),
            ("slabs --key-column url", "no trace is read"),
            ("slabs 127.0.0.1:1 --factor 1.1", "the server are used"),
            ("slabs a.csv --factor 1.1 --slab-sizes 96-200", "--slab-sizes"),
            ("bench host:1 --keys-per-get 5", "no multi-get"),
            ("bench host:1 --ttl 5", "nothing is set"),
            (
                "bench host:1 --popularity trace:a.csv --time-unit ms",
                "only keys and sizes are read",
            ),
            (
                "bench host:1 --popularity trace:a.csv --size-column bytes",
                "sizes of the trace are not used",
            ),
            ("bench host:1 --mix multi-get=1 --keys-per-get 5 --protocol meta", "one key in meta"),
            ("bench host:1 --mix set=1 --fill", "no get"),
        ] {
            let refusal = find_refusal(command_line).unwrap_or_default();
            assert!(refusal.contains(expected), "{command_line}: {refusal}");
        }
    }

    #[test]
    fn the_same_settings_are_taken_where_they_have_an_effect() {
        for command_line in [
            "curve a.csv --time --json",
            "curve a.csv --policies lru --capacities 5",
            "curve a.csv --mode bytes --size-column bytes",
            "curve a.csv --server --size-column bytes",
            "curve a.csv --seed 3",
            "curve a.csv --policies lru,lhd --seed 3",
            "curve a.csv --policies lru --sample 10 --seed 3",
            "curve a.csv --policies none --json --misses 5",
            "curve a.csv --policies lru --json --misses 5",
            "curve a.csv --policies common,lru --json --at 5",
            "curve a.csv --policies lru --json --misses 5 --html a.html",
            "curve a.csv --server --json --misses 5",
            "curve a.csv --policies all --all",
            "curve host:1 --live --tls --gib-month 4",
            "inspect src --all",
            "inspect a.csv --time-column at",
            "slabs a.csv --all",
            "slabs sizes.csv --memory 2g --factor 1.1",
            "slabs --factor 1.1",
            "slabs a.csv --key-column url",
            "slabs 127.0.0.1:1 --memory 2g",
            "bench host:1 --mix get=1,multi-get=1 --keys-per-get 5",
            "bench host:1 --fill --ttl 5",
            "bench host:1 --popularity trace:a.csv --size trace --size-column bytes",
            "bench host:1 --mix multi-get=1 --keys-per-get 5 --protocol binary",
            "bench host:1 --mix set=1 --ttl 5",
        ] {
            assert_eq!(find_refusal(command_line), None, "{command_line}");
        }
    }

    #[test]
    fn every_rule_names_settings_that_exist() {
        for rule in RULES {
            let definition = Cli::command();
            let command = definition.find_subcommand(rule.command).unwrap();
            for name in rule.settings {
                let has_argument =
                    command.get_arguments().any(|argument| argument.get_id() == *name);
                assert!(has_argument, "{} {name}", rule.command);
            }
        }
    }
}
