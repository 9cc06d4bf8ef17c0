//! Key streams: written rows are read back in every format, and an invalid file causes one error sentence.

use glasscache_sim::TraceError;
use glasscache_sim::trace::writer::Writer;
use glasscache_sim::trace::{
    self, Batch, ColumnNames, Columns, Format, InMemoryFile, Layout, LinePattern, Op, StreamFacts,
    TimeUnit,
};
use proptest::prelude::*;

/// Reads all rows of a trace in memory, and whether it was truncated.
fn read_all_rows(name: &str, bytes: &[u8]) -> Result<(Batch, bool), TraceError> {
    let mut stream = trace::open(name, InMemoryFile::new(bytes), Columns::ALL)?;
    let (mut all_rows, mut batch) = (Batch::default(), Batch::default());
    while stream.read(&mut batch)? > 0 {
        all_rows.key.append(&mut batch.key.clone());
        all_rows.time.append(&mut batch.time.clone());
        all_rows.size.append(&mut batch.size.clone());
        all_rows.op.append(&mut batch.op.clone());
        all_rows.ttl.append(&mut batch.ttl.clone());
    }
    Ok((all_rows, stream.is_truncated()))
}

fn read_error(name: &str, text: &str) -> String {
    read_all_rows(name, text.as_bytes()).unwrap_err().to_string()
}

/// The formats of this build.
const FILE_NAMES: &[&str] = if cfg!(feature = "parquet") {
    &["t.csv", "t.jsonl", "t.parquet"]
} else {
    &["t.csv", "t.jsonl"]
};

fn any_rows() -> impl Strategy<Value = Batch> {
    let op = prop::option::of(prop::sample::select(vec![Op::Get, Op::Set, Op::Delete, Op::Read]));
    let row = (any::<u64>(), any::<u64>(), any::<Option<u32>>(), op, any::<Option<u32>>());
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
    fn written_traces_are_read_back(batch in any_rows()) {
        for name in FILE_NAMES {
            let mut writer = Writer::new(Format::of(name).unwrap(), Vec::new()).unwrap();
            writer.write(&batch).unwrap();
            let bytes = writer.finish().unwrap();
            prop_assert_eq!(read_all_rows(name, &bytes).unwrap(), (batch.clone(), false));
        }
    }

    #[test]
    fn any_bytes_give_rows_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in FILE_NAMES {
            if let Err(error) = read_all_rows(name, &bytes) {
                prop_assert!(error.to_string().starts_with(name));
            }
        }
    }
}

#[test]
fn missing_columns_are_null_and_time_is_the_row_number() {
    let (batch, _) = read_all_rows("t.csv", b"client,key\n1,5\n\n1,6\n").unwrap();
    assert_eq!((batch.key, batch.time), (vec![5, 6], vec![0, 1]));
    assert_eq!(batch.size, [None, None]);
    let (batch, _) = read_all_rows("t.jsonl", b"{\"key\":5,\"hit\":true}\n").unwrap();
    assert_eq!((batch.key, batch.time, batch.op), (vec![5], vec![0], vec![None]));
}

#[test]
fn errors_name_file_row_and_column() {
    assert_eq!(
        read_error("t.csv", "key,size\n1,2\n2,-3\n"),
        "t.csv, row 2, column size: expected a whole number from 0 to 4294967295, found \"-3\""
    );
    assert_eq!(
        read_error("t.csv", "key,size\n1\n2,3\n"),
        "t.csv, row 1: expected 2 fields, found 1"
    );
    assert_eq!(
        read_error("t.csv", "time,size\n"),
        "t.csv: the header line names no column \"key\": \"time,size\""
    );
    assert_eq!(read_error("t.csv", ""), "t.csv: is empty");
    assert_eq!(
        read_error("t.jsonl", "{\"key\":[\"a\"]}\n"),
        "t.jsonl, row 1, column key: expected a string or a whole number, found [\"a\"]"
    );
    assert_eq!(
        read_error("t.jsonl", "{\"size\":1}\n"),
        "t.jsonl, row 1, column key: is missing or null"
    );
    assert_eq!(
        read_error("t.txt", "1\n"),
        "t.txt: the name must end in .parquet, .csv, .jsonl or .ndjson"
    );
}

/// Reads a file of another form, in the columns of `key`, `time`, `size`, `op` and `ttl`.
fn read_with_layout(
    name: &str,
    text: &str,
    layout: &Layout,
) -> Result<(Batch, StreamFacts), TraceError> {
    let source = InMemoryFile::new(text.as_bytes());
    let mut stream = trace::open_with(name, source, Columns::ALL, layout)?;
    let mut batch = Batch::default();
    stream.read(&mut batch)?;
    Ok((batch, stream.facts()))
}

