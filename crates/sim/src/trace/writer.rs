//! Key streams written, in any of the three formats: what generators and recorders produce.

#[cfg(feature = "parquet")]
use super::table_write::{Column, GROUP_ROWS, TableWriter};
use super::{Batch, Format};
use std::io::{Result, Write};

#[cfg(feature = "parquet")]
const SCHEMA: &str = "message keys {
    required int64 time (INTEGER(64, false));
    required int64 key (INTEGER(64, false));
    optional int32 size (INTEGER(32, false));
    optional binary op (STRING);
    optional int32 ttl (INTEGER(32, false));
}";

/// A key stream that is being written. [`Writer::finish`] ends it; a Parquet file without its end cannot be read.
pub struct Writer<W: Write + Send> {
    form: Form<W>,
    rows: u64,
    /// Whether times are microseconds of a clock.
    has_clock: bool,
}

enum Form<W: Write + Send> {
    Csv(W),
    JsonLines(W),
    #[cfg(feature = "parquet")]
    Parquet(Box<TableWriter<W>>, Batch),
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
    /// Row `at` of a batch before which `rows` rows were written.
    fn of(batch: &Batch, at: usize, rows: u64) -> Self {
        Self {
            time: batch.time.get(at).copied().unwrap_or(rows + at as u64),
            key: batch.key[at],
            size: batch.size.get(at).copied().flatten(),
            op: batch.op.get(at).copied().flatten().map(super::Op::name),
            ttl: batch.ttl.get(at).copied().flatten(),
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
        let form = match format {
            Format::Csv => {
                writeln!(out, "time,key,size,op,ttl")?;
                Form::Csv(out)
            }
            Format::JsonLines => Form::JsonLines(out),
            #[cfg(feature = "parquet")]
            Format::Parquet => {
                let schema = if has_clock {
                    SCHEMA.replace(
                        "time (INTEGER(64, false))",
                        "time (TIMESTAMP(MICROS, true))",
                    )
                } else {
                    SCHEMA.to_owned()
                };
                Form::Parquet(Box::new(TableWriter::new(out, &schema)?), Batch::default())
            }
            Format::Watch => {
                return Err(std::io::Error::other("lines of watch are only read"));
            }
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => {
                return Err(std::io::Error::other("this build writes no Parquet"));
            }
        };
        Ok(Self {
            form,
            rows: 0,
            has_clock,
        })
    }

    /// Appends the rows of a batch; a column that the batch leaves empty is null, `time` the row number.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        let before = self.rows;
        self.rows += batch.len() as u64;
        let has_clock = self.has_clock;
        let rows = (0..batch.len()).map(|at| Row::of(batch, at, before));
        match &mut self.form {
            Form::Csv(out) => rows
                .into_iter()
                .try_for_each(|row| csv(out, row, has_clock)),
            Form::JsonLines(out) => rows
                .into_iter()
                .try_for_each(|row| json(out, row, has_clock)),
            #[cfg(feature = "parquet")]
            Form::Parquet(table, held) => {
                for row in rows {
                    held.time.push(row.time);
                    held.key.push(row.key);
                    held.size.push(row.size);
                    held.op
                        .push(row.op.map(|text| super::Op::parse(text.as_bytes())));
                    held.ttl.push(row.ttl);
                }
                if held.len() >= GROUP_ROWS {
                    group(table, held)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Ends the stream and returns what it was written to.
    pub fn finish(self) -> Result<W> {
        match self.form {
            Form::Csv(mut out) | Form::JsonLines(mut out) => {
                out.flush()?;
                Ok(out)
            }
            #[cfg(feature = "parquet")]
            Form::Parquet(mut table, mut held) => {
                if !held.is_empty() {
                    group(&mut table, &mut held)?;
                }
                table.finish()
            }
        }
    }
}

/// Writes a time as it is, or microseconds as seconds with six decimals.
fn time(out: &mut impl Write, time: u64, has_clock: bool) -> Result<()> {
    if has_clock {
        write!(out, "{}.{:06}", time / 1_000_000, time % 1_000_000)
    } else {
        write!(out, "{time}")
    }
}

fn csv(out: &mut impl Write, row: Row<'_>, has_clock: bool) -> Result<()> {
    time(out, row.time, has_clock)?;
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

fn json(out: &mut impl Write, row: Row<'_>, has_clock: bool) -> Result<()> {
    write!(out, "{{\"time\":")?;
    time(out, row.time, has_clock)?;
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
fn group<W: Write + Send>(table: &mut TableWriter<W>, held: &mut Batch) -> Result<()> {
    let longs = |values: &[u64]| Column::Longs(values.iter().map(|&value| value as i64).collect());
    table.group(&[
        longs(&held.time),
        longs(&held.key),
        Column::nullable(held.size.iter().copied()),
        Column::nullable_strings(held.op.iter().map(|op| op.map(super::Op::name))),
        Column::nullable(held.ttl.iter().copied()),
    ])?;
    held.clear();
    Ok(())
}
