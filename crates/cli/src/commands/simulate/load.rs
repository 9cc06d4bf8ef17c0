//! Opens the input of `simulate`: the log's two files and the latency table, with one sentence for each error.

use std::collections::HashSet;
use std::path::Path;

use glasscache_lab::replay::ReplayError;
use glasscache_record::{FolderLog, LeftOutPart};
use glasscache_sim::strategy::cost::CostModel;
use glasscache_sim::strategy::prepare::PreparedLog;
use glasscache_sim::trace::log::{NONE, NeverRules, RequestLog};

use crate::files::read_text;
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

/// Routes to show: their names, and for each request of the log the index of its route in them.
pub(super) struct Routes {
    pub(super) names: Vec<String>,
    pub(super) route_of_request: Vec<u32>,
}

/// Reads the log in `folder` and its latency table, or the given one.
pub(super) fn load(folder: &Path, latency_path: Option<&Path>) -> Result<LoadedLog, Failure> {
    let FolderLog { log, left_out } = read_log(folder)?;
    let own_path = folder.join("latency.json");
    let path = latency_path.unwrap_or(&own_path);
    let parsed = match latency_path {
        Some(path) => CostModel::parse(&read_latency_table(path)?).map(Some),
        None if own_path.exists() => CostModel::of_log(&log, Some(&read_latency_table(path)?)),
        None => CostModel::of_log(&log, None),
    };
    let bad_table = |error| Failure::new(Exit::BadData, format!("{}: {error}", path.display()));
    let cost_model = parsed.map_err(bad_table)?.ok_or_else(|| {
        let message = format!("{}: {}", path.display(), CostModel::NEITHER_TABLE_NOR_WAITS);
        Failure::new(Exit::Unreachable, message).with_hint(LATENCY_HINT)
    })?;
    Ok(LoadedLog { log, left_out, cost_model, folder_name: folder.display().to_string() })
}

/// How to get a latency table.
const LATENCY_HINT: &str =
    "glasscache profile HOST:PORT --latency-out FILE measures one; --latency names another file";

/// Reads the text of a latency table.
fn read_latency_table(path: &Path) -> Result<String, Failure> {
    read_text(path).map_err(|error| {
        let message = format!("cannot open {}: {error}", path.display());
        Failure::new(Exit::Unreachable, message).with_hint(LATENCY_HINT)
    })
}

/// Prices below this, in nanoseconds, are not printed.
const PRINTED_PRICE_NS_MIN: f64 = 500.0;

/// A sentence on what calls cost, if that is not what a table says.
pub(super) fn describe_prices(cost_model: &CostModel) -> Option<String> {
    let waits = cost_model.recorded_waits()?;
    if waits.table_share < 1.0 {
        return Some(format!(
            "Calls cost {:.0} % of what latency.json says: the log's requests waited no longer (--latency takes a table as it is).",
            waits.table_share * 100.0
        ));
    }
    let parts = [
        (waits.call_ns, format!("a call {:.3} ms", waits.call_ns / 1e6)),
        (waits.key_ns, format!("each further key of it {:.1} us", waits.key_ns / 1e3)),
        (
            waits.request_ns,
            format!("the first call of a request another {:.3} ms", waits.request_ns / 1e6),
        ),
    ];
    let parts = parts.into_iter().filter(|&(ns, _)| ns >= PRINTED_PRICE_NS_MIN);
    let prices: Vec<String> = parts.map(|(_, text)| text).collect();
    let prices = prices.join(", ");
    if prices.is_empty() {
        return None;
    }
    Some(if cost_model.is_of_log_alone() {
        format!(
            "Prices are those of the log's own requests, decoding left out: {prices}. What large values cost is not in them: glasscache profile HOST:PORT --latency-out LOG/latency.json measures it."
        )
    } else {
        format!(
            "Beyond latency.json, the log's requests waited so long: {prices} (--latency takes a table as it is)."
        )
    })
}

