//! Opens the input of `simulate`: the log's two files and the latency table, with one sentence for each error.

use std::collections::HashSet;
use std::path::Path;

use glasscache_record::{FolderLog, LeftOutPart};
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::trace::log::{NONE, RequestLog};

use crate::output::{Exit, Failure};
use crate::traces::read_log;

/// A log and what its calls cost.
pub(super) struct LoadedLog {
    pub(super) log: RequestLog,
    /// Parts of the folder that are not in the log.
    pub(super) left_out: Vec<LeftOutPart>,
    pub(super) cost_model: CostModel,
    /// The folder, for titles.
    pub(super) folder_name: String,
}

/// Routes to show: their names, and for each request of the log the index of its route.
pub(super) struct Routes {
    pub(super) names: Vec<String>,
    pub(super) route_of_request: Vec<u32>,
}

/// Reads the log in `folder` and its latency table, or the given one.
pub(super) fn load(folder: &Path, latency_path: Option<&Path>) -> Result<LoadedLog, Failure> {
    let FolderLog { log, left_out } = read_log(folder)?;
    let latency_path = latency_path.map_or_else(|| folder.join("latency.json"), Path::to_path_buf);
    let text = std::fs::read_to_string(&latency_path).map_err(|error| {
        let message = format!("cannot open {}: {error}", latency_path.display());
        Failure::new(Exit::Unreachable, message).with_hint(
            "docs/reference/formats.md, section 3, describes its format; --latency names another file",
        )
    })?;
    let cost_model = CostModel::parse(&text).map_err(|error| {
        Failure::new(
            Exit::BadData,
            format!("{}: {error}", latency_path.display()),
        )
    })?;
    Ok(LoadedLog {
        log,
        left_out,
        cost_model,
        folder_name: folder.display().to_string(),
    })
}

/// The routes of the log by number of requests, most first, or none if they are not to be shown.
pub(super) fn choose_routes(log: &RequestLog, wants_routes: bool) -> Routes {
    if !wants_routes {
        return Routes {
            names: Vec::new(),
            route_of_request: Vec::new(),
        };
    }
    let requests = &log.requests;
    // The last index belongs to the requests without a route.
    let count_index = |route: u32| {
        if route == NONE {
            requests.route_names.len()
        } else {
            route as usize
        }
    };
    let mut request_counts = vec![0u64; requests.route_names.len() + 1];
    for &route in &requests.routes {
        request_counts[count_index(route)] += 1;
    }
    let mut routes_by_requests: Vec<usize> = (0..request_counts.len())
        .filter(|&route| request_counts[route] > 0)
        .collect();
    routes_by_requests.sort_by_key(|&route| std::cmp::Reverse(request_counts[route]));
    let mut ranks = vec![NONE; request_counts.len()];
    for (rank, &route) in routes_by_requests.iter().enumerate() {
        ranks[route] = rank as u32;
    }
    let name_of = |route: &usize| {
        requests
            .route_names
            .get(*route)
            .cloned()
            .unwrap_or_else(|| "(none)".into())
    };
    Routes {
        names: routes_by_requests.iter().map(name_of).collect(),
        route_of_request: requests
            .routes
            .iter()
            .map(|&route| ranks[count_index(route)])
            .collect(),
    }
}

/// The numbers of the routes to leave out.
pub(super) fn find_excluded_routes(
    log: &RequestLog,
    excluded_names: &[String],
) -> Result<HashSet<u32>, Failure> {
    let route_names = &log.requests.route_names;
    let route_id = |name: &String| {
        let route_index = route_names.iter().position(|route_name| route_name == name);
        route_index
            .map(|route_index| route_index as u32)
            .ok_or_else(|| {
                let message = format!("no request has the route `{name}` (--exclude)");
                let hint = match route_names.as_slice() {
                    [] => "the requests of this log have no routes".to_owned(),
                    route_names => format!("routes of this log: {}", route_names.join(", ")),
                };
                Failure::usage(message).with_hint(hint)
            })
    };
    excluded_names.iter().map(route_id).collect()
}

/// Refuses a log with an empty half: there would be no requests to choose on or to evaluate on.
pub(in crate::commands) fn check_halves(
    folder: &Path,
    prepared: &PreparedLog<'_>,
) -> Result<(), Failure> {
    if prepared.len() >= 2 {
        return Ok(());
    }
    let count_text = ["no request", "only 1 request"][prepared.len()];
    let message = format!(
        "{}: {count_text} to replay, at least 2 are needed: one half to choose on, one to evaluate on",
        folder.display(),
    );
    Err(Failure::new(Exit::BadData, message))
}
