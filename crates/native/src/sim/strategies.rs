//! Request simulation for Python: a log with its latency table, strategies in their notation, results as JSON.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use glasscache_record::{FolderLog, ReadError, read_folder};
use glasscache_sim::packed::{pack_log, unpack_log};
use glasscache_sim::search::{
    BestSoFar, Candidate, Evaluation, LearnedByShare, evaluate, find_pareto_front, list_candidates,
};
use glasscache_sim::strategy::Strategy;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::{ReportOptions, report};
use glasscache_sim::trace::log::RequestLog;
use pyo3::exceptions::PyFileNotFoundError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::parallel::run_in_parallel;
use crate::error;

/// A request log with its latency table, without the requests of excluded routes.
#[pyclass(frozen, module = "glasscache._native", name = "RequestLog")]
pub(crate) struct SimulatedLog {
    log: RequestLog,
    cost: CostModel,
    /// The latency table as it was read, and whether what requests waited beyond it counts.
    prices: (Option<String>, bool),
    excluded_routes: Vec<String>,
    /// The parts of the folder that are not in the log, each with its reason.
    left_out_parts: Vec<String>,
    /// Rules learned for a search, by evaluation: out of sample, in hindsight.
    rules_by_evaluation: [OnceLock<LearnedByShare>; 2],
}

#[pymethods]
impl SimulatedLog {
    /// Read the log in a folder and a latency table, by default what the log itself says of prices; leave the requests of
    /// the excluded routes out.
    #[staticmethod]
    #[pyo3(signature = (folder, *, latency, exclude))]
    fn read(
        py: Python<'_>,
        folder: PathBuf,
        latency: Option<PathBuf>,
        exclude: Vec<String>,
    ) -> PyResult<Self> {
        let FolderLog { log, left_out } = read_log(py, &folder)?;
        let uses_waits = latency.is_none();
        let path = latency.unwrap_or_else(|| folder.join("latency.json"));
        let latency_json = if uses_waits && !path.exists() {
            None
        } else {
            Some(std::io::read_to_string(super::open_file(&path)?)?)
        };
        let prices = (latency_json, uses_waits);
        let mut simulated = Self::new(py, log, prices, &path.to_string_lossy(), exclude)?;
        simulated.left_out_parts = left_out.iter().map(ToString::to_string).collect();
        if py.detach(|| simulated.prepare_log().len()) < 2 {
            let fault = format!("{}: fewer than 2 requests, one for each half", folder.display());
            return Err(error::bad_setting(py, fault));
        }
        Ok(simulated)
    }

    /// Take what `packed` gave, in a process of the same version.
    #[staticmethod]
    fn unpack(
        py: Python<'_>,
        packed_log: &[u8],
        prices: (Option<String>, bool),
        exclude: Vec<String>,
    ) -> PyResult<Self> {
        let log = py.detach(|| unpack_log(packed_log));
        let log = log.map_err(|fault| error::from_trace_error(py, &fault))?;
        Self::new(py, log, prices, "latency table", exclude)
    }

