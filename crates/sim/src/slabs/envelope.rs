//! The lower envelope of straight lines, built and walked once: the convex hull trick of `optimum`.
//!
//! Lines that are nowhere the lowest are dropped when others are added. Queries come in rising order of `x`, so the
//! search never goes back: the total cost is one step per line and one per query.

/// The straight line `at_zero - held x` of one class below.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) at_zero: i64,
    pub(super) held: i64,
    pub(super) index: u32,
}

impl Line {
    pub(super) fn value(&self, x: i64) -> i64 {
        self.at_zero - self.held * x
    }
}

/// The lower envelope of lines that are added in order of falling slope and queried in order of rising `x`.
#[derive(Default)]
pub(super) struct Envelope {
    lines: Vec<Line>,
    at: usize,
}

impl Envelope {
    pub(super) fn add(&mut self, line: Line) {
        if let Some(last) = self.lines.last()
            && last.held == line.held
        {
            if last.at_zero <= line.at_zero {
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
        self.at = self.at.min(self.lines.len() - 1);
    }

    pub(super) fn least(&mut self, x: i64) -> Option<Line> {
        while self.at + 1 < self.lines.len()
            && self.lines[self.at + 1].value(x) <= self.lines[self.at].value(x)
        {
            self.at += 1;
        }
        self.lines.get(self.at).copied()
    }
}

/// Whether `second` is nowhere below both of its neighbours: they cross before it crosses the first.
fn is_hidden(first: Line, second: Line, third: Line) -> bool {
    let times = |a: i64, b: i64| i128::from(a) * i128::from(b);
    times(third.at_zero - first.at_zero, second.held - first.held)
        <= times(second.at_zero - first.at_zero, third.held - first.held)
}
