//! How long the calls of recorded requests took beyond what a latency table says, so that a forecast has the prices that
//! the application pays.
//!
//! A table is measured with one call right after another. A process that sleeps between its requests wakes with cold caches, waits
//! for its event loop or its interpreter, and may use another client than the one that was measured: on loopback its
//! calls take twice as long. docs/reference/formats.md, "Prices from the log".

use super::latency_sample::Dependence;

/// Recorded calls that are needed, at least.
const CALLS_MIN: u64 = 100;

/// Parts of equal weight into which the requests are cut by how long their calls took.
const SPREAD_PARTS: usize = 1000;

/// The excess of a call is cut at this share of the requests from above, before prices are fitted.
const OUTLIER_SHARE: f64 = 0.01;

/// How much of its variation a quantity must have beside the others, for a price of its own.
const INDEPENDENT_SHARE_MIN: f64 = 0.05;

/// What remains unexplained of a perfect fit, so that its logarithm is finite.
const REMAINING_SHARE_MIN: f64 = 1e-12;

/// What requests, calls and keys cost beyond a table.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedWaits {
    /// The recorded calls, those that wrote included.
    pub calls: u64,
    /// Nanoseconds that a request with calls waits beyond the table, however many they are; like the next two 0 if the
    /// recorded calls took less than the table says.
    pub request_ns: f64,
    /// Nanoseconds that each call takes beyond the table.
    pub call_ns: f64,
    /// Nanoseconds that each key after the first takes beyond the table.
    pub key_ns: f64,
    /// The share of the table's cost that calls took, 1 if they took more than the table says.
    pub table_share: f64,
    /// By how much the excess of requests differs from these prices, or their wait from the scaled table: ratios, as means
    /// of parts of equal weight, ascending, whose mean is 1.
    ratios: Vec<f64>,
}

/// A recorded request with calls.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedRequest {
    /// Calls, at least one.
    pub(super) calls: f64,
    /// Keys of its reads, beyond the first of each.
    pub(super) further_keys: f64,
    /// Nanoseconds that its calls cost by the table.
    pub(super) table_ns: f64,
    /// Nanoseconds that it waited for them.
    pub(super) wait_ns: f64,
}

impl RecordedWaits {
    /// How the prices of a table differ from the waits of these requests; `None` if they have fewer than 100 calls.
    pub(super) fn fit(recorded: &[RecordedRequest]) -> Option<Self> {
        let sum =
            |quantity: fn(&RecordedRequest) -> f64| recorded.iter().map(quantity).sum::<f64>();
        let calls = sum(|request| request.calls);
        let (table_ns, wait_ns) = (sum(|request| request.table_ns), sum(|request| request.wait_ns));
        if calls < CALLS_MIN as f64 {
            return None;
        }
        let is_faster = wait_ns < table_ns;
        let table_share = if is_faster { wait_ns / table_ns } else { 1.0 };
        let prices = if is_faster { [0.0; 3] } else { fit_prices(recorded) };
        // In the fit outliers were cut, in the prices they are not.
        let priced_ns: f64 = recorded.iter().map(|request| dot(prices, request.quantities())).sum();
        let scale = if priced_ns > 0.0 { (wait_ns - table_ns) / priced_ns } else { 0.0 };
        let [request_ns, call_ns, key_ns] = prices.map(|price| price * scale);
        let ratio_and_weight = |request: &RecordedRequest| {
            let (found_ns, expected_ns) = if is_faster {
                (request.wait_ns, request.table_ns * table_share)
            } else {
                let prices = [request_ns, call_ns, key_ns];
                (request.wait_ns - request.table_ns, dot(prices, request.quantities()))
            };
            (expected_ns > 0.0).then(|| (found_ns / expected_ns, expected_ns))
        };
        Some(Self {
            calls: calls as u64,
            request_ns,
            call_ns,
            key_ns,
            table_share,
            ratios: compute_spread(recorded.iter().filter_map(ratio_and_weight).collect()),
        })
    }

    /// By what the prices beyond the table are multiplied at a quantile (0 to 1) of the requests; those of the table, if
    /// recorded calls took less.
    pub fn ratio_at(&self, quantile: f64) -> f64 {
        let index = (quantile * self.ratios.len() as f64) as usize;
        self.ratios.get(index).or(self.ratios.last()).copied().unwrap_or(1.0)
    }

    /// A spread over requests is the same for all calls of one.
    pub const DEPENDENCE: Dependence = Dependence::Comonotone;
}

impl RecordedRequest {
    /// What has a price: the request, its calls, and their further keys.
    fn quantities(&self) -> [f64; 3] {
        [1.0, self.calls, self.further_keys]
    }
}