    /// Return the log as bytes.
    fn packed<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| pack_log(&self.log)))
    }

    /// The latency table as it was read, if there is one, and whether what requests waited beyond it counts.
    #[getter]
    fn prices(&self) -> (Option<&str>, bool) {
        (self.prices.0.as_deref(), self.prices.1)
    }

    /// The parts of the folder that are not in the log, each with its reason.
    #[getter]
    fn left_out_parts(&self) -> Vec<String> {
        self.left_out_parts.clone()
    }

    /// Refuse strategies that do not exist and draws that the latency table does not have.
    fn check(
        &self,
        py: Python<'_>,
        strategies: Vec<String>,
        draw_seed: Option<u64>,
    ) -> PyResult<()> {
        parse_strategies(py, &strategies)?;
        if draw_seed.is_some() && self.cost.dependence_of_draws().is_none() {
            let fault = "the latency table has no distribution to draw from (single_pct)";
            return Err(error::bad_setting(py, fault.to_owned()));
        }
        Ok(())
    }

    /// Replay the log under each strategy; return a JSON document for each, in their order.
    #[pyo3(signature = (strategies, *, draw_seed, threads))]
    fn simulate(
        &self,
        py: Python<'_>,
        strategies: Vec<String>,
        draw_seed: Option<u64>,
        threads: usize,
    ) -> PyResult<Vec<String>> {
        let strategies = parse_strategies(py, &strategies)?;
        let prepared = py.detach(|| self.prepare_log());
        let options = ReportOptions { draw_seed, route_of: &[], route_count: 0 };
        run_in_parallel(py, strategies.len(), threads, |index, _| {
            Some(
                report(&prepared, &self.cost, &strategies[index], options)
                    .to_document(&[])
                    .to_string(),
            )
        })
    }

    /// Return how many candidates, combinations of a strategy's terms, a search within this memory tries; fails where
    /// the log is too short to be split.
    fn search_candidates(&self, py: Python<'_>, memory_bytes: u64) -> PyResult<usize> {
        let prepared = py.detach(|| self.prepare_log());
        if prepared.second_half_start() < 2 {
            let fault = "a search needs at least 4 requests: it splits the first half again";
            return Err(error::bad_setting(py, fault.to_owned()));
        }
        Ok(py.detach(|| self.candidates(&prepared, memory_bytes)).len())
    }

    /// Return the added nanoseconds of these candidates of a search. A candidate that another of the list beats with
    /// the same or less memory is not replayed to its end, and has some larger number than that one.
    #[pyo3(signature = (memory_bytes, indices, *, in_hindsight, threads))]
    fn search_added_ns(
        &self,
        py: Python<'_>,
        memory_bytes: u64,
        indices: Vec<usize>,
        in_hindsight: bool,
        threads: usize,
    ) -> PyResult<Vec<u64>> {
        let evaluation = if in_hindsight { Evaluation::Hindsight } else { Evaluation::OutOfSample };
        let (prepared, candidates, learned_rules) = py.detach(|| {
            let prepared = self.prepare_log();
            let candidates = self.candidates(&prepared, memory_bytes);
            let learned_rules = self.learned_rules(&prepared, evaluation);
            (prepared, candidates, learned_rules)
        });
        let tried_candidates = select_candidates(py, &candidates, &indices)?;
        let best_so_far = Mutex::new(BestSoFar::default());
        let lock_best = || best_so_far.lock().unwrap_or_else(PoisonError::into_inner);
        run_in_parallel(py, tried_candidates.len(), threads, |tried_index, _| {
            let candidate = &tried_candidates[tried_index];
            let limit_ns = lock_best().least_added_ns_within(candidate.memory_bytes);
            let added_ns =
                evaluate(&prepared, &self.cost, candidate, evaluation, learned_rules, limit_ns);
            lock_best().record(candidate.memory_bytes, added_ns);
            Some(added_ns)
        })
    }

    /// Return the candidates that no other beats with the same or less memory, by rising memory: index, bytes,
    /// notation. `added_ns` has a number for each candidate.
    fn search_front(
        &self,
        py: Python<'_>,
        memory_bytes: u64,
        added_ns: Vec<u64>,
    ) -> PyResult<Vec<(usize, u64, String)>> {
        let candidates = py.detach(|| self.candidates(&self.prepare_log(), memory_bytes));
        if candidates.len() != added_ns.len() {
            let fault = format!("{} combinations and {} times", candidates.len(), added_ns.len());
            return Err(error::bad_setting(py, fault));
        }
        let candidates_with_times: Vec<_> = candidates.into_iter().zip(added_ns).collect();
        let point = |index: usize| {
            let candidate = candidates_with_times[index].0;
            let notation = candidate.strategy.to_string();
            (index, candidate.memory_bytes, notation)
        };
        Ok(find_pareto_front(&candidates_with_times).into_iter().map(point).collect())
    }

    /// Return for each amount of memory the least of the added nanoseconds of candidates with at most that memory.
    fn search_bounds(
        &self,
        py: Python<'_>,
        memory_bytes: u64,
        added_ns: Vec<u64>,
        memories: Vec<u64>,
    ) -> Vec<Option<u64>> {
        let candidates = py.detach(|| self.candidates(&self.prepare_log(), memory_bytes));
        let mut best_so_far = BestSoFar::default();
        for (candidate, candidate_ns) in candidates.into_iter().zip(added_ns) {
            best_so_far.record(candidate.memory_bytes, candidate_ns);
        }
        let bound = |memory| best_so_far.least_added_ns_within(memory);
        memories.into_iter().map(bound).collect()
    }
}

