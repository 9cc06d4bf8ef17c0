//! Key streams written, in any of the three formats: what generators and recorders produce.

#[cfg(feature = "parquet")]
use super::parquet_writer::{Column, GROUP_ROWS, ParquetWriter};
use super::{Batch, Format};
use std::io::{Result, Write};

#[cfg(feature = "parquet")]
const KEYS_SCHEMA: &str = "message keys {
    required int64 time (INTEGER(64, false));
    required int64 key (INTEGER(64, false));
    optional int32 size (INTEGER(32, false));
    optional binary op (STRING);
    optional int32 ttl (INTEGER(32, false));
}";

/// A key stream that is being written. [`Writer::finish`] ends it; a Parquet file without its end cannot be read.
pub struct Writer<W: Write + Send> {
    output: Output<W>,
    rows_written: u64,
    /// Whether times are microseconds of a clock.
    has_clock: bool,
}

enum Output<W: Write + Send> {
    Csv(W),
    JsonLines(W),
    #[cfg(feature = "parquet")]
    Parquet(Box<ParquetWriter<W>>, Batch),
}

/// One row of a batch, columns that the batch lacks being null.
#[derive(Clone, Copy)]
struct Row<'a> {
    time: u64,
    key: u64,
    size: Option<u32>,
    op: Option<&'a str>,
    ttl: Option<u32>,
}

impl Row<'_> {
    /// The row at `index` of a batch before which `rows_before` rows were written.
    fn of(batch: &Batch, index: usize, rows_before: u64) -> Self {
        Self {
            time: batch.time.get(index).copied().unwrap_or(rows_before + index as u64),
            key: batch.key[index],
            size: batch.size.get(index).copied().flatten(),
            op: batch.op.get(index).copied().flatten().map(super::Op::name),
            ttl: batch.ttl.get(index).copied().flatten(),
        }
    }
}

impl<W: Write + Send> Writer<W> {
    /// Begins a stream.
    ///
    /// # Errors
    /// Writing failed, or the format is Parquet in a build without it.
    pub fn new(format: Format, out: W) -> Result<Self> {
        Self::begin(format, out, false)
    }

    /// Begins a stream whose times are microseconds since 1970: text has them as seconds with decimals, Parquet as
    /// time stamps, so that a reader needs no unit.
    ///
    /// # Errors
    /// As those of [`Writer::new`].
    pub fn with_clock(format: Format, out: W) -> Result<Self> {
        Self::begin(format, out, true)
    }

    fn begin(format: Format, mut out: W, has_clock: bool) -> Result<Self> {
        let output = match format {
            Format::Csv => {
                writeln!(out, "time,key,size,op,ttl")?;
                Output::Csv(out)
            }
            Format::JsonLines => Output::JsonLines(out),
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let schema = if has_clock {
                    KEYS_SCHEMA
                        .replace("time (INTEGER(64, false))", "time (TIMESTAMP(MICROS, true))")
                } else {
                    KEYS_SCHEMA.to_owned()
                };
                Output::Parquet(Box::new(ParquetWriter::new(out, &schema)?), Batch::default())
            }
            Format::Watch => {
                return Err(std::io::Error::other("lines of watch are only read"));
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => {
                return Err(std::io::Error::other("this build writes no Parquet"));
            }
        };
        Ok(Self { output, rows_written: 0, has_clock })
    }

    /// Appends the rows of a batch; a column that the batch leaves empty is null, or for `time` the row number.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        let rows_before = self.rows_written;
        self.rows_written += batch.len() as u64;
        let has_clock = self.has_clock;
        let rows = (0..batch.len()).map(|index| Row::of(batch, index, rows_before));
        match &mut self.output {
            Output::Csv(out) => {
                rows.into_iter().try_for_each(|row| write_csv_row(out, row, has_clock))
            }
            Output::JsonLines(out) => {
                rows.into_iter().try_for_each(|row| write_json_row(out, row, has_clock))
            }
            #[cfg(feature = "parquet")]
            Output::Parquet(parquet_writer, group_rows) => {
                for row in rows {
                    group_rows.time.push(row.time);
                    group_rows.key.push(row.key);
                    group_rows.size.push(row.size);
                    group_rows.op.push(row.op.map(|text| super::Op::parse(text.as_bytes())));
                    group_rows.ttl.push(row.ttl);
                }
                if group_rows.len() >= GROUP_ROWS {
                    write_group(parquet_writer, group_rows)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Ends the stream and returns what it was written to.
    pub fn finish(self) -> Result<W> {
        match self.output {
            Output::Csv(mut out) | Output::JsonLines(mut out) => {
                out.flush()?;
                Ok(out)
            }
            #[cfg(feature = "parquet")]
            Output::Parquet(mut parquet_writer, mut group_rows) => {
                if !group_rows.is_empty() {
                    write_group(&mut parquet_writer, &mut group_rows)?;
                }
                parquet_writer.finish()
            }
        }
    }
}

/// Writes a time as it is, or microseconds as seconds with six decimals.
fn write_time(out: &mut impl Write, time: u64, has_clock: bool) -> Result<()> {
    if has_clock {
        write!(out, "{}.{:06}", time / 1_000_000, time % 1_000_000)
    } else {
        write!(out, "{time}")
    }
}

fn write_csv_row(out: &mut impl Write, row: Row<'_>, has_clock: bool) -> Result<()> {
    write_time(out, row.time, has_clock)?;
    write!(out, ",{},", row.key)?;
    if let Some(size) = row.size {
        write!(out, "{size}")?;
    }
    write!(out, ",{},", row.op.unwrap_or(""))?;
    match row.ttl {
        Some(ttl) => writeln!(out, "{ttl}"),
        None => writeln!(out),
    }
}

fn write_json_row(out: &mut impl Write, row: Row<'_>, has_clock: bool) -> Result<()> {
    write!(out, "{{\"time\":")?;
    write_time(out, row.time, has_clock)?;
    write!(out, ",\"key\":{}", row.key)?;
    if let Some(size) = row.size {
        write!(out, ",\"size\":{size}")?;
    }
    if let Some(op) = row.op {
        write!(out, ",\"op\":\"{op}\"")?;
    }
    if let Some(ttl) = row.ttl {
        write!(out, ",\"ttl\":{ttl}")?;
    }
    writeln!(out, "}}")
}

/// Writes the held rows as one row group.
#[cfg(feature = "parquet")]
fn write_group<W: Write + Send>(
    parquet_writer: &mut ParquetWriter<W>,
    group_rows: &mut Batch,
) -> Result<()> {
    let longs = |values: &[u64]| Column::Longs(values.iter().map(|&value| value as i64).collect());
    parquet_writer.write_group(&[
        longs(&group_rows.time),
        longs(&group_rows.key),
        Column::nullable_numbers(group_rows.size.iter().copied()),
        Column::nullable_strings(
            group_rows.op.iter().map(|op| op.map(|op| super::Op::name(op).into())),
        ),
        Column::nullable_numbers(group_rows.ttl.iter().copied()),
    ])?;
    group_rows.clear();
    Ok(())
}
