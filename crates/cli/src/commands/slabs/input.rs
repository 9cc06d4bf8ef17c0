//! Reads the sizes: from a running server, a trace, or a histogram in CSV.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use glasscache_sim::TraceError;
use glasscache_sim::slabs::classes::{SlabConfig, head_bytes};
use glasscache_sim::slabs::demand::Demand;
use glasscache_sim::trace;

use super::server;
use super::source::Source;
use crate::output::{Exit, Failure};
use crate::traces::{InputArgs, note_left_out, open_file};

/// Reads a source; a name that is not a file is treated as a server.
pub(super) fn read(
    source: &str,
    config: SlabConfig,
    key_bytes: u32,
    input: &InputArgs,
) -> Result<Source, Failure> {
    let path = Path::new(source);
    if !path.exists() && source.contains(':') {
        return server::read(source);
    }
    let bad = |e: TraceError| Failure::new(Exit::BadData, e.to_string());
    let cannot = |e| Failure::new(Exit::Unreachable, format!("cannot open {source}: {e}"));
    let file = open_file(path)?;
    if is_histogram(&file).map_err(cannot)? {
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        let demand = histogram(source, &text, &config, key_bytes).map_err(bad)?;
        return finish(source, config, demand, Vec::new());
    }
    let demand = of_trace(path, &config, key_bytes, input)?;
    let note = format!(
        "One item for each key of the trace, with the last size seen; keys counted as {key_bytes} bytes."
    );
    finish(source, config, demand, vec![note])
}

fn finish(
    source: &str,
    config: SlabConfig,
    demand: Demand,
    notes: Vec<String>,
) -> Result<Source, Failure> {
    if demand.is_empty() {
        let message = format!("{source}: no item of a known size that memcached would take");
        return Err(Failure::new(Exit::BadData, message));
    }
    Ok(Source {
        name: source.to_owned(),
        config,
        demand,
        is_in_segments: false,
        notes,
    })
}

/// Whether the header is that of a histogram; leaves the file at its beginning.
fn is_histogram(mut file: &File) -> std::io::Result<bool> {
    let mut head = [0; 24];
    let mut filled = 0;
    while filled < head.len() {
        let read = file.read(&mut head[filled..])?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    file.rewind()?;
    let head = String::from_utf8_lossy(&head[..filled]);
    let header = head.lines().next().unwrap_or_default().replace(' ', "");
    Ok(header == "size,count" || header == "item_bytes,count")
}

fn histogram(
    name: &str,
    text: &str,
    config: &SlabConfig,
    key_bytes: u32,
) -> Result<Demand, TraceError> {
    let mut demand = Demand::default();
    let is_item_bytes = text.trim_start().starts_with("item_bytes");
    for (row, line) in text
        .lines()
        .skip(1)
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let row = row as u64 + 1;
        let (size, count) = line
            .split_once(',')
            .ok_or_else(|| TraceError::row(name, row, "expected two columns, size and count"))?;
        let size: u32 = number(name, row, "size", size)?;
        let count: u64 = number(name, row, "count", count)?;
        // The head is everything except the value and its line end; sizes from memcached do not separate the two.
        let (head, value) = if is_item_bytes {
            let head = head_bytes(key_bytes, false).min(size.saturating_sub(2));
            (head, size.saturating_sub(head + 2))
        } else {
            (head_bytes(key_bytes, false), size)
        };
        demand.add(config, head, value, count);
    }
    Ok(demand)
}

fn number<T: std::str::FromStr>(
    name: &str,
    row: u64,
    column: &'static str,
    text: &str,
) -> Result<T, TraceError> {
    let wrong = |_| {
        TraceError::row(
            name,
            row,
            format!("expected a whole number, found \"{}\"", text.trim()),
        )
    };
    text.trim()
        .parse()
        .map_err(wrong)
        .map_err(|e| e.in_column(column))
}

fn of_trace(
    path: &Path,
    config: &SlabConfig,
    key_bytes: u32,
    input: &InputArgs,
) -> Result<Demand, Failure> {
    let columns = trace::Columns {
        size: true,
        ..trace::Columns::KEY
    };
    let mut stream = input.open(path, columns)?;
    let (mut batch, mut rows) = (trace::Batch::default(), 0);
    let mut sizes: HashMap<u64, u32> = HashMap::new();
    while stream.read(&mut batch)? > 0 {
        rows += batch.len() as u64;
        for (key, size) in batch.key.iter().zip(&batch.size) {
            if let Some(size) = size {
                sizes.insert(*key, *size);
            }
        }
    }
    let name = path.to_string_lossy();
    note_left_out(&name, rows, &*stream);
    if sizes.is_empty() {
        return Err(TraceError::file(&name, "has no value sizes")
            .in_column("size")
            .into());
    }
    let mut demand = Demand::default();
    for size in sizes.into_values() {
        demand.add(config, head_bytes(key_bytes, false), size, 1);
    }
    Ok(demand)
}
