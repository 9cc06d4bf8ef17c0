//! Which source wins: a flag over the environment over the file over the default.
//!
//! A source gives raw text for a setting; the winning text alone is read, so that a wrong value in a
//! file does no harm under a flag that overrides it. Every refusal names the setting, its origin, the
//! value and the bound.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::unsupported::unsupported_option;
use super::{FLAGS, Setting, Settings, Takes, options};

/// Variables of ours that are no settings of the server.
const OTHER_VARIABLES: [&str; 3] = ["config", "server", "daemon-child"];

/// Where a value came from.
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

/// One setting with the text that won and where it came from.
pub(crate) struct Assigned {
    /// Which setting.
    pub setting: &'static Setting,
    /// The text as given.
    pub raw: String,
    /// Who gave it.
    pub origin: Origin,
}

/// What the sources said, before anything is read.
pub(crate) struct Sources<'a> {
    /// Path of the TOML file, if one is wanted.
    pub file: Option<&'a Path>,
    /// Environment variables as (name, value).
    pub environment: Vec<(String, String)>,
    /// Flags as (long name, text).
    pub flags: Vec<(&'static str, String)>,
    /// The texts of `-o`, in order.
    pub extended: Vec<String>,
    /// Whether memcached's own tests are being run.
    pub debug: bool,
}

/// What the sources came to.
pub(crate) struct Resolved {
    /// Every setting.
    pub settings: Settings,
    /// What was assigned, in the order of the tables.
    pub assigned: Vec<Assigned>,
    /// Sentences about what was ignored.
    pub warnings: Vec<String>,
}

/// Reads all sources; the error is one sentence with setting, value, origin and bound.
pub(crate) fn resolve(sources: &Sources<'_>) -> Result<Resolved, String> {
    let mut layers = Layers {
        debug: sources.debug,
        won: BTreeMap::new(),
        warnings: Vec::new(),
    };
    if let Some(path) = sources.file {
        layers.file(path)?;
    }
    for (name, text) in &sources.environment {
        layers.environment(name, text)?;
    }
    for (name, text) in &sources.flags {
        layers.assign(name, text, &Origin::Flag)?;
    }
    for text in &sources.extended {
        layers.extended(text, &Origin::Flag)?;
    }
    let mut settings = Settings::default();
    let assigned: Vec<Assigned> = layers.won.into_values().collect();
    for Assigned {
        setting,
        raw,
        origin,
    } in &assigned
    {
        (setting.set)(&mut settings, raw).map_err(|bound| refusal(setting, raw, origin, &bound))?;
    }
    settings.check()?;
    Ok(Resolved {
        settings,
        assigned,
        warnings: layers.warnings,
    })
}

fn refusal(setting: &Setting, raw: &str, origin: &Origin, bound: &str) -> String {
    match setting.takes {
        Takes::Value(value) if raw.is_empty() => {
            let name = setting.name;
            format!(
                "{} ({origin}): needs a value: {name}={value}; it {bound}",
                title(setting)
            )
        }
        _ => format!("{}: \"{raw}\" ({origin}) {bound}", title(setting)),
    }
}

fn title(setting: &Setting) -> String {
    let is_flag = FLAGS.iter().any(|flag| flag.name == setting.name);
    match setting.letter {
        Some(letter) => format!("{} (-{letter})", setting.name),
        None if is_flag => setting.name.to_owned(),
        None => format!("{} (-o)", setting.name),
    }
}

struct Layers {
    debug: bool,
    /// By position in the tables, so that `no_modern` and the like are applied in a fixed order.
    won: BTreeMap<usize, Assigned>,
    warnings: Vec<String>,
}

impl Layers {
    fn put(&mut self, setting: &'static Setting, raw: &str, origin: &Origin) {
        let all = FLAGS.iter().chain(options(self.debug));
        let place = all
            .take_while(|other| !std::ptr::eq(*other, setting))
            .count();
        let raw = raw.to_owned();
        self.won.insert(
            place,
            Assigned {
                setting,
                raw,
                origin: origin.clone(),
            },
        );
        let partner = match setting.name.strip_prefix("no_") {
            Some(name) => name.to_owned(),
            None => format!("no_{}", setting.name),
        };
        self.won.retain(|_, other| other.setting.name != partner);
    }

