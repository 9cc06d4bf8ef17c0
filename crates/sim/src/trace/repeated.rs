//! Rows that stand for several requests of their key (`op_count`), as that many rows.

use super::{BATCH_ROWS, Batch, KeyStream, StreamFacts};
use crate::TraceError;

/// A key stream whose rows may stand for several requests.
pub(super) trait CountedRows: KeyStream {
    /// How many requests each row of the last batch stands for; empty where each stands for one.
    fn request_counts(&self) -> &[u64];
}

/// A stream of one row for each request.
pub(super) struct RepeatedRows<S> {
    counted_rows: S,
    /// The rows that are being repeated.
    rows: Batch,
    next_row: usize,
    /// How often the next row has been given.
    given_count: u64,
}

impl<S: CountedRows> RepeatedRows<S> {
    pub(super) fn new(counted_rows: S) -> Self {
        Self { counted_rows, rows: Batch::default(), next_row: 0, given_count: 0 }
    }

    /// Appends repeated rows until the batch is full or none is left.
    fn repeat_rows(&mut self, batch: &mut Batch) {
        let counts = self.counted_rows.request_counts();
        while let Some(&count) = counts.get(self.next_row)
            && batch.len() < BATCH_ROWS
        {
            if self.given_count < count {
                batch.push_row_of(&self.rows, self.next_row);
                self.given_count += 1;
            } else {
                self.next_row += 1;
                self.given_count = 0;
            }
        }
    }
}

impl<S: CountedRows> KeyStream for RepeatedRows<S> {
    fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
        batch.clear();
        loop {
            self.repeat_rows(batch);
            if !batch.is_empty() || self.counted_rows.read(batch)? == 0 {
                return Ok(batch.len());
            }
            if self.counted_rows.request_counts().is_empty() {
                return Ok(batch.len());
            }
            std::mem::swap(batch, &mut self.rows);
            batch.clear();
            (self.next_row, self.given_count) = (0, 0);
        }
    }

    fn rows(&self) -> Option<u64> {
        self.counted_rows.rows()
    }

    fn is_truncated(&self) -> bool {
        self.counted_rows.is_truncated()
    }

    fn facts(&self) -> StreamFacts {
        self.counted_rows.facts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One batch of keys with their counts.
    struct OneBatch {
        keys: Vec<u64>,
        counts: Vec<u64>,
    }

    impl KeyStream for OneBatch {
        fn read(&mut self, batch: &mut Batch) -> Result<usize, TraceError> {
            batch.clear();
            batch.key = std::mem::take(&mut self.keys);
            if batch.is_empty() {
                self.counts.clear();
            }
            Ok(batch.len())
        }

        fn rows(&self) -> Option<u64> {
            None
        }

        fn is_truncated(&self) -> bool {
            false
        }

        fn facts(&self) -> StreamFacts {
            StreamFacts::default()
        }
    }

    impl CountedRows for OneBatch {
        fn request_counts(&self) -> &[u64] {
            &self.counts
        }
    }

    fn read_batches(keys: &[u64], counts: &[u64]) -> Vec<Vec<u64>> {
        let mut stream =
            RepeatedRows::new(OneBatch { keys: keys.to_vec(), counts: counts.to_vec() });
        let mut batch = Batch::default();
        std::iter::from_fn(|| (stream.read(&mut batch).unwrap() > 0).then(|| batch.key.clone()))
            .collect()
    }

    #[test]
    fn a_row_is_repeated_as_often_as_it_counts() {
        assert_eq!(read_batches(&[7, 8], &[]), [[7, 8]]);
        assert_eq!(read_batches(&[7, 8, 9], &[2, 0, 3]), [[7, 7, 9, 9, 9]]);
        assert_eq!(read_batches(&[7], &[0]), Vec::<Vec<u64>>::new());
    }

    #[test]
    fn a_row_of_many_requests_takes_several_batches() {
        let batches = read_batches(&[7, 8], &[2 * BATCH_ROWS as u64 + 1, 1]);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_ROWS, BATCH_ROWS, 2]);
        assert_eq!(batches[2], [7, 8]);
    }
}
