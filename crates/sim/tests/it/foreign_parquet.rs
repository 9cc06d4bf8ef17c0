//! Invalid Parquet files of other programs: each causes an error with file, row and column.
#![cfg(feature = "parquet")]

use std::sync::Arc;

use glasscache_sim::trace::log::RequestLog;
use glasscache_sim::trace::{
    Batch, ColumnNames, Columns, InMemoryFile, Layout, StreamFacts, TimeUnit, open, open_with,
};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Definition and repetition levels of a column.
type Levels<'a> = (Option<&'a [i16]>, Option<&'a [i16]>);

enum Column<'a> {
    Longs(&'a [i64]),
    Ints(&'a [i32], Levels<'a>),
    Doubles(&'a [f64], Option<&'a [i16]>),
    Floats(&'a [f32]),
    Strings(&'a [&'a str]),
}

/// A file of one row group.
fn parquet_file(schema: &str, columns: &[Column<'_>]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message m {{ {schema} }}")).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut row_group = writer.next_row_group().unwrap();
    for column in columns {
        let mut column_writer = row_group.next_column().unwrap().unwrap();
        match column {
            Column::Longs(values) => {
                column_writer.typed::<Int64Type>().write_batch(values, None, None)
            }
            Column::Ints(values, (definition_levels, repetition_levels)) => column_writer
                .typed::<Int32Type>()
                .write_batch(values, *definition_levels, *repetition_levels),
            Column::Doubles(values, definition_levels) => {
                column_writer.typed::<DoubleType>().write_batch(values, *definition_levels, None)
            }
            Column::Floats(values) => {
                column_writer.typed::<FloatType>().write_batch(values, None, None)
            }
            Column::Strings(texts) => {
                let strings: Vec<ByteArray> =
                    texts.iter().map(|text| ByteArray::from(*text)).collect();
                column_writer.typed::<ByteArrayType>().write_batch(&strings, None, None)
            }
        }
        .unwrap();
        column_writer.close().unwrap();
    }
    row_group.close().unwrap();
    writer.close().unwrap();
    bytes
}

const ITEMS_LIST_SCHEMA: &str =
    "optional group items (LIST) { repeated group list { optional int32 element; } }";

/// Reads a log of two items and two requests with the given keys and lists: the items of the requests, or the error.
fn read_log_as_text(keys: &[&str], lists: &Column<'_>) -> String {
    let items = parquet_file("required binary key (UTF8);", &[Column::Strings(keys)]);
    let Column::Ints(values, levels) = lists else { unreachable!("lists are of 32 bits") };
    let schema = format!("required int64 time_us; required int64 base_us; {ITEMS_LIST_SCHEMA}");
    let columns = [Column::Longs(&[1, 2]), Column::Longs(&[5, 5]), Column::Ints(values, *levels)];
    let requests = parquet_file(&schema, &columns);
    let log = RequestLog::read(
        ("items.parquet", InMemoryFile::new(items)),
        ("requests.parquet", InMemoryFile::new(requests)),
    );
    log.map_or_else(|error| error.to_string(), |log| format!("{:?}", log.requests.items))
}

#[test]
fn rejects_null_in_a_list_but_not_an_empty_list() {
    let complete_lists = Column::Ints(&[0, 1, 1], (Some(&[3, 3, 3]), Some(&[0, 1, 0])));
    assert_eq!(read_log_as_text(&["a", "b"], &complete_lists), "[0, 1, 1]");
    let lists_with_an_empty_one = Column::Ints(&[0], (Some(&[3, 1]), Some(&[0, 0])));
    assert_eq!(read_log_as_text(&["a", "b"], &lists_with_an_empty_one), "[0]");
    let lists_with_a_null = Column::Ints(&[0, 1], (Some(&[3, 3, 2]), Some(&[0, 0, 1])));
    let message = "requests.parquet, row 2, column items: an item may not be null";
    assert_eq!(read_log_as_text(&["a", "b"], &lists_with_a_null), message);
}

#[test]
fn rejects_duplicate_keys() {
    let complete_lists = Column::Ints(&[0, 1], (Some(&[3, 3]), Some(&[0, 0])));
    let message = "items.parquet, row 2, column key: the key \"a\" is a duplicate";
    assert_eq!(read_log_as_text(&["a", "a"], &complete_lists), message);
}

#[test]
fn rejects_a_list_instead_of_a_number() {
    let schema = ITEMS_LIST_SCHEMA.replace("items", "key");
    let lists = Column::Ints(&[1, 2], (Some(&[3, 3]), Some(&[0, 1])));
    let bytes = parquet_file(&schema, &[lists]);
    let opened = open("t.parquet", InMemoryFile::new(bytes), Columns::KEY);
    let Err(error) = opened.map(|mut stream| stream.read(&mut Batch::default())) else {
        panic!("a list was taken for a key");
    };
    assert_eq!(error.to_string(), "t.parquet, column key: expected single values, found lists");
}

#[test]
fn keys_of_strings_are_hashed_like_those_of_csv() {
    let schema = "required binary url (STRING); optional int32 size;";
    let columns =
        [Column::Strings(&["user:17", "17"]), Column::Ints(&[3, 4], (Some(&[1, 1]), None))];
    let layout = Layout {
        names: ColumnNames { key: Some("url".into()), ..ColumnNames::default() },
        ..Layout::default()
    };
    let read = |name: &str, bytes: Vec<u8>| {
        let source = InMemoryFile::new(bytes);
        let mut stream = open_with(name, source, Columns::KEY, &layout).unwrap();
        let mut batch = Batch::default();
        stream.read(&mut batch).unwrap();
        (batch.key, stream.facts().hashed_keys)
    };
    let (keys, hashed_keys) = read("t.parquet", parquet_file(schema, &columns));
    assert_eq!((keys[1], hashed_keys), (17, 1));
    let csv_bytes = b"url\nuser:17\n17\n".to_vec();
    assert_eq!((keys, hashed_keys), read("t.csv", csv_bytes));
}

/// Reads all columns of a file of few rows, its times in seconds unless the file has a unit.
fn read_columns(schema: &str, columns: &[Column<'_>]) -> Result<(Batch, StreamFacts), String> {
    let source = InMemoryFile::new(parquet_file(schema, columns));
    let layout = Layout { time_unit: Some(TimeUnit::Seconds), ..Layout::default() };
    let stream = open_with("t.parquet", source, Columns::ALL, &layout);
    let mut stream = stream.map_err(|error| error.to_string())?;
    let mut batch = Batch::default();
    stream.read(&mut batch).map_err(|error| error.to_string())?;
    Ok((batch, stream.facts()))
}

#[test]
fn whole_numbers_may_be_floats_and_nan_is_null() {
    let schema = "required int64 key; optional double size; required float ttl;";
    let (batch, _) = read_columns(
        schema,
        &[
            Column::Longs(&[1, 2, 3, 4]),
            Column::Doubles(&[10.0, f64::NAN, 0.0], Some(&[1, 0, 1, 1])),
            Column::Floats(&[1.0, 0.0, 60.0, 7.0]),
        ],
    )
    .unwrap();
    assert_eq!(batch.size, [Some(10), None, None, Some(0)]);
    assert_eq!(batch.ttl, [Some(1), Some(0), Some(60), Some(7)]);
    for (float, text) in [(10.5, "10.5"), (-1.0, "-1"), (f64::INFINITY, "inf")] {
        let columns = [Column::Longs(&[1]), Column::Doubles(&[float], Some(&[1]))];
        let schema = "required int64 key; optional double size;";
        let error = read_columns(schema, &columns).unwrap_err();
        let end = format!("found {text}");
        assert!(error.starts_with("t.parquet, row 1, column size: expected a whole"), "{error}");
        assert!(error.ends_with(&end), "{error}");
    }
}

#[test]
fn times_are_read_whatever_their_type() {
    const DAY_US: u64 = 86_400_000_000;
    let keys = Column::Longs(&[1, 2]);
    for (time, column) in [
        ("required int32 time (DATE)", Column::Ints(&[0, 20_000], (None, None))),
        ("required double time", Column::Doubles(&[0.0, 1_728_000_000.0], None)),
        ("required float time", Column::Floats(&[0.0, 1_728_000_000.0])),
        (
            "required binary time (STRING)",
            Column::Strings(&["1970-01-01T00:00:00Z", "2024-10-04T00:00:00Z"]),
        ),
        ("required binary time (STRING)", Column::Strings(&["0", "1728000000"])),
        ("required int64 time (TIMESTAMP_MILLIS)", Column::Longs(&[0, 1_728_000_000_000])),
        ("required int64 time", Column::Longs(&[0, 1_728_000_000])),
    ] {
        let schema = format!("required int64 key; {time};");
        let columns = [Column::Longs(&[1, 2]), column];
        let (batch, facts) = read_columns(&schema, &columns).unwrap();
        assert_eq!(batch.time, [0, 20_000 * DAY_US], "{time}");
        assert!(facts.has_time);
    }
    let schema = "required int64 key; required double time;";
    let (batch, _) = read_columns(schema, &[keys, Column::Doubles(&[0.5, 1.25], None)]).unwrap();
    assert_eq!(batch.time, [500_000, 1_250_000]);
    let schema = "required int64 key; required binary time (STRING);";
    let columns = [Column::Longs(&[1]), Column::Strings(&["noon"])];
    let error = read_columns(schema, &columns).unwrap_err();
    assert!(error.contains("column time: expected a number") && error.contains("noon"), "{error}");
}

#[test]
fn a_row_counts_op_count_times_and_a_size_that_cannot_be_held_leaves_its_row_out() {
    let schema = "required int64 key; required int64 size; required int64 op_count;";
    let (batch, facts) = read_columns(
        schema,
        &[
            Column::Longs(&[1, 2, 3]),
            Column::Longs(&[10, 5_000_000_000, 30]),
            Column::Longs(&[2, 9, 3]),
        ],
    )
    .unwrap();
    assert_eq!(batch.key, [1, 1, 3, 3, 3]);
    assert_eq!((batch.size.len(), facts.oversized_rows), (5, 1));
}
