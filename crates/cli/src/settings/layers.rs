//! Which source wins: a flag over the environment over the file over the default.
//!
//! A source gives raw text for a setting; only the effective text is parsed, so that a wrong value in
//! a file does not matter if a flag overrides it. Every refusal names the setting, its origin, the
//! value and the bound.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::unsupported::find_option_refusal;
use super::{ArgumentKind, FLAGS, Setting, Settings, extended_options};
use crate::access::VARIABLES;
use crate::files::read_text;

/// Our environment variables that are not server settings.
const NON_SETTING_VARIABLES: [&str; 3] = ["config", "server", "daemon-child"];

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The TOML file.
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag => f.write_str("command line"),
        }
    }
}

/// A setting with its effective text and its source.
pub(crate) struct AssignedSetting {
    /// Which setting.
    pub setting: &'static Setting,
    /// The text as given.
    pub raw: String,
    /// Its source.
    pub origin: Origin,
}

/// The unparsed settings of all sources.
pub(crate) struct Sources<'a> {
    /// Path of the TOML file, if one is wanted.
    pub file: Option<&'a Path>,
    /// Environment variables as (name, value).
    pub environment: Vec<(String, String)>,
    /// Flags as (long name, raw text).
    pub flags: Vec<(&'static str, String)>,
    /// The texts of `-o`, in order.
    pub extended: Vec<String>,
    /// Whether memcached's own tests are being run.
    pub is_debug: bool,
}

/// The result of merging all sources.
pub(crate) struct ResolvedSettings {
    /// Every setting.
    pub settings: Settings,
    /// What was assigned, in the order of the tables.
    pub assigned_settings: Vec<AssignedSetting>,
    /// Warnings about ignored settings.
    pub warnings: Vec<String>,
}

/// Reads all sources; the error is one sentence with setting, value, origin and bound.
pub(crate) fn resolve(sources: &Sources<'_>) -> Result<ResolvedSettings, String> {
    let mut layers = Layers {
        is_debug: sources.is_debug,
        effective_settings: BTreeMap::new(),
        warnings: Vec::new(),
    };
    if let Some(path) = sources.file {
        layers.read_file(path)?;
    }
    for (variable, raw) in &sources.environment {
        layers.read_environment(variable, raw)?;
    }
    for (name, raw) in &sources.flags {
        layers.assign(name, raw, &Origin::Flag)?;
    }
    for text in &sources.extended {
        layers.read_extended(text, &Origin::Flag)?;
    }
    let mut settings = Settings::default();
    let assigned_settings: Vec<AssignedSetting> = layers.effective_settings.into_values().collect();
    for AssignedSetting { setting, raw, origin } in &assigned_settings {
        (setting.parse_into)(&mut settings, raw)
            .map_err(|bound| format_refusal(setting, raw, origin, &bound))?;
    }
    settings.check()?;
    layers.warnings.extend(settings.tls_warning());
    Ok(ResolvedSettings { settings, assigned_settings, warnings: layers.warnings })
}

fn format_refusal(setting: &Setting, raw: &str, origin: &Origin, bound: &str) -> String {
    match setting.argument_kind {
        ArgumentKind::Value(value_name) if raw.is_empty() => {
            let name = setting.name;
            format!(
                "{} ({origin}): needs a value: {name}={value_name}; it {bound}",
                format_setting_title(setting)
            )
        }
        _ => format!("{}: \"{raw}\" ({origin}) {bound}", format_setting_title(setting)),
    }
}

fn format_setting_title(setting: &Setting) -> String {
    let is_flag = FLAGS.iter().any(|flag| flag.name == setting.name);
    match setting.letter {
        Some(letter) => format!("{} (-{letter})", setting.name),
        None if is_flag => setting.name.to_owned(),
        None => format!("{} (-o)", setting.name),
    }
}

struct Layers {
    is_debug: bool,
    /// By position in the tables, so that settings such as `no_modern` are applied in a fixed order.
    effective_settings: BTreeMap<usize, AssignedSetting>,
    warnings: Vec<String>,
}

