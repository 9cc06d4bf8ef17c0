//! The values to be measured: files, the files of a folder, the lines of JSON Lines files, or items of a server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use glasscache_client::value::{Codec, CodecOptions, Decoded, Dialect};
use glasscache_protocol::percent::to_printable;
use glasscache_sim::key_prefix::text_key_prefix;
use serde_json::Value;

use crate::load::Rng;
use crate::tour::{FILE_BYTES_MAX, FOLDER_BYTES_MAX, Folder};

/// Longest value that is taken: what servers refuse by default is above it.
pub const VALUE_BYTES_MAX: usize = 1_000_000;

/// Values are taken up to this many bytes: enough for every figure.
const SAMPLES_BYTES_MAX: usize = 256 << 20;

/// Some programs write this before the first line of a UTF-8 text; it is skipped.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Whether each line of a file is a value, by its name: `*.jsonl` and `*.ndjson`.
pub fn holds_lines(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("jsonl" | "ndjson"))
}

/// Most values that are taken.
const SAMPLES_MAX: usize = 1_000_000;

/// What a value is to a serialiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ValueKind {
    /// UTF-8.
    Text,
    /// Anything else.
    Bytes,
    /// A document in JSON, which an application holds as an object.
    Object,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    /// Its key, where it has one.
    pub key: Option<String>,
    /// What it is.
    pub kind: ValueKind,
    /// Its text or bytes; of an object its JSON.
    pub bytes: Vec<u8>,
}

impl Sample {
    /// A value whose kind is read from its bytes: an object if they are a document in JSON with braces or brackets.
    fn detect(key: Option<String>, bytes: Vec<u8>) -> Self {
        let is_container = matches!(bytes.first(), Some(b'{' | b'['));
        let kind =
            if is_container && serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok() {
                ValueKind::Object
            } else if std::str::from_utf8(&bytes).is_ok() {
                ValueKind::Text
            } else {
                ValueKind::Bytes
            };
        Self { key, kind, bytes }
    }
}

/// Why values cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// A file or folder cannot be opened.
    #[error("cannot read {}: {reason}", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// The reason of the system.
        reason: std::io::Error,
    },
    /// A line of a JSON Lines file is not JSON.
    #[error("{} line {line}, column {column}: not a JSON value: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1; 0 if the line is not text.
        column: usize,
        /// The reason of the parser.
        reason: String,
    },
}

/// The values, and what was left out.
#[derive(Debug, Default)]
pub struct Samples {
    /// The values.
    pub(super) values: Vec<Sample>,
    /// Values that are too long, empty or cannot be read.
    pub(super) skipped_values: u64,
    /// Whether more values were there than are taken.
    pub(super) is_truncated: bool,
    total_bytes: usize,
}

impl Samples {
    /// Reads files and folders; each line of a file `*.jsonl` or `*.ndjson` is a value. Other files are values, or with
    /// `piece_bytes_max` their pieces of that many bytes, the last perhaps shorter.
    pub fn read(paths: &[PathBuf], piece_bytes_max: Option<usize>) -> Result<Self, SampleError> {
        let mut samples = Self::default();
        for path in paths {
            samples.read_path(path, piece_bytes_max)?;
        }
        Ok(samples)
    }

