//! Key streams: written rows are read back in every format, and an invalid file causes one error sentence.

use glasscache_sim::TraceError;
use glasscache_sim::trace::writer::Writer;
use glasscache_sim::trace::{self, Batch, Columns, Format, Memory, Op};
use proptest::prelude::*;

/// Reads all rows of a trace in memory, and whether it was truncated.
fn read(name: &str, bytes: &[u8]) -> Result<(Batch, bool), TraceError> {
    let mut stream = trace::open(name, Memory::new(bytes), Columns::ALL)?;
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while stream.read(&mut batch)? > 0 {
        all.key.append(&mut batch.key.clone());
        all.time.append(&mut batch.time.clone());
        all.size.append(&mut batch.size.clone());
        all.op.append(&mut batch.op.clone());
        all.ttl.append(&mut batch.ttl.clone());
    }
    Ok((all, stream.is_truncated()))
}

fn fault(name: &str, text: &str) -> String {
    read(name, text.as_bytes()).unwrap_err().to_string()
}

/// The formats of this build.
const NAMES: &[&str] = if cfg!(feature = "parquet") {
    &["t.csv", "t.jsonl", "t.parquet"]
} else {
    &["t.csv", "t.jsonl"]
};

fn rows() -> impl Strategy<Value = Batch> {
    let op = prop::option::of(prop::sample::select(vec![
        Op::Get,
        Op::Set,
        Op::Delete,
        Op::Read,
    ]));
    let row = (
        any::<u64>(),
        any::<u64>(),
        any::<Option<u32>>(),
        op,
        any::<Option<u32>>(),
    );
    prop::collection::vec(row, 0..40).prop_map(|rows| {
        let mut batch = Batch::default();
        for (time, key, size, op, ttl) in rows {
            batch.time.push(time);
            batch.key.push(key);
            batch.size.push(size);
            batch.op.push(op);
            batch.ttl.push(ttl);
        }
        batch
    })
}

proptest! {
    #[test]
    fn written_traces_are_read_back(batch in rows()) {
        for name in NAMES {
            let mut writer = Writer::new(Format::of(name).unwrap(), Vec::new()).unwrap();
            writer.write(&batch).unwrap();
            let bytes = writer.finish().unwrap();
            prop_assert_eq!(read(name, &bytes).unwrap(), (batch.clone(), false));
        }
    }

    #[test]
    fn any_bytes_give_rows_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in NAMES {
            if let Err(error) = read(name, &bytes) {
                prop_assert!(error.to_string().starts_with(name));
            }
        }
    }
}

#[test]
fn missing_columns_are_null_and_time_is_the_row_number() {
    let (batch, _) = read("t.csv", b"client,key\n1,5\n\n1,6\n").unwrap();
    assert_eq!((batch.key, batch.time), (vec![5, 6], vec![0, 1]));
    assert_eq!(batch.size, [None, None]);
    let (batch, _) = read("t.jsonl", b"{\"key\":5,\"hit\":true}\n").unwrap();
    assert_eq!(
        (batch.key, batch.time, batch.op),
        (vec![5], vec![0], vec![None])
    );
}

#[test]
fn errors_name_file_row_and_column() {
    assert_eq!(
        fault("t.csv", "key,size\n1,2\n2,-3\n"),
        "t.csv, row 2, column size: expected a whole number from 0 to 4294967295, found \"-3\""
    );
    assert_eq!(
        fault("t.csv", "key,size\n1\n2,3\n"),
        "t.csv, row 1: expected 2 fields, found 1"
    );
    assert_eq!(
        fault("t.csv", "time,size\n"),
        "t.csv: the header line names no column \"key\": \"time,size\""
    );
    assert_eq!(fault("t.csv", ""), "t.csv: is empty");
    assert_eq!(
        fault("t.jsonl", "{\"key\":\"a\"}\n"),
        "t.jsonl, row 1, column key: expected a whole number from 0 to 18446744073709551615, found \"a\""
    );
    assert_eq!(
        fault("t.jsonl", "{\"size\":1}\n"),
        "t.jsonl, row 1, column key: is missing or null"
    );
    assert_eq!(
        fault("t.txt", "1\n"),
        "t.txt: the name must end in .parquet, .csv, .jsonl or .ndjson"
    );
}

#[test]
fn a_truncated_text_keeps_complete_rows_and_reports_it() {
    let (batch, is_truncated) = read("t.csv", b"time,key\n1,5\n2").unwrap();
    assert_eq!((batch.key, is_truncated), (vec![5], true));
    let (batch, is_truncated) = read("t.jsonl", b"{\"key\":5}\n{\"ke").unwrap();
    assert_eq!((batch.key, is_truncated), (vec![5], true));
}

#[cfg(feature = "parquet")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_damaged_parquet_file_gives_rows_or_an_error(
        batch in rows(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut writer = Writer::new(Format::Parquet, Vec::new()).unwrap();
        writer.write(&batch).unwrap();
        let mut bytes = writer.finish().unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Err(error) = read("t.parquet", &bytes) {
            prop_assert!(error.to_string().starts_with("t.parquet"));
        }
    }
}

#[cfg(feature = "parquet")]
#[test]
fn rejects_truncated_and_non_parquet_files() {
    let mut writer = Writer::new(Format::Parquet, Vec::new()).unwrap();
    writer
        .write(&Batch {
            key: (0..5000).collect(),
            ..Batch::default()
        })
        .unwrap();
    let bytes = writer.finish().unwrap();
    for length in [0, 3, 8, bytes.len() / 2, bytes.len() - 1] {
        let error = read("t.parquet", &bytes[..length]).unwrap_err().to_string();
        assert!(
            error.starts_with("t.parquet: not a valid Parquet file"),
            "{error}"
        );
    }
    let error = read("t.parquet", b"time,key\n1,5\n2,7\n")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("t.parquet: not a valid Parquet file"),
        "{error}"
    );
}
