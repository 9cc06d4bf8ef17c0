//! The lower envelope of straight lines, built and walked once: the convex hull trick of `optimum`.
//!
//! Lines that are nowhere the lowest are dropped when others are added. Queries come in rising order of `x`, so the
//! search never goes back: the total cost is one step per line and one per query.

/// The straight line `value_at_zero - chunks_held x` of one class below.
#[derive(Debug, Clone, Copy)]
pub(super) struct CostLine {
    pub(super) value_at_zero: i64,
    pub(super) chunks_held: i64,
    pub(super) candidate_index: u32,
}

impl CostLine {
    pub(super) fn value(&self, x: i64) -> i64 {
        self.value_at_zero - self.chunks_held * x
    }
}

/// The lower envelope of lines that are added in order of falling slope and queried in order of rising `x`.
#[derive(Default)]
pub(super) struct Envelope {
    lines: Vec<CostLine>,
    current_index: usize,
}

impl Envelope {
    pub(super) fn add(&mut self, line: CostLine) {
        if let Some(last) = self.lines.last()
            && last.chunks_held == line.chunks_held
        {
            if last.value_at_zero <= line.value_at_zero {
                return;
            }
            self.lines.pop();
        }
        while let [.., first, second] = self.lines.as_slice() {
            if !is_hidden(*first, *second, line) {
                break;
            }
            self.lines.pop();
        }
        self.lines.push(line);
        self.current_index = self.current_index.min(self.lines.len() - 1);
    }

    pub(super) fn least_line(&mut self, x: i64) -> Option<CostLine> {
        while self.current_index + 1 < self.lines.len()
            && self.lines[self.current_index + 1].value(x)
                <= self.lines[self.current_index].value(x)
        {
            self.current_index += 1;
        }
        self.lines.get(self.current_index).copied()
    }
}

/// Whether `second` is nowhere below both of its neighbours: they cross before it crosses the first.
fn is_hidden(first: CostLine, second: CostLine, third: CostLine) -> bool {
    let product = |a: i64, b: i64| i128::from(a) * i128::from(b);
    product(third.value_at_zero - first.value_at_zero, second.chunks_held - first.chunks_held)
        <= product(
            second.value_at_zero - first.value_at_zero,
            third.chunks_held - first.chunks_held,
        )
}