    fn read_path(
        &mut self,
        path: &Path,
        piece_bytes_max: Option<usize>,
    ) -> Result<(), SampleError> {
        let open_error = |reason| SampleError::Open { path: path.to_owned(), reason };
        if path.is_dir() {
            let file_bytes_max =
                if piece_bytes_max.is_some() { FOLDER_BYTES_MAX } else { FILE_BYTES_MAX };
            let folder = Folder::read_files_up_to(file_bytes_max, path, &[]).map_err(open_error)?;
            self.skipped_values += folder.skipped_files as u64;
            self.is_truncated |= folder.is_truncated;
            for (name, bytes) in folder.into_files() {
                self.push_pieces(Some(&name), bytes, piece_bytes_max);
            }
            return Ok(());
        }
        let file = File::open(path).map_err(open_error)?;
        let mut bytes = Vec::new();
        file.take(SAMPLES_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(open_error)?;
        if holds_lines(path) {
            return self.read_lines(path, &bytes);
        }
        let name = path.file_name().and_then(|name| name.to_str());
        self.push_pieces(name, bytes, piece_bytes_max);
        Ok(())
    }

    /// Takes a file whole or in pieces.
    fn push_pieces(&mut self, name: Option<&str>, bytes: Vec<u8>, piece_bytes_max: Option<usize>) {
        match piece_bytes_max {
            Some(piece_bytes_max) => {
                for piece in bytes.chunks(piece_bytes_max.max(1)) {
                    self.push(Sample::detect(name.map(str::to_owned), piece.to_vec()));
                }
            }
            None => self.push(Sample::detect(name.map(str::to_owned), bytes)),
        }
    }

    fn read_lines(&mut self, path: &Path, text: &[u8]) -> Result<(), SampleError> {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        for (line_index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let json_value = serde_json::from_slice(line).map_err(|error| SampleError::Line {
                path: path.to_owned(),
                line: line_index + 1,
                column: error.column(),
                reason: extract_reason(&error),
            })?;
            let (kind, bytes) = match json_value {
                Value::String(string) => (ValueKind::Text, string.into_bytes()),
                _ => (ValueKind::Object, line.to_vec()),
            };
            let key = None;
            self.push(Sample { key, kind, bytes });
        }
        Ok(())
    }

    /// Takes the value of an item: what our client stored is decompressed, and is what it was; other clients' bytes are
    /// taken as they are.
    pub fn push_item(&mut self, key: &[u8], flags: u32, bytes: Vec<u8>) {
        let key = Some(to_printable(key));
        let codec = Codec::new(CodecOptions::of(Dialect::Glasscache));
        let decoded = codec.as_ref().ok().and_then(|codec| codec.decode(flags, &bytes).ok());
        let (kind, bytes) = match decoded.map(|(decoded, _)| decoded) {
            Some(Decoded::Str(text)) => (ValueKind::Text, text.into_owned().into_bytes()),
            Some(Decoded::Json(json)) => (ValueKind::Object, json.into_owned()),
            Some(Decoded::Ints(numbers)) => {
                let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
                (ValueKind::Object, format!("[{}]", numbers.join(",")).into_bytes())
            }
            Some(Decoded::Bytes(bytes)) => {
                let bytes = bytes.into_owned();
                return self.push(Sample::detect(key, bytes));
            }
            _ => return self.push(Sample::detect(key, bytes)),
        };
        self.push(Sample { key, kind, bytes });
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether a value has a key.
    pub fn has_keys(&self) -> bool {
        self.values.iter().any(|sample| sample.key.is_some())
    }

    /// Takes a value, or counts it as skipped.
    fn push(&mut self, sample: Sample) {
        let is_full = self.values.len() >= SAMPLES_MAX
            || self.total_bytes + sample.bytes.len() > SAMPLES_BYTES_MAX;
        if is_full {
            self.is_truncated = true;
        } else if sample.bytes.is_empty() || sample.bytes.len() > VALUE_BYTES_MAX {
            self.skipped_values += 1;
        } else {
            self.total_bytes += sample.bytes.len();
            self.values.push(sample);
        }
    }

    /// Bytes of all values.
    pub(super) fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Values drawn without replacement, up to `count_max` of them or `bytes_max`, in random order.
    pub(super) fn draw(&self, count_max: usize, bytes_max: usize, seed: u64) -> Vec<&Sample> {
        let mut shuffled_indices: Vec<usize> = (0..self.values.len()).collect();
        shuffle(&mut shuffled_indices, seed);
        let (mut drawn, mut drawn_bytes) = (Vec::new(), 0);
        for sample in shuffled_indices.iter().filter_map(|&index| self.values.get(index)) {
            let is_full = drawn.len() >= count_max || drawn_bytes + sample.bytes.len() > bytes_max;
            if is_full && !drawn.is_empty() {
                break;
            }
            drawn_bytes += sample.bytes.len();
            drawn.push(sample);
        }
        drawn
    }

    /// The indices of the values by the prefix of their key, which ends at the first of `delimiters`; values without
    /// a key are left out.
    pub(super) fn group_by_prefix(&self, delimiters: &[u8]) -> BTreeMap<String, Vec<usize>> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, sample) in self.values.iter().enumerate() {
            let Some(key) = &sample.key else { continue };
            let prefix = text_key_prefix(key, delimiters).unwrap_or("");
            groups.entry(prefix.to_owned()).or_default().push(index);
        }
        groups
    }
}

