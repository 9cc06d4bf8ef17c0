//! The reference pages that are generated from tables: a test for each compares it, and rewrites it with
//! `GLASSCACHE_WRITE_REFERENCE=1` (`make reference-pages`).

use std::fmt::Write as _;

use glasscache_protocol::{binary, replies};

use crate::output::Exit;
use crate::settings::{ArgumentKind, FLAGS, Setting, Settings, extended_options};

/// Compares a page of `docs/reference` with its generated text, or rewrites it.
fn check_page(name: &str, expected_page: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/");
    let path = format!("{folder}{name}");
    if std::env::var_os("GLASSCACHE_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, expected_page).unwrap();
    }
    let current_page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(current_page == expected_page, "{path} is out of date: make reference-pages");
}

/// Text in a cell of a table.
fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn write_settings<'s>(
    page: &mut String,
    settings: impl Iterator<Item = &'s Setting>,
    prefix: &str,
) {
    *page += "| setting | letter | value | default | meaning |\n|---|---|---|---|---|\n";
    for setting in settings {
        let letter_text = setting.letter.map(|letter| format!("`-{letter}`"));
        let value_text = match setting.argument_kind {
            ArgumentKind::Nothing => String::new(),
            ArgumentKind::Count => "repeated".to_owned(),
            ArgumentKind::Value(name) => format!("`{name}`"),
        };
        let default = match (setting.show)(&Settings::default()) {
            text if text.is_empty() => text,
            text => format!("`{text}`"),
        };
        let _ = writeln!(
            page,
            "| `{prefix}{}` | {} | {value_text} | {default} | {} |",
            setting.name,
            letter_text.unwrap_or_default(),
            escape_cell(&setting.help_text())
        );
    }
}

#[test]
fn the_page_of_settings_matches_the_tables() {
    let mut page = String::from(
        "# Settings of the server\n\nGenerated from the tables of `glasscache serve` by `make reference-pages`.\n\n\
         A setting is given as a flag (`--memory-limit 1024`, `-m 1024`), in the environment \
         (`GLASSCACHE_MEMORY_LIMIT=1024`) or in a file (`memory-limit = 1024`). A flag takes precedence over the \
         environment, the environment over the file, the file over the default. `glasscache config show` prints \
         each value with its origin.\n\n## Flags\n\n",
    );
    write_settings(&mut page, FLAGS.iter(), "--");
    page += "\n## Options of -o\n\nSeveral are joined by commas: `-o idle_timeout=60,no_maxconns_fast`.\n\n";
    write_settings(&mut page, extended_options(false), "-o ");
    check_page("settings.md", &page);
}

/// When the command ends with an exit code.
fn exit_meaning(exit: Exit) -> &'static str {
    match exit {
        Exit::Success => "The command succeeded.",
        Exit::Finding => "A negative result: a missing key, a failed check.",
        Exit::Usage => "The command line or a setting is wrong.",
        Exit::Unreachable => {
            "A server cannot be reached, or a socket, file or memory is not available."
        }
        Exit::BadData => "A reply or a file is invalid.",
        Exit::Interrupted => "Ctrl-C ended the command; the results so far were printed.",
    }
}

#[test]
fn the_page_of_errors_matches_the_tables() {
    let mut page = String::from(
        "# Errors\n\nGenerated from the tables of the program by `make reference-pages`.\n\n## Exit codes\n\n\
         With `--json` the kind is in `error.kind` ([JSON](json.md)).\n\n| code | kind | meaning |\n|---|---|---|\n",
    );
    for exit in Exit::ALL {
        let _ = writeln!(page, "| {} | `{}` | {} |", exit as u8, exit.kind(), exit_meaning(exit));
    }
    let _ = writeln!(
        page,
        "\n`glasscache serve` ends with {} (`--failure-exit`) if a worker panicked or the watchdog ended the process.\n",
        Settings::default().failure_exit
    );
    page += "## Error replies of the server\n\n\
             `CLIENT_ERROR` is a fault of the request, `SERVER_ERROR` one of the server, `ERROR` an unknown or \
             refused command. The texts are memcached's.\n\n| line | meaning |\n|---|---|\n";
    for (line, meaning) in replies::ALL {
        let line = String::from_utf8_lossy(line);
        let first_word = line.split([' ', ':']).next().unwrap_or_default().trim_end();
        // Outcomes that are not errors are one token; `ERROR` is the only error of one token.
        if first_word == "ERROR" || line.contains(' ') {
            let _ = writeln!(
                page,
                "| `{}` | {} |",
                line.trim_end().replace('|', "\\|"),
                escape_cell(meaning.trim())
            );
        }
    }
    page += "\n## Statuses of the binary protocol\n\n| status | text |\n|---|---|\n";
    for status in binary::Status::ALL {
        let _ = writeln!(
            page,
            "| 0x{:02x} | {} |",
            status.code(),
            String::from_utf8_lossy(status.text())
        );
    }
    check_page("errors.md", &page);
}
