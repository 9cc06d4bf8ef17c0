//! A histogram of sizes in a CSV file: the header `size,count` (bytes of the value) or `item_bytes,count` (memcached's
//! measure, header and key included).

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use glasscache_sim::TraceError;

use crate::files::read_text;
use crate::output::{Exit, Failure};
use crate::traces::open_file;

/// Sizes and how many items have each.
pub(crate) struct Histogram {
    pub(crate) counts: Vec<(u32, u64)>,
    /// Whether the sizes include header and key.
    pub(crate) is_item_bytes: bool,
}

/// Reads the histogram at `path`; `None` if the file has another header.
pub(crate) fn read(path: &Path) -> Result<Option<Histogram>, Failure> {
    let file = open_file(path)?;
    let name = path.to_string_lossy();
    let read_failure =
        |error| Failure::new(Exit::Unreachable, format!("cannot read {name}: {error}"));
    if !is_histogram(&file).map_err(read_failure)? {
        return Ok(None);
    }
    let text = read_text(path).map_err(read_failure)?;
    Ok(Some(parse(&name, &text)?))
}

/// Whether the header is that of a histogram; leaves the file at its beginning.
fn is_histogram(mut file: &File) -> std::io::Result<bool> {
    let mut start = [0; 24];
    let mut filled_bytes = 0;
    while filled_bytes < start.len() {
        let read_bytes = file.read(&mut start[filled_bytes..])?;
        if read_bytes == 0 {
            break;
        }
        filled_bytes += read_bytes;
    }
    file.rewind()?;
    let start_text = String::from_utf8_lossy(&start[..filled_bytes]);
    let start_text = start_text.trim_start_matches('\u{feff}');
    let header = start_text.lines().next().unwrap_or_default().replace(' ', "");
    Ok(header == "size,count" || header == "item_bytes,count")
}

fn parse(name: &str, text: &str) -> Result<Histogram, TraceError> {
    let mut counts = Vec::new();
    for (row_index, line) in
        text.lines().skip(1).enumerate().filter(|(_, line)| !line.trim().is_empty())
    {
        let row_number = row_index as u64 + 1;
        let (size, count) = line.split_once(',').ok_or_else(|| {
            TraceError::row(name, row_number, "expected two columns, size and count")
        })?;
        counts.push((
            parse_number(name, row_number, "size", size)?,
            parse_number(name, row_number, "count", count)?,
        ));
    }
    Ok(Histogram { counts, is_item_bytes: text.trim_start().starts_with("item_bytes") })
}

fn parse_number<T: std::str::FromStr>(
    name: &str,
    row_number: u64,
    column: &'static str,
    text: &str,
) -> Result<T, TraceError> {
    let not_a_number = |_| {
        TraceError::row(
            name,
            row_number,
            format!("expected a whole number, found \"{}\"", text.trim()),
        )
    };
    text.trim().parse().map_err(not_a_number).map_err(|error| error.in_column(column))
}