/// The parser's reason without the position, which it counts within the line.
fn extract_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

/// Puts a list in random order.
pub(super) fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut rng = Rng::new(seed);
    for last_index in (1..list.len()).rev() {
        list.swap(last_index, rng.below(last_index as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_from_the_bytes() {
        let detect_kind = |bytes: &[u8]| Sample::detect(None, bytes.to_vec()).kind;
        assert_eq!(detect_kind(b"{\"a\": [1, 2]}"), ValueKind::Object);
        assert_eq!(detect_kind(b"[1, 2"), ValueKind::Text);
        assert_eq!(detect_kind(b"17"), ValueKind::Text);
        assert_eq!(detect_kind(b"\xff\x00"), ValueKind::Bytes);
    }

    #[test]
    fn each_line_of_json_lines_is_a_value_and_a_wrong_one_is_named() {
        let folder_path =
            std::env::temp_dir().join(format!("glasscache-codec-{}", std::process::id()));
        std::fs::create_dir_all(&folder_path).unwrap();
        let path = folder_path.join("a.jsonl");
        std::fs::write(&path, "\u{feff}{\"a\": 1}\n\n\"text\"\n").unwrap();
        let samples = Samples::read(std::slice::from_ref(&path), None).unwrap();
        let kinds: Vec<ValueKind> = samples.values.iter().map(|sample| sample.kind).collect();
        assert_eq!(kinds, [ValueKind::Object, ValueKind::Text]);
        assert_eq!(samples.values[0].bytes, b"{\"a\": 1}");
        assert_eq!(samples.values[1].bytes, b"text");
        std::fs::write(&path, "{\"a\": 1}\n{\"a\": \n").unwrap();
        let error = Samples::read(std::slice::from_ref(&path), None).unwrap_err();
        std::fs::remove_dir_all(&folder_path).unwrap();
        assert!(error.to_string().contains("a.jsonl line 2, column 5"), "{error}");
    }

    #[test]
    fn pieces_are_those_of_split() {
        let mut samples = Samples::default();
        samples.push_pieces(Some("big"), vec![b'x'; 25], Some(10));
        samples.push_pieces(Some("small"), vec![b'x'; 10], Some(10));
        samples.push_pieces(Some("empty"), Vec::new(), Some(10));
        let lengths: Vec<usize> = samples.values.iter().map(|sample| sample.bytes.len()).collect();
        assert_eq!(lengths, [10, 10, 5, 10]);
        assert_eq!(samples.values[2].key.as_deref(), Some("big"));
        let mut samples = Samples::default();
        samples.push_pieces(None, vec![b'x'; VALUE_BYTES_MAX + 1], None);
        assert_eq!((samples.values.len(), samples.skipped_values), (0, 1));
    }

    #[test]
    fn a_draw_keeps_within_its_bounds_and_repeats_by_seed() {
        let mut samples = Samples::default();
        for index in 0..100_u8 {
            samples.push(Sample::detect(Some(format!("a:{index}")), vec![b'x'; 10]));
        }
        samples.push(Sample::detect(Some("b".to_owned()), Vec::new()));
        assert_eq!((samples.skipped_values, samples.total_bytes()), (1, 1000));
        assert_eq!(samples.draw(7, 1000, 1).len(), 7);
        assert_eq!(samples.draw(100, 55, 1).len(), 5);
        let keys = |seed| -> Vec<_> {
            samples.draw(9, 1000, seed).iter().map(|sample| sample.key.clone()).collect()
        };
        assert_eq!(keys(3), keys(3));
        assert_ne!(keys(3), keys(4));
        assert_eq!(samples.group_by_prefix(b":")["a:"].len(), 100);
    }
}