/// The routes of the log by number of requests, most first, or none if they are not to be shown.
pub(super) fn choose_routes(log: &RequestLog, wants_routes: bool) -> Routes {
    if !wants_routes {
        return Routes { names: Vec::new(), route_of_request: Vec::new() };
    }
    let requests = &log.requests;
    // The last index belongs to the requests without a route.
    let index_of = |route_id: u32| {
        if route_id == NONE { requests.route_names.len() } else { route_id as usize }
    };
    let mut request_counts = vec![0u64; requests.route_names.len() + 1];
    for &route_id in &requests.routes {
        request_counts[index_of(route_id)] += 1;
    }
    let mut ranked_indexes: Vec<usize> =
        (0..request_counts.len()).filter(|&route_index| request_counts[route_index] > 0).collect();
    ranked_indexes.sort_by_key(|&route_index| std::cmp::Reverse(request_counts[route_index]));
    let mut ranks = vec![NONE; request_counts.len()];
    for (rank, &route_index) in ranked_indexes.iter().enumerate() {
        ranks[route_index] = rank as u32;
    }
    let name_of = |route_index: &usize| {
        requests.route_names.get(*route_index).cloned().unwrap_or_else(|| "(none)".into())
    };
    Routes {
        names: ranked_indexes.iter().map(name_of).collect(),
        route_of_request: requests
            .routes
            .iter()
            .map(|&route_id| ranks[index_of(route_id)])
            .collect(),
    }
}

/// The ids of the routes to leave out.
pub(super) fn find_excluded_route_ids(
    log: &RequestLog,
    names: &[String],
) -> Result<HashSet<u32>, Failure> {
    let known_names = &log.requests.route_names;
    let find_route_id = |name: &String| {
        let route_index = known_names.iter().position(|known_name| known_name == name);
        route_index.map(|route_index| route_index as u32).ok_or_else(|| {
            let message = format!("no request has the route `{name}` (--exclude)");
            let hint = match known_names.as_slice() {
                [] => "the requests of this log have no routes".to_owned(),
                known_names => format!("routes of this log: {}", known_names.join(", ")),
            };
            Failure::usage(message).with_hint(hint)
        })
    };
    names.iter().map(find_route_id).collect()
}

/// What is not kept: what the log has as changed in place, and the prefixes that are named.
pub(super) fn build_never_rules(
    log: &RequestLog,
    never: &[String],
    allow: &[String],
) -> Result<NeverRules, Failure> {
    for (option, prefixes) in [("--never", never), ("--allow", allow)] {
        for prefix in prefixes {
            let named = NeverRules { prefixes: vec![prefix.clone()], ..NeverRules::default() };
            let has_prefix = |key: &String| !named.may_keep(key.as_bytes(), || false);
            if prefix.is_empty() || !log.items.keys.iter().any(has_prefix) {
                return Err(Failure::usage(format!(
                    "no key of the log begins with `{prefix}` ({option}): leave it out, or write it as in the keys"
                )));
            }
            if never.contains(prefix) && allow.contains(prefix) {
                return Err(Failure::usage(format!(
                    "`{prefix}` is in --never and in --allow: leave it out of one of them"
                )));
            }
        }
    }
    let named = NeverRules {
        prefixes: never.to_vec(),
        allowed_prefixes: allow.to_vec(),
        ..NeverRules::default()
    };
    Ok(log.items.never_rules().with(&named))
}

/// Refuses a log with an empty half: there would be no requests to choose on or to evaluate on.
pub(super) fn check_halves(folder: &Path, prepared: &PreparedLog<'_>) -> Result<(), Failure> {
    if prepared.len() >= 2 {
        return Ok(());
    }
    let log_name = folder.display().to_string();
    let error = ReplayError::TooFewRequests { log_name, count: prepared.len() };
    Err(Failure::new(Exit::BadData, error.to_string()))
}
