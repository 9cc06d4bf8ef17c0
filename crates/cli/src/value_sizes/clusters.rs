//! The mean value sizes of a table of cache clusters in CSV, such as the published one of Twitter's.

use std::path::Path;

use glasscache_sim::TraceError;

use crate::files::read_text;
use crate::output::{Exit, Failure};

/// Column of the mean bytes of a value.
const SIZE_COLUMN: &str = "value_size_mean";

/// Column of the weight of a row: its requests.
const RATE_COLUMN: &str = "request_rate_kqps";

/// The count of a row for each 1,000 requests a second of its cluster: one for each request a second.
const COUNTS_PER_KQPS: f64 = 1000.0;

/// The mean value size of each row of the table at `path`, counted by its request rate; rows that lack either are left
/// out, and without the column of rates all rows count the same.
pub(super) fn read(path: &Path) -> Result<Vec<(u32, u64)>, Failure> {
    let name = path.to_string_lossy();
    let text = read_text(path)
        .map_err(|error| Failure::new(Exit::Unreachable, format!("cannot open {name}: {error}")))?;
    Ok(parse(&name, &text)?)
}

fn parse(name: &str, text: &str) -> Result<Vec<(u32, u64)>, TraceError> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or("").split(',').map(str::trim).collect();
    let find_column_index = |wanted: &str| header.iter().position(|title| *title == wanted);
    let size_index = find_column_index(SIZE_COLUMN).ok_or_else(|| {
        TraceError::file(
            name,
            format!("has no column {SIZE_COLUMN}, so it is not a table of clusters"),
        )
    })?;
    let rate_index = find_column_index(RATE_COLUMN);
    let mut counts = Vec::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let read_number = |column_index: usize| -> Option<f64> {
            let number: f64 = cells.get(column_index)?.parse().ok()?;
            (number.is_finite() && number > 0.0).then_some(number)
        };
        let weight = rate_index.map_or(Some(1.0), read_number);
        if let (Some(mean_bytes), Some(weight)) = (read_number(size_index), weight) {
            counts.push((mean_bytes.round() as u32, (weight * COUNTS_PER_KQPS).ceil() as u64));
        }
    }
    if counts.is_empty() {
        return Err(TraceError::file(name, format!("no row has a number in {SIZE_COLUMN}")));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_by_their_request_rate_and_rows_without_figures_are_left_out() {
        let table = "cluster,value_size_mean,request_rate_kqps\n1,267,11.4\n2,,3\n3,2439,0.5\n";
        assert_eq!(parse("t.csv", table).unwrap(), [(267, 11_400), (2439, 500)]);
        assert_eq!(parse("t.csv", "value_size_mean\n10\n20\n").unwrap(), [(10, 1000), (20, 1000)]);
    }

    #[test]
    fn a_file_without_the_column_or_without_a_number_is_refused() {
        let error = parse("t.csv", "a,b\n1,2\n").unwrap_err().to_string();
        assert!(error.contains("value_size_mean"), "{error}");
        assert!(parse("t.csv", "value_size_mean\nx\n").is_err());
    }
}
