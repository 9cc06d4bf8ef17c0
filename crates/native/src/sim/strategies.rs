//! Request simulation for Python: a folder of a log, strategies in their notation, and the results document as JSON.

use std::path::{Path, PathBuf};

use glasscache_record::{ReadError, read_folder};
use glasscache_sim::strategy::Strategy;
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::strategy::report::{ReportOptions, report};
use glasscache_sim::trace::log::RequestLog;
use pyo3::exceptions::PyFileNotFoundError;
use pyo3::prelude::*;

use super::work::in_parallel;
use crate::error;

/// Replay the log in a folder under each strategy; return a JSON document for each, in their order.
#[pyfunction]
#[pyo3(signature = (folder, strategies, *, latency, exclude, draw_seed, threads))]
pub(crate) fn simulate(
    py: Python<'_>,
    folder: PathBuf,
    strategies: Vec<String>,
    latency: PathBuf,
    exclude: Vec<String>,
    draw_seed: Option<u64>,
    threads: usize,
) -> PyResult<Vec<String>> {
    let parse = |notation: &String| notation.parse::<Strategy>();
    let parsed: Result<Vec<Strategy>, _> = strategies.iter().map(parse).collect();
    let strategies = parsed.map_err(|fault| error::bad_setting(py, fault.to_string()))?;
    let log = read_log(py, &folder)?;
    let cost = read_cost_model(py, &latency)?;
    if draw_seed.is_some() && cost.quantiles().is_none() {
        let fault = format!(
            "{}: has no distribution to draw from (single_pct)",
            latency.display()
        );
        return Err(error::bad_setting(py, fault));
    }
    let routes = &log.requests.routes;
    if let Some(unknown) = exclude.iter().find(|name| !routes.contains(name)) {
        let fault = format!("no request has the route \"{unknown}\"");
        return Err(error::bad_setting(py, fault));
    }
    let is_included = |request: usize| {
        let route = routes.get(log.requests.route[request] as usize);
        route.is_none_or(|route| !exclude.contains(route))
    };
    let prepared = py.detach(|| PreparedLog::new(&log, is_included));
    if prepared.len() < 2 {
        let fault = format!(
            "{}: fewer than 2 requests, one for each half",
            folder.display()
        );
        return Err(error::bad_setting(py, fault));
    }
    let options = ReportOptions {
        draw_seed,
        route_of: &[],
        routes: 0,
    };
    in_parallel(py, strategies.len(), threads, |index, _| {
        Some(
            report(&prepared, &cost, &strategies[index], options)
                .document(&[])
                .to_string(),
        )
    })
}

fn read_log(py: Python<'_>, folder: &Path) -> PyResult<RequestLog> {
    py.detach(|| read_folder(folder))
        .map_err(|fault| match fault {
            ReadError::Trace(fault) => error::of_trace(py, &fault),
            ReadError::Open { .. }
            | ReadError::NoLog(_)
            | ReadError::NotAFolder(_)
            | ReadError::NoFolder(_) => PyFileNotFoundError::new_err(fault.to_string()),
        })
}

fn read_cost_model(py: Python<'_>, path: &Path) -> PyResult<CostModel> {
    let text = std::io::read_to_string(super::open(path)?)?;
    CostModel::parse(&text).map_err(|fault| {
        let fault = glasscache_sim::TraceError::file(&path.to_string_lossy(), fault);
        error::of_trace(py, &fault)
    })
}