/// The prices of a request, of a call and of a further key beyond the table: by least squares, in which a request has the
/// less weight the more calls it has, and none below 0. Which of them have a price decides the Bayesian information
/// criterion: few requests do not tell the price of a request from that of its calls.
fn fit_prices(recorded: &[RecordedRequest]) -> [f64; 3] {
    let excess_of =
        |request: &RecordedRequest| (request.wait_ns - request.table_ns) / request.calls;
    let mut excesses: Vec<f64> = recorded.iter().map(excess_of).collect();
    excesses.sort_unstable_by(f64::total_cmp);
    let cut_index = (excesses.len() as f64 * (1.0 - OUTLIER_SHARE)) as usize;
    let excess_max = excesses.get(cut_index).copied().unwrap_or(f64::INFINITY);
    let (mut products, mut right_side) = ([[0.0; 3]; 3], [0.0; 3]);
    let mut squares = 0.0;
    for request in recorded {
        let quantities = request.quantities();
        let excess_ns = excess_of(request).min(excess_max);
        squares += excess_ns * excess_ns * request.calls;
        for (index, &quantity) in quantities.iter().enumerate() {
            // The excess of all its calls, over their number: the weight.
            right_side[index] += quantity * excess_ns;
            for (product, other) in products[index].iter_mut().zip(quantities) {
                *product += quantity * other / request.calls;
            }
        }
    }
    let log_of_count = (recorded.len() as f64).ln();
    let criterion = |prices: &[f64; 3]| {
        let remaining_squares = squares - dot(*prices, right_side);
        let price_count = prices.iter().filter(|&&price| price > 0.0).count();
        recorded.len() as f64 * (remaining_squares / squares).max(REMAINING_SHARE_MIN).ln()
            + price_count as f64 * log_of_count
    };
    // Calls always have a price: without it requests of equally many calls would be priced apart from these.
    let choices =
        [[false, true, false], [false, true, true], [true, true, false], [true; 3]].into_iter();
    let solutions = choices.filter_map(|has_price| solve(products, right_side, has_price));
    let possible = solutions.filter(|prices| prices.iter().all(|&price| price >= 0.0));
    let best = possible.min_by(|prices, others| criterion(prices).total_cmp(&criterion(others)));
    best.unwrap_or([0.0, 1.0, 0.0])
}

fn dot(left: [f64; 3], right: [f64; 3]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// The solution of the normal equations for the chosen quantities, the others 0; `None` if they vary together.
fn solve(
    mut products: [[f64; 3]; 3],
    mut right_side: [f64; 3],
    has_price: [bool; 3],
) -> Option<[f64; 3]> {
    let diagonal = [products[0][0], products[1][1], products[2][2]];
    for pivot in (0..3).filter(|&index| has_price[index]) {
        if products[pivot][pivot] <= INDEPENDENT_SHARE_MIN * diagonal[pivot] {
            return None;
        }
        for row in (0..3).filter(|&row| row != pivot && has_price[row]) {
            let pivot_row = products[pivot];
            let factor = products[row][pivot] / pivot_row[pivot];
            for (value, pivot_value) in products[row].iter_mut().zip(pivot_row) {
                *value -= factor * pivot_value;
            }
            right_side[row] -= factor * right_side[pivot];
        }
    }
    Some(std::array::from_fn(|index| {
        if has_price[index] { right_side[index] / products[index][index] } else { 0.0 }
    }))
}

/// Numbers with weights as [`SPREAD_PARTS`] parts of equal weight, ascending, each its mean.
fn compute_spread(mut numbers_and_weights: Vec<(f64, f64)>) -> Vec<f64> {
    numbers_and_weights.sort_unstable_by(|(number, _), (other, _)| number.total_cmp(other));
    let whole_weight: f64 = numbers_and_weights.iter().map(|(_, weight)| weight).sum();
    let part_weight = whole_weight / SPREAD_PARTS as f64;
    let mut parts = Vec::with_capacity(SPREAD_PARTS);
    let (mut sum, mut missing_weight) = (0.0, part_weight);
    for (number, mut weight) in numbers_and_weights {
        while weight >= missing_weight && parts.len() + 1 < SPREAD_PARTS {
            parts.push((sum + number * missing_weight) / part_weight);
            weight -= missing_weight;
            (sum, missing_weight) = (0.0, part_weight);
        }
        sum += number * weight;
        missing_weight -= weight;
    }
    if whole_weight > 0.0 {
        parts.push(sum / part_weight);
    }
    parts
}
