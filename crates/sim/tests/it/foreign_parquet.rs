//! Invalid Parquet files of other programs: each causes an error with file, row and column.
#![cfg(feature = "parquet")]

use std::sync::Arc;

use glasscache_sim::trace::log::RequestLog;
use glasscache_sim::trace::{Batch, ColumnNames, Columns, InMemoryFile, Layout, open, open_with};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Definition and repetition levels of a column.
type Levels<'a> = (Option<&'a [i16]>, Option<&'a [i16]>);

enum Column<'a> {
    Longs(&'a [i64]),
    Ints(&'a [i32], Levels<'a>),
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