    fn assign(&mut self, name: &str, raw: &str, origin: &Origin) -> Result<(), String> {
        if name == "extended" {
            return self.extended(raw, origin);
        }
        let Some(setting) = FLAGS.iter().find(|flag| flag.name == name) else {
            let nearest = nearest(FLAGS.iter(), name);
            return Err(format!("{name}: no such setting ({origin}){nearest}"));
        };
        self.put(setting, raw, origin);
        Ok(())
    }

    /// Warns of a number in quotes: it is taken, but another reader of the file may not take it.
    fn warn_of_text(&mut self, name: &str, value: &toml::Value, origin: &Origin) {
        if let toml::Value::String(text) = value
            && text.parse::<i64>().is_ok()
            && FLAGS
                .iter()
                .any(|flag| flag.name == name && flag.takes_number())
        {
            self.warnings.push(format!(
                "{name} ({origin}): \"{text}\" is text where a number is meant; write {name} = {text}"
            ));
        }
    }

    /// Reads one text of `-o`: names, with or without `=value`, separated by commas.
    fn extended(&mut self, text: &str, origin: &Origin) -> Result<(), String> {
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, raw) = part.split_once('=').unwrap_or((part, ""));
            self.option(name, raw, origin)?;
        }
        Ok(())
    }

    fn option(&mut self, name: &str, raw: &str, origin: &Origin) -> Result<(), String> {
        let Some(setting) = options(self.debug).find(|setting| setting.name == name) else {
            if let Some(why) = unsupported_option(name) {
                return Err(format!("-o {name} ({origin}): {why}"));
            }
            let nearest = nearest(options(false), name);
            return Err(format!("-o {name}: no such option ({origin}){nearest}"));
        };
        self.put(setting, raw, origin);
        Ok(())
    }

    /// Takes `GLASSCACHE_<NAME>`. An unknown name is only warned of: Kubernetes puts
    /// `GLASSCACHE_PORT=tcp://...` and its like beside a service of our name.
    fn environment(&mut self, variable: &str, text: &str) -> Result<(), String> {
        let Some(rest) = variable.strip_prefix("GLASSCACHE_") else {
            return Ok(());
        };
        let name = rest.to_ascii_lowercase().replace('_', "-");
        let is_known = name == "extended" || FLAGS.iter().any(|flag| flag.name == name);
        if is_known && !text.starts_with("tcp://") {
            return self.assign(&name, text, &Origin::Environment(variable.to_owned()));
        }
        if !OTHER_VARIABLES.contains(&name.as_str()) {
            self.warnings
                .push(format!("{variable}: no such setting, ignored"));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("config: cannot read {shown}: {error}"))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            format!(
                "config: {shown} is not TOML: {}",
                error.to_string().trim_end()
            )
        })?;
        let origin = Origin::File(path.to_owned());
        for (name, value) in &table {
            if let ("extended", toml::Value::Table(options)) = (name.as_str(), value) {
                for (option, value) in options {
                    self.option(option, &plain(option, value)?, &origin)?;
                }
            } else if value.is_table() {
                return Err(format!(
                    "{name} ({origin}): no such table: settings stand at the top of the file, options for -o under [extended]"
                ));
            } else {
                let name = name.replace('_', "-");
                self.warn_of_text(&name, value, &origin);
                self.assign(&name, &plain(&name, value)?, &origin)?;
            }
        }
        Ok(())
    }
}

/// A TOML value as the text that a flag would have; a list becomes a list by comma.
fn plain(name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(yes) => Ok(yes.to_string()),
        toml::Value::Array(items) => {
            let items: Result<Vec<String>, String> =
                items.iter().map(|item| plain(name, item)).collect();
            Ok(items?.join(","))
        }
        _ => Err(format!("{name}: must be a text, a number, true or false")),
    }
}

/// How alike two names must be, of 1, for the one to be meant by the other.
const ALIKE_MIN: f64 = 0.75;

