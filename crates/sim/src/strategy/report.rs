//! Evaluates one strategy: choose the fixed set, replay, compute the figures.

use super::cost::CostModel;
use super::draw::Dependence;
use super::figures::{Figures, figures};
use super::fixed::choose;
use super::learn::learn;
use super::prepare::Prepared;
use super::run::{Choices, Pricing, RequestStats, run};
use super::{LocalRule, Strategy};

/// The figures of a strategy.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Over all requests.
    pub all: Figures,
    /// Over the second half, which no choice has used.
    pub second_half: Figures,
    /// The second half with an independent latency draw for each call, if a distribution was measured.
    pub drawn: Option<Figures>,
    /// The same with one draw for all calls of a request: an upper bound on the effect of dependence.
    pub comonotone: Option<Figures>,
    /// By route, in the requested order: all requests, and the second half.
    pub routes: Vec<(Figures, Figures)>,
    /// The maximum that each process keeps.
    pub kept: Kept,
    /// Added and base nanoseconds of the second half's requests, for distributions.
    pub second_half_ns: Vec<(u64, u64)>,
}

/// What a strategy lets each process keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Items of the fixed set.
    pub fixed_items: u64,
    /// Bytes of the fixed set.
    pub fixed_bytes: u64,
    /// Bytes of the local cache: its bound, or for one bounded in items their number times the mean size.
    pub local_bytes: u64,
}

impl Kept {
    /// All bytes together.
    pub fn bytes(&self) -> u64 {
        self.fixed_bytes + self.local_bytes
    }
}

/// What to report besides the plain figures.
#[derive(Debug, Clone, Copy)]
pub struct ReportOptions<'a> {
    /// Draw latencies with this seed.
    pub draw_seed: Option<u64>,
    /// For each request of the log the index of its route among the requested ones; empty for none.
    pub route_of: &'a [u32],
    /// Number of requested routes.
    pub routes: usize,
}

/// Replays a strategy and sums up.
pub fn report(
    prepared: &Prepared<'_>,
    cost: &CostModel,
    strategy: &Strategy,
    options: ReportOptions<'_>,
) -> Report {
    let fixed = choose(strategy.fixed, prepared, cost);
    let learned = learn(strategy.together, prepared, 0..prepared.half());
    let choices = Choices {
        fixed: &fixed,
        learned: &learned.items,
    };
    let (count, half) = (prepared.len(), prepared.half());
    let replay = |pricing| run(prepared, cost, strategy, choices, pricing, count);
    let request_stats = replay(Pricing::Median);
    let drawn = |dependence| {
        let seed = options.draw_seed.filter(|_| cost.quantiles().is_some())?;
        let request_stats = replay(Pricing::Drawn { seed, dependence });
        Some(figures(prepared, &request_stats, half..count))
    };
    Report {
        all: figures(prepared, &request_stats, 0..count),
        second_half: figures(prepared, &request_stats, half..count),
        drawn: drawn(Dependence::Independent),
        comonotone: drawn(Dependence::Comonotone),
        routes: by_route(prepared, &request_stats, options),
        kept: Kept {
            fixed_items: fixed.items.len() as u64,
            fixed_bytes: fixed.bytes,
            local_bytes: local_bytes(strategy.local, prepared),
        },
        second_half_ns: (half..count)
            .map(|r| (request_stats[r].added_ns, prepared.base_ns[r]))
            .collect(),
    }
}

fn by_route(
    prepared: &Prepared<'_>,
    request_stats: &[RequestStats],
    options: ReportOptions<'_>,
) -> Vec<(Figures, Figures)> {
    let of_route = |route: usize, from: usize| {
        let is_of =
            move |r: &usize| options.route_of[prepared.origin[*r] as usize] as usize == route;
        figures(
            prepared,
            request_stats,
            (from..prepared.len()).filter(is_of),
        )
    };
    (0..options.routes)
        .map(|route| (of_route(route, 0), of_route(route, prepared.half())))
        .collect()
}

fn local_bytes(rule: LocalRule, prepared: &Prepared<'_>) -> u64 {
    let sizes = &prepared.items.sizes;
    let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
    match rule {
        LocalRule::Nothing => 0,
        LocalRule::LruBytes(bytes) => bytes.min(total),
        LocalRule::Lru(n) | LocalRule::S3Fifo(n) => {
            let items = n.min(sizes.len()) as u64;
            total * items / (sizes.len() as u64).max(1)
        }
    }
}