impl Layers {
    fn set_effective(&mut self, setting: &'static Setting, raw: &str, origin: &Origin) {
        let all_settings = FLAGS.iter().chain(extended_options(self.is_debug));
        let position = all_settings.take_while(|other| !std::ptr::eq(*other, setting)).count();
        let raw = raw.to_owned();
        self.effective_settings
            .insert(position, AssignedSetting { setting, raw, origin: origin.clone() });
        let opposite_name = match setting.name.strip_prefix("no_") {
            Some(name) => name.to_owned(),
            None => format!("no_{}", setting.name),
        };
        self.effective_settings.retain(|_, other| other.setting.name != opposite_name);
    }

    fn assign(&mut self, name: &str, raw: &str, origin: &Origin) -> Result<(), String> {
        if name == "extended" {
            return self.read_extended(raw, origin);
        }
        let Some(setting) = FLAGS.iter().find(|flag| flag.name == name) else {
            let suggestion = suggest_nearest(FLAGS.iter(), name);
            return Err(format!("{name}: no such setting ({origin}){suggestion}"));
        };
        self.set_effective(setting, raw, origin);
        Ok(())
    }

    /// Warns about a quoted number: it is accepted, but other readers of the file may refuse it.
    fn warn_of_quoted_number(&mut self, name: &str, value: &toml::Value, origin: &Origin) {
        if let toml::Value::String(text) = value
            && text.parse::<i64>().is_ok()
            && FLAGS.iter().any(|flag| flag.name == name && flag.takes_number())
        {
            self.warnings.push(format!(
                "{name} ({origin}): \"{text}\" is text where a number is meant; write {name} = {text}"
            ));
        }
    }

    /// Reads one text of `-o`: names, with or without `=value`, separated by commas.
    fn read_extended(&mut self, text: &str, origin: &Origin) -> Result<(), String> {
        for option_text in
            text.split(',').map(str::trim).filter(|option_text| !option_text.is_empty())
        {
            let (name, raw) = option_text.split_once('=').unwrap_or((option_text, ""));
            self.set_option(name, raw, origin)?;
        }
        Ok(())
    }

    fn set_option(&mut self, name: &str, raw: &str, origin: &Origin) -> Result<(), String> {
        let Some(setting) = extended_options(self.is_debug).find(|setting| setting.name == name)
        else {
            if let Some(reason) = find_option_refusal(name) {
                return Err(format!("-o {name} ({origin}): {reason}"));
            }
            let suggestion = suggest_nearest(extended_options(false), name);
            return Err(format!("-o {name}: no such option ({origin}){suggestion}"));
        };
        self.set_effective(setting, raw, origin);
        Ok(())
    }

    /// Takes `GLASSCACHE_<NAME>`. An unknown name causes only a warning, and none if Kubernetes sets it for a service
    /// named glasscache: `GLASSCACHE_PORT=tcp://...`, `GLASSCACHE_PORT_11211_TCP_ADDR`, `GLASSCACHE_SERVICE_HOST`.
    fn read_environment(&mut self, variable: &str, raw: &str) -> Result<(), String> {
        let Some(suffix) = variable.strip_prefix("GLASSCACHE_") else {
            return Ok(());
        };
        let name = suffix.to_ascii_lowercase().replace('_', "-");
        let is_known = name == "extended" || FLAGS.iter().any(|flag| flag.name == name);
        if is_known && !raw.starts_with("tcp://") {
            return self.assign(&name, raw, &Origin::Environment(variable.to_owned()));
        }
        let is_service_link = raw.starts_with("tcp://")
            || ["port-", "service-"].iter().any(|start| name.starts_with(start));
        let is_for_others =
            NON_SETTING_VARIABLES.contains(&name.as_str()) || VARIABLES.contains(&variable);
        if !is_service_link && !is_for_others {
            self.warnings.push(format!("{variable}: no such setting, ignored"));
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let path_text = path.display();
        let text =
            read_text(path).map_err(|error| format!("config: cannot read {path_text}: {error}"))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            format!("config: {path_text} is not TOML: {}", error.to_string().trim_end())
        })?;
        let origin = Origin::File(path.to_owned());
        for (name, value) in &table {
            if let ("extended", toml::Value::Table(options)) = (name.as_str(), value) {
                for (option_name, option_value) in options {
                    self.set_option(
                        option_name,
                        &format_flag_value(option_name, option_value)?,
                        &origin,
                    )?;
                }
            } else if value.is_table() {
                return Err(format!(
                    "{name} ({origin}): no such table: settings belong at the top of the file, options for -o under [extended]"
                ));
            } else {
                let long_name = name.replace('_', "-");
                self.warn_of_quoted_number(&long_name, value, &origin);
                self.assign(&long_name, &format_flag_value(&long_name, value)?, &origin)?;
            }
        }
        Ok(())
    }
}

