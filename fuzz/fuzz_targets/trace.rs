//! Arbitrary bytes as a key stream in every format, and as a request log: rows or one sentence, and what was read of
//! a key stream is written and read again to the same rows.

#![no_main]

use glasscache_sim::trace::log::RequestLog;
use glasscache_sim::trace::writer::Writer;
use glasscache_sim::trace::{Batch, Columns, Format, InMemoryFile, open};
use libfuzzer_sys::fuzz_target;

/// The first batch of a stream, if it has one.
fn first(name: &str, bytes: &[u8]) -> Option<Batch> {
    let mut stream = open(name, InMemoryFile::new(bytes), Columns::ALL).ok()?;
    let mut batch = Batch::default();
    stream.read(&mut batch).ok()?;
    Some(batch)
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (which, bytes, more) = input;
    match which % 5 {
        3 => {
            let (items, requests) = (InMemoryFile::new(bytes), InMemoryFile::new(more));
            let _ = RequestLog::read(("items.jsonl", items), ("requests.jsonl", requests));
        }
        4 => {
            let (items, requests) = (InMemoryFile::new(bytes), InMemoryFile::new(more));
            let _ = RequestLog::read(("items.parquet", items), ("requests.parquet", requests));
        }
        which => {
            let name = ["t.csv", "t.jsonl", "t.parquet"][usize::from(which)];
            let Some(batch) = first(name, bytes) else { return };
            let mut writer = Writer::new(Format::Csv, Vec::new()).expect("memory takes all");
            writer.write(&batch).expect("memory takes all");
            let again = first("t.csv", &writer.finish().expect("memory takes all"));
            assert_eq!(again.expect("what was written is read").key, batch.key);
        }
    }
});
