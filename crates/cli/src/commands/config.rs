//! `glasscache config`: shows every setting with its value and origin, or checks them.
//!
//! Reads the same file, environment and flags as `serve`. `check` does all that `serve` does before it binds, as the user
//! that the server runs as, and makes nothing.

use clap::Subcommand;
use serde_json::json;

use crate::commands::serve::CheckedSettings;
use crate::output::{Exit, Failure, Output};
use crate::settings::{FLAGS, ResolvedSettings, ServerFlags, Setting, extended_options};

const EXAMPLES: &str = "\
Examples:
  glasscache config show --origin --config /etc/glasscache.toml
  glasscache config check -u memcache -m 1024 -I 8m
  glasscache config check --offline --config deploy/glasscache.toml";

/// Show or check the server's settings.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Print every setting in the form of the TOML file
    Show(Show),
    /// Check whether a server would accept these settings
    Check(Check),
}

#[derive(clap::Args)]
struct Show {
    /// Print the source of each value
    #[arg(long)]
    origin: bool,
    #[command(flatten)]
    flags: ServerFlags,
}

#[derive(clap::Args)]
struct Check {
    #[command(flatten)]
    flags: ServerFlags,
    /// Check the settings alone: for a machine without the server's files and users
    #[arg(long)]
    offline: bool,
}

impl Args {
    /// Runs the chosen verb.
    pub(crate) fn run(self, out: &Output) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Show(show) => show.run(out),
            Verb::Check(check) => check.run(out),
        }
    }
}

impl Check {
    fn run(self, out: &Output) -> Result<Exit, Failure> {
        let mut resolved = self.flags.resolve()?;
        let assigned_count = resolved.assigned_settings.len();
        let mut warnings = std::mem::take(&mut resolved.warnings);
        if self.offline {
            warnings.extend(CheckedSettings::offline(resolved)?.warnings);
        } else {
            warnings.extend(CheckedSettings::new(resolved)?.check_files()?);
        }
        if out.is_json() {
            out.set_result(&json!({ "ok": true, "given": assigned_count, "warnings": warnings }));
        } else {
            out.print_line(format!("ok: {assigned_count} settings given"))?;
            for warning in &warnings {
                out.print_line(format!("warning: {warning}"))?;
            }
        }
        Ok(Exit::Success)
    }
}

impl Show {
    fn run(self, out: &Output) -> Result<Exit, Failure> {
        let resolved = self.flags.resolve()?;
        if out.is_json() {
            let setting_rows = |settings: &mut dyn Iterator<Item = &'static Setting>| -> Vec<_> {
                settings.map(|setting| setting_to_json(setting, &resolved)).collect()
            };
            let flag_rows = setting_rows(&mut FLAGS.iter());
            let extended_rows = setting_rows(&mut extended_options(false));
            out.set_result(&json!({ "settings": flag_rows, "extended": extended_rows }));
            return Ok(Exit::Success);
        }
        for setting in FLAGS {
            self.print(setting, &resolved, out)?;
        }
        out.print_line("\n[extended]")?;
        for setting in extended_options(false) {
            self.print(setting, &resolved, out)?;
        }
        Ok(Exit::Success)
    }

    /// An unset setting is printed as a comment, so that the output is a valid file.
    fn print(
        &self,
        setting: &Setting,
        resolved: &ResolvedSettings,
        out: &Output,
    ) -> Result<(), Failure> {
        let value_text = (setting.show)(&resolved.settings);
        if setting.name.starts_with("no_") {
            return Ok(());
        }
        let is_unquoted =
            value_text == "true" || value_text == "false" || value_text.parse::<f64>().is_ok();
        let toml_value = if is_unquoted { value_text } else { format!("\"{value_text}\"") };
        let is_unset = toml_value == "\"\"";
        let (prefix, value) = if is_unset { ("# ", "") } else { ("", toml_value.as_str()) };
        let line = format!("{prefix}{} = {value}", setting.name);
        if self.origin {
            return out.print_line(format!("{line:<40} # {}", format_origin(setting, resolved)));
        }
        out.print_line(line)
    }
}

fn format_origin(setting: &Setting, resolved: &ResolvedSettings) -> String {
    let assigned =
        resolved.assigned_settings.iter().find(|assigned| assigned.setting.name == setting.name);
    assigned.map_or_else(|| "default".to_owned(), |assigned| assigned.origin.to_string())
}

fn setting_to_json(setting: &Setting, resolved: &ResolvedSettings) -> serde_json::Value {
    json!({
        "name": setting.name,
        "value": (setting.show)(&resolved.settings),
        "origin": format_origin(setting, resolved),
        "has_effect": setting.no_effect_reason.is_none(),
    })
}