/// A TOML value as the text that a flag would have; a list becomes a list by comma.
fn format_flag_value(name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(is_on) => Ok(is_on.to_string()),
        toml::Value::Array(items) => {
            let texts: Result<Vec<String>, String> =
                items.iter().map(|item| format_flag_value(name, item)).collect();
            Ok(texts?.join(","))
        }
        _ => Err(format!("{name}: must be a text, a number, true or false")),
    }
}

/// Minimum similarity (0 to 1) of two names for a suggestion.
const SIMILARITY_MIN: f64 = 0.75;

/// The end of an error message that suggests the most similar setting, if there is one.
fn suggest_nearest(settings: impl Iterator<Item = &'static Setting>, name: &str) -> String {
    settings
        .map(|setting| (strsim::jaro_winkler(setting.name, name), setting.name))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map_or_else(String::new, |(_, name)| format!("; the nearest is {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_sources(flags: &[(&'static str, &str)], extended: &[&str]) -> Sources<'static> {
        Sources {
            file: None,
            environment: Vec::new(),
            flags: flags.iter().map(|(name, raw)| (*name, (*raw).to_owned())).collect(),
            extended: extended.iter().map(|text| (*text).to_owned()).collect(),
            is_debug: false,
        }
    }

    fn find_refusal(flags: &[(&'static str, &str)], extended: &[&str]) -> String {
        resolve(&new_sources(flags, extended)).err().expect("must be refused")
    }

    #[test]
    fn flags_override_the_environment_which_overrides_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, "threads = 2\nconn_limit = 7\nbacklog = 1").unwrap();
        let mut all_sources = new_sources(&[("threads", "8")], &[]);
        all_sources.file = Some(&path);
        all_sources.environment = vec![("GLASSCACHE_THREADS".into(), "6".into())];
        assert!(resolve(&all_sources).err().unwrap().contains("backlog: no such setting"));
        std::fs::write(&path, "threads = 2\nconn_limit = 7\n[extended]\nidle_timeout = 9").unwrap();
        let ResolvedSettings { settings, assigned_settings, .. } = resolve(&all_sources).unwrap();
        assert_eq!(settings.threads, 8);
        assert_eq!(settings.connections_max, 7);
        assert_eq!(settings.idle_timeout_s, 9);
        let origin = |name| {
            &assigned_settings.iter().find(|assigned| assigned.setting.name == name).unwrap().origin
        };
        assert_eq!(*origin("threads"), Origin::Flag);
        assert_eq!(*origin("conn-limit"), Origin::File(path.clone()));
    }

    #[test]
    fn errors_name_setting_value_and_bound() {
        let refusal = find_refusal(&[("threads", "0")], &[]);
        assert_eq!(
            refusal,
            "threads (-t): \"0\" (command line) must be a whole number from 1 to 256"
        );
        assert!(
            find_refusal(&[("max-item-size", "256m")], &[])
                .contains("at most half of memory-limit")
        );
        assert!(find_refusal(&[("protocol", "http")], &[]).contains("ascii, binary, auto"));
        assert!(find_refusal(&[], &["hashpower=3"]).contains("from 12 to 64"));
    }

    #[test]
    fn an_option_without_a_value_shows_the_syntax() {
        let refusal = find_refusal(&[], &["idle_timeout"]);
        assert!(refusal.contains("needs a value: idle_timeout=SECONDS"), "{refusal}");
    }

    #[test]
    fn unsupported_memcached_options_are_named() {
        let refusal = find_refusal(&[], &["ssl_ciphers=HIGH"]);
        assert!(refusal.contains("the cipher suites are fixed"), "{refusal}");
        assert!(find_refusal(&[], &["proxy_config=a.lua"]).contains("decisions/protocol.md#0022"));
    }

    #[test]
    fn tls_that_protects_nothing_or_lacks_a_file_is_refused() {
        let refusal = find_refusal(&[], &["ssl_chain_cert=/a"]);
        assert!(refusal.contains("nothing is encrypted without enable-ssl"), "{refusal}");
        let tls = ("enable-ssl", "true");
        assert!(find_refusal(&[tls], &[]).contains("add -o ssl_chain_cert=FILE"));
        for (flags, options) in [
            (vec![tls], "ssl_chain_cert=/a,ssl_verify_mode=2"),
            (vec![tls, ("listen", "mtls:127.0.0.1")], "ssl_chain_cert=/a"),
        ] {
            let warnings = resolve(&new_sources(&flags, &[options])).unwrap().warnings;
            assert!(warnings[0].ends_with("(-o ssl_ca_cert=FILE)"), "{warnings:?}");
        }
        let refusal = find_refusal(&[tls, ("unix-socket", "/s")], &["ssl_chain_cert=/a"]);
        assert!(refusal.contains("has no TLS"), "{refusal}");
        assert!(find_refusal(&[tls], &["ssl_min_version=1"]).contains("must be 2 (TLS 1.2)"));
        assert!(find_refusal(&[tls], &["ssl_keyformat=2"]).contains("openssl pkey"));
    }

    #[test]
    fn reports_a_settings_table_and_a_quoted_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let mut all_sources = new_sources(&[], &[]);
        all_sources.file = Some(&path);
        std::fs::write(&path, "[server]\nport = 1").unwrap();
        let refusal = resolve(&all_sources).err().unwrap();
        assert!(refusal.contains("settings belong at the top of the file"), "{refusal}");
        std::fs::write(&path, "port = \"11211\"\nmemory_limit = \"64m\"").unwrap();
        let resolved = resolve(&all_sources).unwrap();
        assert_eq!(resolved.settings.port, 11211);
        assert_eq!(resolved.warnings.len(), 1, "{:?}", resolved.warnings);
        assert!(resolved.warnings[0].ends_with("write port = 11211"));
    }

    #[test]
    fn an_unknown_option_suggests_the_nearest_name() {
        assert!(find_refusal(&[], &["idle_timout=3"]).ends_with("the nearest is idle_timeout"));
        assert!(find_refusal(&[], &["relaxed_privileges"]).contains("no such option"));
        assert!(!find_refusal(&[], &["foo=1"]).contains("nearest"));
        assert!(find_refusal(&[], &["policy=lru"]).contains("must be one of fixed, tuned"));
        let goal = find_refusal(&[], &["policy=tuned,policy_goal=money"]);
        assert!(goal.contains("must be one of objects, bytes, time"), "{goal}");
        let goal = find_refusal(&[], &["policy_goal=bytes"]);
        assert!(goal.contains("bytes has no effect without policy=tuned"), "{goal}");
    }

    #[test]
    fn the_last_of_an_option_and_its_opposite_applies() {
        let all_sources = new_sources(&[], &["no_lru_crawler,hashpower=20", "lru_crawler"]);
        let settings = resolve(&all_sources).unwrap().settings;
        assert!(settings.lru_crawler);
        assert_eq!(settings.without_effect, [("hashpower", "20".to_owned())]);
        let all_sources = new_sources(&[], &["lru_crawler,no_lru_crawler"]);
        assert!(!resolve(&all_sources).unwrap().settings.lru_crawler);
    }

    #[test]
    fn an_option_given_with_no_modern_overrides_it() {
        for text in ["no_modern,lru_crawler", "lru_crawler,no_modern"] {
            let settings = resolve(&new_sources(&[], &[text])).unwrap().settings;
            assert!(settings.lru_crawler, "{text}");
            assert!(!settings.lru_maintainer, "{text}");
        }
    }
}
