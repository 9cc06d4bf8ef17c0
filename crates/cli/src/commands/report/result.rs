//! One result: an envelope of a command, or a record of `bench --keep`, with what is known of the run.

use serde_json::{Value, json};

/// A result that was read from a file.
#[derive(Debug)]
pub(super) struct ResultFile {
    /// Name of the file.
    pub(super) name: String,
    /// The words of the command.
    pub(super) command: String,
    /// The version that printed it.
    pub(super) version: String,
    /// What it found.
    pub(super) result_json: Value,
    /// The message of the error that ended the command, if one did.
    pub(super) error: Option<String>,
    run_json: Value,
}

impl ResultFile {
    /// A document as a result; `None` if it is something else.
    pub(super) fn from_document(name: &str, document: &Value) -> Option<ResultFile> {
        let to_text = |value: &Value| value.as_str().map(str::to_owned);
        if document.get("schema").is_some() && document.get("result").is_some() {
            let error = document["error"].get("message").and_then(to_text);
            let run_json = document["result"].get("run").cloned().unwrap_or(Value::Null);
            return Some(ResultFile {
                name: name.to_owned(),
                command: to_text(&document["command"])?,
                version: to_text(&document["version"]).unwrap_or_default(),
                result_json: document["result"].clone(),
                error,
                run_json,
            });
        }
        let figures = document.get("figures")?.clone();
        Some(ResultFile {
            name: name.to_owned(),
            command: format!("bench ({})", document["name"].as_str()?),
            version: to_text(&document["versions"]["glasscache"]).unwrap_or_default(),
            result_json: json!({ "settings": document["settings"], "figures": figures }),
            error: None,
            run_json: json!({ "date": document["date"], "machine": document["machine"] }),
        })
    }

    /// The command that repeats the run, as a shell takes it; its words alone where the arguments are not known.
    pub(super) fn command_line(&self) -> String {
        match self.run_json["arguments"].as_array() {
            Some(arguments) => std::iter::once("glasscache".to_owned())
                .chain(arguments.iter().filter_map(Value::as_str).map(quote_for_shell))
                .collect::<Vec<_>>()
                .join(" "),
            None => format!("glasscache {}", self.command),
        }
    }

    /// The date in UTC, empty if unknown.
    pub(super) fn date(&self) -> String {
        self.run_json["date"].as_str().unwrap_or_default().to_owned()
    }

    /// The machine in some words, empty if unknown.
    pub(super) fn machine(&self) -> String {
        let machine = &self.run_json["machine"];
        let machine_text = |name: &str| machine[name].as_str().unwrap_or_default().to_owned();
        let Some(cores) = machine["cores"].as_u64() else {
            return String::new();
        };
        let parts = [
            format!("{cores} cores"),
            machine_text("cpu"),
            machine_text("memory"),
            format!("Linux {}", machine_text("kernel")),
        ];
        let known_parts = parts.into_iter().filter(|part| !part.is_empty());
        known_parts.collect::<Vec<_>>().join(", ")
    }

    /// What it found in words, and the error if one ended it.
    pub(super) fn find_sentence(&self) -> String {
        let curve_sentence = &self.result_json["answer"]["sentence"];
        let found_sentence = self.result_json["sentence"].as_str().or(curve_sentence.as_str());
        let found_sentence = found_sentence.unwrap_or_default().to_owned();
        match &self.error {
            Some(error) => format!("{found_sentence} It ended early: {error}").trim().to_owned(),
            None => found_sentence,
        }
    }

    /// The entry of this result in the list of results.
    pub(super) fn to_list_entry(&self) -> Value {
        json!({
            "file": self.name,
            "command": self.command,
            "command_line": self.command_line(),
            "version": self.version,
            "date": self.date(),
            "machine": self.machine(),
            "sentence": self.find_sentence(),
            "error": self.error,
        })
    }
}

/// A word as a POSIX shell reads it back.
fn quote_for_shell(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_can_be_pasted_into_a_shell() {
        let document = json!({ "schema": 2, "version": "1", "command": "bench", "error": null,
            "result": { "run": { "arguments": ["bench", "--search", "p99<1ms", "it's"] } } });
        let result = ResultFile::from_document("a.json", &document).unwrap();
        assert_eq!(result.command_line(), "glasscache bench --search 'p99<1ms' 'it'\\''s'");
    }

    #[test]
    fn a_latency_table_is_no_result_and_a_kept_record_is_one() {
        assert!(ResultFile::from_document("latency.json", &json!({ "single_us": [] })).is_none());
        let record = json!({ "name": "speed", "date": "2026-01-31T00:00:00Z", "figures": [],
            "machine": { "cores": 2, "cpu": "X", "memory": "1 kB", "kernel": "6" },
            "versions": { "glasscache": "1.6" }, "settings": {} });
        let result = ResultFile::from_document("b.json", &record).unwrap();
        assert_eq!(result.machine(), "2 cores, X, 1 kB, Linux 6");
        assert_eq!(result.command_line(), "glasscache bench (speed)");
    }
}