#[test]
fn whole_numbers_may_be_written_as_floats() {
    let (batch, _) = read_all_rows("t.csv", b"key,size,ttl\n1,10.0,0.0\n2,,\n3,1e3,60\n").unwrap();
    assert_eq!(batch.size, [Some(10), None, Some(1000)]);
    assert_eq!(batch.ttl, [Some(0), None, Some(60)]);
    let text = b"{\"key\":1,\"size\":10.0}\n{\"key\":2,\"size\":null,\"ttl\":5.0}\n";
    let (batch, _) = read_all_rows("t.jsonl", text).unwrap();
    assert_eq!((batch.size, batch.ttl), (vec![Some(10), None], vec![None, Some(5)]));
    for text in ["key,size\n1,10.5\n", "key,size\n1,-1.0\n", "key,size\n1,inf\n"] {
        assert!(read_error("t.csv", text).contains("expected a whole number"), "{text}");
    }
}

#[test]
fn a_row_counts_op_count_times() {
    let csv = b"key,op,op_count\na,GET,2\nb,GET,\na,SET,1\nc,GET,0\na,GET,3.0\n".to_vec();
    let (batch, _) = read_all_rows("t.csv", &csv).unwrap();
    let a = batch.key[0];
    assert_eq!(batch.key.iter().filter(|&&key| key == a).count(), 6);
    assert_eq!(batch.op.iter().flatten().filter(|&&op| op == Op::Get).count(), 6);
    let text = b"{\"key\":5}\n{\"key\":6,\"op_count\":2}\n{\"key\":7}\n";
    assert_eq!(read_all_rows("t.jsonl", text).unwrap().0.key, [5, 6, 6, 7]);
}

#[test]
fn a_size_that_cannot_be_held_leaves_its_row_out() {
    let layout = Layout::default();
    for text in ["key,size\n1,5000000000\n2,7\n", "key,size\n1,99999999999999999999999\n2,7\n"] {
        let (batch, facts) = read_with_layout("t.csv", text, &layout).unwrap();
        assert_eq!((batch.key, batch.size, facts.oversized_rows), (vec![2], vec![Some(7)], 1));
    }
    let text = "{\"key\":1,\"ttl\":5000000000,\"op_count\":3}\n{\"key\":2,\"op_count\":2}\n";
    let (batch, facts) = read_with_layout("t.jsonl", text, &layout).unwrap();
    assert_eq!((batch.key, facts.oversized_rows), (vec![2, 2], 1));
    let pattern = LinePattern::new(r"^(?P<key>\S+) (?P<size>\S+)$").unwrap();
    let layout = Layout { pattern: Some(pattern), ..Layout::default() };
    let (batch, facts) = read_with_layout("access.log", "/a 5000000000\n/b -\n", &layout).unwrap();
    assert_eq!((batch.size, facts.oversized_rows), (vec![None], 1));
}

fn renamed_columns() -> Layout {
    Layout {
        names: ColumnNames {
            key: Some("url".into()),
            time: Some("when".into()),
            size: Some("bytes".into()),
            ..ColumnNames::default()
        },
        time_unit: Some(TimeUnit::Milliseconds),
        ..Layout::default()
    }
}

#[test]
fn columns_are_found_by_their_names_in_the_file() {
    let csv_text = "when\turl\tbytes\n1.5\t\"/a\tb\"\t10\n2\t/c\t\n";
    let json_text =
        "{\"when\":1.5,\"url\":\"/a\\tb\",\"bytes\":10}\n{\"when\":\"2\",\"url\":\"/c\"}\n";
    let (batch, facts) = read_with_layout("t.csv", csv_text, &renamed_columns()).unwrap();
    assert_eq!(batch.time, [1500, 2000]);
    assert_eq!(batch.size, [Some(10), None]);
    assert_ne!(batch.key[0], batch.key[1]);
    assert_eq!((facts.hashed_keys, facts.key_collisions, facts.has_time), (2, 0, true));
    assert_eq!(read_with_layout("t.jsonl", json_text, &renamed_columns()).unwrap(), (batch, facts));
}

#[test]
fn errors_name_the_column_of_the_file() {
    let read_error_with_layout = |name: &str, text: &str| {
        read_with_layout(name, text, &renamed_columns()).unwrap_err().to_string()
    };
    assert_eq!(
        read_error_with_layout("t.csv", "when,url,bytes\n1,a,b\n"),
        "t.csv, row 1, column bytes: expected a whole number from 0 to 4294967295, found \"b\""
    );
    assert_eq!(
        read_error_with_layout("t.csv", "url,bytes\n"),
        "t.csv: the header line names no column \"when\": \"url,bytes\""
    );
    assert_eq!(
        read_error_with_layout("t.jsonl", "{\"url\":1,\"when\":\"noon\"}\n"),
        "t.jsonl, row 1, column when: expected a number, an ISO 8601 time, or a time as in access logs, found \"noon\""
    );
}

