//! Evaluates one strategy: chooses the fixed set, replays, computes the figures.

use super::cost::CostModel;
use super::figures::{Figures, compute_figures};
use super::fixed::choose_fixed;
use super::latency_sample::Dependence;
use super::learn::learn;
use super::prepare::PreparedLog;
use super::run::{Choices, CostMode, RequestStats, run};
use super::{LocalRule, Strategy};
use crate::trace::log::Requests;

/// The figures of a strategy.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Over all requests.
    pub all: Figures,
    /// Over the second half, which no choice has used.
    pub second_half: Figures,
    /// The second half with latencies drawn from the measured distribution, if there is one: a draw for each call, or for
    /// each request where the distribution is that of recorded requests.
    pub drawn: Option<Figures>,
    /// The same with one draw for all calls of a request: an upper bound on the effect of dependence.
    pub comonotone: Option<Figures>,
    /// By route, in the requested order: all requests, and the second half.
    pub routes: Vec<(Figures, Figures)>,
    /// The maximum that each process keeps.
    pub kept: KeptSizes,
    /// Added and base nanoseconds of the second half's requests, for distributions.
    pub second_half_ns: Vec<(u64, u64)>,
}

/// What a strategy lets each process keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptSizes {
    /// Items of the fixed set.
    pub fixed_items: u64,
    /// The memory of the fixed set, in bytes.
    pub fixed_bytes: u64,
    /// The memory of the local cache, in bytes: its bound, or for one bounded in items their number times the mean size.
    pub local_bytes: u64,
}

impl KeptSizes {
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
    pub route_count: usize,
}

/// Replays a strategy and sums up.
pub fn report(
    prepared: &PreparedLog<'_>,
    cost: &CostModel,
    strategy: &Strategy,
    options: ReportOptions<'_>,
) -> Report {
    let fixed = choose_fixed(strategy.fixed, prepared, cost);
    let learned =
        learn(strategy.companion_share_percent, prepared, 0..prepared.second_half_start());
    let choices = Choices { fixed: &fixed, learned: &learned.items };
    let (request_count, second_half_start) = (prepared.len(), prepared.second_half_start());
    let replay = |cost_mode| run(prepared, cost, strategy, choices, cost_mode, request_count);
    let request_stats = replay(CostMode::Median);
    let dependence_of_draws = cost.dependence_of_draws();
    let drawn_figures = |dependence| {
        let seed = options.draw_seed.filter(|_| dependence_of_draws.is_some())?;
        let drawn_stats = replay(CostMode::Drawn { seed, dependence });
        let requests = second_half_start..request_count;
        Some(figures_of(prepared, Stats::Simulated(&drawn_stats), requests))
    };
    let stats = Stats::Simulated(&request_stats);
    Report {
        all: figures_of(prepared, stats, 0..request_count),
        second_half: figures_of(prepared, stats, second_half_start..request_count),
        drawn: drawn_figures(dependence_of_draws.unwrap_or(Dependence::Independent)),
        comonotone: drawn_figures(Dependence::Comonotone),
        routes: figures_by_route(prepared, stats, options),
        kept: KeptSizes {
            fixed_items: fixed.items.len() as u64,
            fixed_bytes: fixed.bytes,
            local_bytes: local_bytes(strategy.local, prepared),
        },
        second_half_ns: (second_half_start..request_count)
            .map(|request| (request_stats[request].added_ns, prepared.base_ns[request]))
            .collect(),
    }
}

/// What requests needed when they were recorded, as a strategy beside the simulated ones: its times are measured, and keys
/// that a request read again count again. `None` if the calls of a request are unknown.
pub fn report_as_recorded(
    prepared: &PreparedLog<'_>,
    requests: &Requests,
    options: ReportOptions<'_>,
) -> Option<Report> {
    let stats_of = |&log_index: &u32| {
        let (keys_of_calls, times) = requests.calls.of(log_index as usize)?;
        let items = requests.items_of(log_index as usize);
        let size_of_item = |&item: &u32| u64::from(prepared.items.sizes[item as usize]);
        Some(RequestStats {
            added_ns: u64::from(times.wait_us) * 1000,
            bytes: items.iter().map(size_of_item).sum(),
            calls: keys_of_calls.len() as u32 + times.writes,
            keys: items.len() as u32,
            used_keys: items.len() as u32,
        })
    };
    let request_stats: Vec<RequestStats> =
        prepared.log_indexes.iter().map(stats_of).collect::<Option<_>>()?;
    let stats = Stats::Measured(&request_stats);
    let (request_count, second_half_start) = (prepared.len(), prepared.second_half_start());
    Some(Report {
        all: figures_of(prepared, stats, 0..request_count),
        second_half: figures_of(prepared, stats, second_half_start..request_count),
        routes: figures_by_route(prepared, stats, options),
        second_half_ns: (second_half_start..request_count)
            .map(|request| (request_stats[request].added_ns, prepared.base_ns[request]))
            .collect(),
        ..Report::default()
    })
}

/// What each request needed: a wait that was measured contains decoding.
#[derive(Debug, Clone, Copy)]
enum Stats<'a> {
    Simulated(&'a [RequestStats]),
    Measured(&'a [RequestStats]),
}

fn figures_of(
    prepared: &PreparedLog<'_>,
    stats: Stats<'_>,
    requests: impl Iterator<Item = usize> + Clone,
) -> Figures {
    let (Stats::Simulated(request_stats) | Stats::Measured(request_stats)) = stats;
    let decode_ns = prepared.decode_ns(requests.clone());
    let figures = compute_figures(prepared, request_stats, requests);
    figures.with_decoding(decode_ns, matches!(stats, Stats::Measured(_)))
}

fn figures_by_route(
    prepared: &PreparedLog<'_>,
    stats: Stats<'_>,
    options: ReportOptions<'_>,
) -> Vec<(Figures, Figures)> {
    let route_figures = |route: usize, first_request: usize| {
        let is_on_route = move |request: &usize| {
            options.route_of[prepared.log_indexes[*request] as usize] as usize == route
        };
        figures_of(prepared, stats, (first_request..prepared.len()).filter(is_on_route))
    };
    (0..options.route_count)
        .map(|route| (route_figures(route, 0), route_figures(route, prepared.second_half_start())))
        .collect()
}

fn local_bytes(rule: LocalRule, prepared: &PreparedLog<'_>) -> u64 {
    let item_count = prepared.items.len() as u64;
    let all_items_bytes = prepared.items.all_near_bytes();
    match rule {
        LocalRule::Nothing => 0,
        LocalRule::LruBytes(bytes) => bytes.min(all_items_bytes),
        LocalRule::Lru(items_max)
        | LocalRule::S3Fifo(items_max)
        | LocalRule::S4Fifo(items_max, _)
        | LocalRule::Tuned(items_max) => {
            all_items_bytes * item_count.min(items_max as u64) / item_count.max(1)
        }
    }
}
