//! Opens the input of `simulate`: the log's two files and the latency table, with one sentence for each error.

use std::collections::HashSet;
use std::path::Path;

use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::Prepared;
use glasscache_sim::trace::log::{NONE, RequestLog};

use crate::output::{Exit, Failure};
use crate::traces::read_log;

/// A log and what its calls cost.
pub(super) struct LoadedLog {
    pub(super) log: RequestLog,
    pub(super) cost: CostModel,
    /// The folder, for titles.
    pub(super) name: String,
}

/// Routes to show: their names, and for each request of the log the index of its route.
pub(super) struct Routes {
    pub(super) names: Vec<String>,
    pub(super) index_of: Vec<u32>,
}

/// Reads the log in `folder` and its latency table, or the given one.
pub(super) fn load(folder: &Path, latency: Option<&Path>) -> Result<LoadedLog, Failure> {
    let log = read_log(folder)?;
    let latency = latency.map_or_else(|| folder.join("latency.json"), Path::to_path_buf);
    let text = std::fs::read_to_string(&latency).map_err(|e| {
        let message = format!("cannot open {}: {e}", latency.display());
        Failure::new(Exit::Unreachable, message).hint(
            "docs/reference/formats.md, section 3, describes its format; --latency names another file",
        )
    })?;
    let cost = CostModel::parse(&text)
        .map_err(|e| Failure::new(Exit::BadData, format!("{}: {e}", latency.display())))?;
    Ok(LoadedLog {
        log,
        cost,
        name: folder.display().to_string(),
    })
}

/// The routes of the log by number of requests, most first, or none if they are not to be shown.
pub(super) fn routes(log: &RequestLog, wants_routes: bool) -> Routes {
    if !wants_routes {
        return Routes {
            names: Vec::new(),
            index_of: Vec::new(),
        };
    }
    let requests = &log.requests;
    // The last index belongs to the requests without a route.
    let index = |route: u32| {
        if route == NONE {
            requests.routes.len()
        } else {
            route as usize
        }
    };
    let mut counts = vec![0u64; requests.routes.len() + 1];
    for &route in &requests.route {
        counts[index(route)] += 1;
    }
    let mut order: Vec<usize> = (0..counts.len())
        .filter(|&route| counts[route] > 0)
        .collect();
    order.sort_by_key(|&route| std::cmp::Reverse(counts[route]));
    let mut ranks = vec![NONE; counts.len()];
    for (at, &route) in order.iter().enumerate() {
        ranks[route] = at as u32;
    }
    let name = |route: &usize| {
        requests
            .routes
            .get(*route)
            .cloned()
            .unwrap_or_else(|| "(none)".into())
    };
    Routes {
        names: order.iter().map(name).collect(),
        index_of: requests
            .route
            .iter()
            .map(|&route| ranks[index(route)])
            .collect(),
    }
}

/// The numbers of the routes to leave out.
pub(super) fn excluded(log: &RequestLog, names: &[String]) -> Result<HashSet<u32>, Failure> {
    let known = &log.requests.routes;
    let number = |name: &String| {
        let at = known.iter().position(|route| route == name);
        at.map(|at| at as u32).ok_or_else(|| {
            let message = format!("no request has the route `{name}` (--exclude)");
            let hint = match known.as_slice() {
                [] => "the requests of this log have no routes".to_owned(),
                known => format!("routes of this log: {}", known.join(", ")),
            };
            Failure::usage(message).hint(hint)
        })
    };
    names.iter().map(number).collect()
}

/// Refuses a log with an empty half: there would be no requests to choose on or to evaluate on.
pub(super) fn check_halves(folder: &Path, prepared: &Prepared<'_>) -> Result<(), Failure> {
    if prepared.len() >= 2 {
        return Ok(());
    }
    let found = ["no request", "only 1 request"][prepared.len()];
    let message = format!(
        "{}: {found} to replay, at least 2 are needed: one half to choose on, one to evaluate on",
        folder.display(),
    );
    Err(Failure::new(Exit::BadData, message))
}