#[test]
fn an_access_log_is_read_by_a_pattern() {
    let pattern = LinePattern::new(
        r#"^\S+ \S+ \S+ \[(?P<time>[^\]]+)\] "(?P<op>\S+) (?P<key>\S+) [^"]*" 200 (?P<size>\S+)"#,
    );
    let layout = Layout {
        pattern: Some(pattern.unwrap()),
        time_unit: Some(TimeUnit::Seconds),
        ..Layout::default()
    };
    let log_text = "1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 2326\n\
               1.2.3.4 - - [10/Oct/2000:13:55:37 -0700] \"GET /x HTTP/1.1\" 404 -\n\
               1.2.3.4 - - [10/Oct/2000:13:55:38 -0700] \"HEAD /a HTTP/1.1\" 200 -\n";
    let (batch, facts) = read_with_layout("access.log", log_text, &layout).unwrap();
    assert_eq!(batch.time, [971_211_336_000_000, 971_211_338_000_000]);
    assert_eq!(batch.key[0], batch.key[1]);
    assert_eq!(batch.size, [Some(2326), None]);
    assert_eq!(batch.op, [Some(Op::Get), Some(Op::Get)]);
    assert_eq!(facts.skipped_lines, 1);
}

#[test]
fn times_of_a_clock_are_read_back_whatever_the_unit_of_the_layout() {
    let batch = Batch {
        time: vec![1_795_411_822_000_123, 1_795_411_823_500_000],
        key: vec![1, 2],
        size: vec![None, Some(3)],
        op: vec![Some(Op::Get), Some(Op::Set)],
        ttl: vec![None, Some(9)],
    };
    for name in FILE_NAMES {
        let mut writer = Writer::with_clock(Format::of(name).unwrap(), Vec::new()).unwrap();
        writer.write(&batch).unwrap();
        let source = InMemoryFile::new(writer.finish().unwrap());
        let layout = Layout { time_unit: Some(TimeUnit::Seconds), ..Layout::default() };
        let mut stream = trace::open_with(name, source, Columns::ALL, &layout).unwrap();
        let mut rows_read = Batch::default();
        stream.read(&mut rows_read).unwrap();
        assert_eq!(rows_read, batch, "{name}");
    }
}

#[test]
fn lines_of_watch_are_read_as_gets_and_writes() {
    let layout = Layout { format: Some(Format::Watch), ..Layout::default() };
    let text = "OK\n\
        ts=5.10 gid=1 type=item_get key=a status=not_found clsid=0 cfd=25 size=0\n\
        ts=5.20 gid=2 type=item_get key=a status=not_found clsid=0 cfd=25 size=0\n\
        ts=5.21 gid=3 type=item_store key=a status=stored cmd=set ttl=7 clsid=1 cfd=25 size=5\n\
        ts=5.30 gid=4 type=item_get key=a status=found clsid=1 cfd=25 size=5\n";
    let (batch, facts) = read_with_layout("lines.txt", text, &layout).unwrap();
    assert_eq!(batch.time, [5_000_010, 5_000_021, 5_000_030]);
    assert_eq!(batch.op, [Some(Op::Get), Some(Op::Set), Some(Op::Get)]);
    assert_eq!(batch.size, [None, Some(5), Some(5)]);
    assert_eq!(batch.ttl, [None, Some(7), None]);
    assert_eq!((facts.hashed_keys, facts.skipped_lines), (1, 1));
}

#[test]
fn a_truncated_text_keeps_complete_rows_and_reports_it() {
    let (batch, is_truncated) = read_all_rows("t.csv", b"time,key\n1,5\n2").unwrap();
    assert_eq!((batch.key, is_truncated), (vec![5], true));
    let (batch, is_truncated) = read_all_rows("t.jsonl", b"{\"key\":5}\n{\"ke").unwrap();
    assert_eq!((batch.key, is_truncated), (vec![5], true));
}

#[cfg(feature = "parquet")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_damaged_parquet_file_gives_rows_or_an_error(
        batch in any_rows(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut writer = Writer::new(Format::Parquet, Vec::new()).unwrap();
        writer.write(&batch).unwrap();
        let mut bytes = writer.finish().unwrap();
        for (position, byte) in damage {
            let byte_index = position.index(bytes.len());
            bytes[byte_index] = byte;
        }
        if let Err(error) = read_all_rows("t.parquet", &bytes) {
            prop_assert!(error.to_string().starts_with("t.parquet"));
        }
    }
}

#[cfg(feature = "parquet")]
#[test]
fn rejects_truncated_and_non_parquet_files() {
    let mut writer = Writer::new(Format::Parquet, Vec::new()).unwrap();
    writer.write(&Batch { key: (0..5000).collect(), ..Batch::default() }).unwrap();
    let bytes = writer.finish().unwrap();
    for length in [0, 3, 8, bytes.len() / 2, bytes.len() - 1] {
        let error = read_all_rows("t.parquet", &bytes[..length]).unwrap_err().to_string();
        assert!(error.starts_with("t.parquet: not a valid Parquet file"), "{error}");
    }
    let error = read_all_rows("t.parquet", b"time,key\n1,5\n2,7\n").unwrap_err().to_string();
    assert!(error.starts_with("t.parquet: not a valid Parquet file"), "{error}");
}
