//! Arbitrary bytes as a key stream in every format, and as a request log: rows or one sentence, and what was read of
//! a key stream is written and read again to the same rows. What `watch` prints and lines that a pattern reads are
//! among the formats.

#![no_main]

use glasscache_sim::trace::log::RequestLog;
use glasscache_sim::trace::writer::Writer;
use glasscache_sim::trace::{Batch, Columns, Format, InMemoryFile, Layout, LinePattern, open_with};
use libfuzzer_sys::fuzz_target;

/// The first batch of a stream, if it has one.
fn first(name: &str, bytes: &[u8], layout: &Layout) -> Option<Batch> {
    let mut stream = open_with(name, InMemoryFile::new(bytes), Columns::ALL, layout).ok()?;
    let mut batch = Batch::default();
    stream.read(&mut batch).ok()?;
    Some(batch)
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (which, bytes, more) = input;
    match which % 7 {
        3 => {
            let (items, requests) = (InMemoryFile::new(bytes), InMemoryFile::new(more));
            let _ = RequestLog::read(("items.jsonl", items), ("requests.jsonl", requests));
        }
        4 => {
            let (items, requests) = (InMemoryFile::new(bytes), InMemoryFile::new(more));
            let _ = RequestLog::read(("items.parquet", items), ("requests.parquet", requests));
        }
        which => {
            let plain = Layout::default();
            let watch = Layout { format: Some(Format::Watch), ..Layout::default() };
            let expression = r"^(?<time>\S+) (?<op>\w+) (?<key>\S+) (?<size>\d+) (?<ttl>\d+)";
            let pattern = Layout {
                pattern: Some(LinePattern::new(expression).expect("it is valid")),
                ..Layout::default()
            };
            let (name, layout) = match which {
                0 => ("t.csv", &plain),
                1 => ("t.jsonl", &plain),
                2 => ("t.parquet", &plain),
                5 => ("t.log", &watch),
                _ => ("t.log", &pattern),
            };
            let Some(batch) = first(name, bytes, layout) else { return };
            let mut writer = Writer::new(Format::Csv, Vec::new()).expect("memory takes all");
            writer.write(&batch).expect("memory takes all");
            let again = first("t.csv", &writer.finish().expect("memory takes all"), &plain);
            assert_eq!(again.expect("what was written is read").key, batch.key);
        }
    }
});