impl SimulatedLog {
    fn new(
        py: Python<'_>,
        log: RequestLog,
        prices: (Option<String>, bool),
        latency_name: &str,
        exclude: Vec<String>,
    ) -> PyResult<Self> {
        let cost = match &prices {
            (table, true) => CostModel::of_log(&log, table.as_deref()),
            (Some(table), false) => CostModel::parse(table).map(Some),
            (None, false) => Ok(None),
        };
        let cost = cost.map_err(|fault| {
            let fault = glasscache_sim::TraceError::file(latency_name, fault);
            error::from_trace_error(py, &fault)
        })?;
        let cost = cost.ok_or_else(|| {
            let message = format!("{latency_name}: {}", CostModel::NEITHER_TABLE_NOR_WAITS);
            PyFileNotFoundError::new_err(message)
        })?;
        let routes = &log.requests.route_names;
        if let Some(unknown) = exclude.iter().find(|name| !routes.contains(name)) {
            let fault = format!("no request has the route \"{unknown}\"");
            return Err(error::bad_setting(py, fault));
        }
        Ok(Self {
            log,
            cost,
            prices,
            excluded_routes: exclude,
            left_out_parts: Vec::new(),
            rules_by_evaluation: Default::default(),
        })
    }

    fn prepare_log(&self) -> PreparedLog<'_> {
        let requests = &self.log.requests;
        PreparedLog::new(&self.log, |request| {
            let route = requests.route_names.get(requests.routes[request] as usize);
            route.is_none_or(|route| !self.excluded_routes.contains(route))
        })
    }

    fn learned_rules(&self, prepared: &PreparedLog<'_>, evaluation: Evaluation) -> &LearnedByShare {
        let rules_cell = match evaluation {
            Evaluation::OutOfSample => &self.rules_by_evaluation[0],
            Evaluation::Hindsight => &self.rules_by_evaluation[1],
        };
        rules_cell.get_or_init(|| LearnedByShare::learn(prepared, evaluation))
    }

    /// The candidates of a search, in an order that depends on nothing but the log and the memory.
    fn candidates(&self, prepared: &PreparedLog<'_>, memory_bytes: u64) -> Vec<Candidate> {
        list_candidates(
            prepared,
            memory_bytes,
            self.learned_rules(prepared, Evaluation::OutOfSample),
        )
    }
}

fn parse_strategies(py: Python<'_>, strategies: &[String]) -> PyResult<Vec<Strategy>> {
    let parse = |notation: &String| notation.parse::<Strategy>();
    let parsed: Result<Vec<Strategy>, _> = strategies.iter().map(parse).collect();
    parsed.map_err(|fault| error::bad_setting(py, fault.to_string()))
}

fn select_candidates(
    py: Python<'_>,
    candidates: &[Candidate],
    indices: &[usize],
) -> PyResult<Vec<Candidate>> {
    let candidate = |&index: &usize| {
        candidates.get(index).copied().ok_or_else(|| {
            let fault = format!("combination {index} of {}", candidates.len());
            error::bad_setting(py, fault)
        })
    };
    indices.iter().map(candidate).collect()
}

fn read_log(py: Python<'_>, folder: &Path) -> PyResult<FolderLog> {
    py.detach(|| read_folder(folder)).map_err(|fault| match fault {
        ReadError::Trace(fault) => error::from_trace_error(py, &fault),
        ReadError::NoCompletePart { folder, first_left_out } => {
            let reason = format!("no part of the log is complete; {first_left_out}");
            let fault = glasscache_sim::TraceError::file(&folder.to_string_lossy(), reason);
            error::from_trace_error(py, &fault)
        }
        ReadError::Open { .. }
        | ReadError::NoLog(_)
        | ReadError::NotAFolder(_)
        | ReadError::NoFolder(_) => PyFileNotFoundError::new_err(fault.to_string()),
    })
}