/// The end of a refusal that names the setting which may have been meant, if one is alike.
fn nearest(settings: impl Iterator<Item = &'static Setting>, name: &str) -> String {
    settings
        .map(|setting| (strsim::jaro_winkler(setting.name, name), setting.name))
        .filter(|(likeness, _)| *likeness >= ALIKE_MIN)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map_or_else(String::new, |(_, name)| format!("; the nearest is {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(flags: &[(&'static str, &str)], extended: &[&str]) -> Sources<'static> {
        Sources {
            file: None,
            environment: Vec::new(),
            flags: flags
                .iter()
                .map(|(name, raw)| (*name, (*raw).to_owned()))
                .collect(),
            extended: extended.iter().map(|text| (*text).to_owned()).collect(),
            debug: false,
        }
    }

    fn refusal(flags: &[(&'static str, &str)], extended: &[&str]) -> String {
        resolve(&sources(flags, extended))
            .err()
            .expect("must be refused")
    }

    #[test]
    fn a_flag_wins_over_the_environment_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, "threads = 2\nconn_limit = 7\nbacklog = 1").unwrap();
        let mut given = sources(&[("threads", "8")], &[]);
        given.file = Some(&path);
        given.environment = vec![("GLASSCACHE_THREADS".into(), "6".into())];
        assert!(
            resolve(&given)
                .err()
                .unwrap()
                .contains("backlog: no such setting")
        );
        std::fs::write(
            &path,
            "threads = 2\nconn_limit = 7\n[extended]\nidle_timeout = 9",
        )
        .unwrap();
        let Resolved {
            settings, assigned, ..
        } = resolve(&given).unwrap();
        assert_eq!(settings.threads, 8);
        assert_eq!(settings.connections_max, 7);
        assert_eq!(settings.idle_timeout_s, 9);
        let origin = |name| {
            &assigned
                .iter()
                .find(|a| a.setting.name == name)
                .unwrap()
                .origin
        };
        assert_eq!(*origin("threads"), Origin::Flag);
        assert_eq!(*origin("conn-limit"), Origin::File(path.clone()));
    }

    #[test]
    fn a_refusal_names_setting_value_and_bound() {
        let text = refusal(&[("threads", "0")], &[]);
        assert_eq!(
            text,
            "threads (-t): \"0\" (command line) must be a whole number from 1 to 256"
        );
        assert!(
            refusal(&[("max-item-size", "256m")], &[]).contains("at most half of memory-limit")
        );
        assert!(refusal(&[("protocol", "http")], &[]).contains("ascii, binary, auto"));
        assert!(refusal(&[], &["hashpower=3"]).contains("from 12 to 64"));
    }

    #[test]
    fn an_option_without_its_value_says_what_to_write() {
        let text = refusal(&[], &["idle_timeout"]);
        assert!(
            text.contains("needs a value: idle_timeout=SECONDS"),
            "{text}"
        );
    }

    #[test]
    fn options_of_memcached_that_are_not_here_yet_say_so() {
        let text = refusal(&[], &["ssl_chain_cert=/a"]);
        assert!(text.contains("TLS is not supported yet"), "{text}");
        assert!(refusal(&[], &["proxy_config=a.lua"]).contains("decisions/0022"));
    }

    #[test]
    fn a_file_with_a_table_of_settings_or_a_number_in_quotes_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let mut given = sources(&[], &[]);
        given.file = Some(&path);
        std::fs::write(&path, "[server]\nport = 1").unwrap();
        let text = resolve(&given).err().unwrap();
        assert!(
            text.contains("settings stand at the top of the file"),
            "{text}"
        );
        std::fs::write(&path, "port = \"11211\"\nmemory_limit = \"64m\"").unwrap();
        let resolved = resolve(&given).unwrap();
        assert_eq!(resolved.settings.port, 11211);
        assert_eq!(resolved.warnings.len(), 1, "{:?}", resolved.warnings);
        assert!(resolved.warnings[0].ends_with("write port = 11211"));
    }

    #[test]
    fn an_unknown_option_is_answered_with_the_nearest_name() {
        assert!(refusal(&[], &["idle_timout=3"]).ends_with("the nearest is idle_timeout"));
        assert!(refusal(&[], &["relaxed_privileges"]).contains("no such option"));
        assert!(!refusal(&[], &["foo=1"]).contains("nearest"));
    }

    #[test]
    fn the_later_of_an_option_and_its_opposite_wins() {
        let given = sources(&[], &["no_lru_crawler,hashpower=20", "lru_crawler"]);
        let settings = resolve(&given).unwrap().settings;
        assert!(settings.lru_crawler);
        assert_eq!(settings.without_effect, [("hashpower", "20".to_owned())]);
        let given = sources(&[], &["lru_crawler,no_lru_crawler"]);
        assert!(!resolve(&given).unwrap().settings.lru_crawler);
    }
}
