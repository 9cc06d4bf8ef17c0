//! Writes the page of a command, with what is needed to repeat it at its foot: command, version, date, inputs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use glasscache_lab::bench::record;
use glasscache_sim::page::Page;
use sha2::{Digest, Sha256};

use crate::files::write_atomically;
use crate::output::Failure;

/// Bytes that are read of an input at once.
const READ_BUFFER_BYTES: usize = 1 << 20;

/// Hexadecimal digits of a digest: enough to tell two traces apart.
const DIGEST_DIGITS: usize = 16;

/// Writes `page` to `path`; `inputs` are the files or folders that its figures come from.
pub(crate) fn write(path: &Path, mut page: Page, inputs: &[&Path]) -> Result<(), Failure> {
    page.origin = vec![
        ("command".to_owned(), format_command_line()),
        ("version".to_owned(), format!("glasscache {}", env!("CARGO_PKG_VERSION"))),
        ("date".to_owned(), record::format_now()),
    ];
    for input in inputs.iter().filter(|input| input.exists()) {
        let digest = compute_digest(input)?;
        let text = format!("{}, SHA-256 {digest}", input.display());
        page.origin.push(("data".to_owned(), text));
    }
    write_atomically(path, page.to_html().as_bytes())
}

/// The arguments of this process as a shell would take them.
fn format_command_line() -> String {
    let arguments = std::env::args_os().skip(1);
    let words = arguments.map(|word| quote_for_shell(&word.to_string_lossy()));
    std::iter::once("glasscache".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

fn quote_for_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The first digits of the SHA-256 of a file, or of the files of a folder in the order of their names.
fn compute_digest(input: &Path) -> io::Result<String> {
    let mut paths = vec![input.to_owned()];
    if input.is_dir() {
        let entries = std::fs::read_dir(input)?.collect::<io::Result<Vec<_>>>()?;
        paths = entries.iter().map(std::fs::DirEntry::path).collect();
        paths.retain(|path| path.is_file());
        paths.sort_unstable();
    }
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; READ_BUFFER_BYTES]);
    for path in paths {
        let mut file = File::open(path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                bytes_read => hasher.update(buffer.get(..bytes_read).unwrap_or_default()),
            }
        }
    }
    let digest = hasher.finalize();
    let hex_bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(hex_bytes.concat().chars().take(DIGEST_DIGITS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_or_expand_them() {
        assert_eq!(quote_for_shell("--rate=5"), "--rate=5");
        assert_eq!(quote_for_shell("p99<1ms"), "'p99<1ms'");
        assert_eq!(quote_for_shell("it's"), "'it'\\''s'");
        assert_eq!(quote_for_shell(""), "''");
    }

    #[test]
    fn a_digest_follows_the_bytes_and_a_folder_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "abc").unwrap();
        // The published test vector of SHA-256.
        assert_eq!(compute_digest(&path).unwrap(), "ba7816bf8f01cfea");
        assert_eq!(compute_digest(folder.path()).unwrap(), "ba7816bf8f01cfea");
        std::fs::write(folder.path().join("b.csv"), "d").unwrap();
        assert_ne!(compute_digest(folder.path()).unwrap(), "ba7816bf8f01cfea");
    }
}
