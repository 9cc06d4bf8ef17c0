//! Which response a request gets, and what is kept to make them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::findings::RecentCounters;
use super::health::WorkerHealth;
use super::history::{History, Look};
use super::metrics::write_metrics;
use super::page::{self, View};
use super::request::{HostNames, Refusal, Request, read_query};
use super::response::{EXPOSITION, JSON, Response, TEXT};
use super::{Port, api};
use crate::session::stats::slow::slow_rows;
use crate::session::stats::table::StatsContext;
use crate::session::stats::{StatRows, read_rows, write_all_tables};
use crate::shared::Shared;

/// What the main port serves, for the sentence about an unknown path.
const PATHS: &str = "/, /metrics, /healthz, /livez, /readyz and, below /api/, stats, curve, hotkeys, prefixes, policy, latency, slow, findings, history and events";
/// Streams of events at once.
const STREAMS_MAX: usize = 16;
/// Time between two points of the history, and between two events.
const SECOND: Duration = Duration::from_secs(1);
/// Looks that are kept for percentiles over a minute.
const LOOKS_MAX: usize = 61;

/// The state from which responses are made.
pub(super) struct Routes {
    shared: Arc<Shared>,
    health: WorkerHealth,
    began_at: Instant,
    history: History,
    /// The last looks, one a second, the oldest first.
    looks: VecDeque<(Instant, Look)>,
    recent_counters: RecentCounters,
    /// The addresses of the cache, for the page.
    addresses: String,
}

impl Routes {
    pub(super) fn new(shared: Arc<Shared>) -> Routes {
        let addresses: Vec<String> =
            shared.addresses.iter().map(|(_, address)| address.to_string()).collect();
        Routes {
            health: WorkerHealth::default(),
            began_at: Instant::now(),
            history: History::default(),
            looks: VecDeque::new(),
            recent_counters: RecentCounters::default(),
            addresses: addresses.join(", "),
            shared,
        }
    }

    /// Looks at the workers, and once a second at the counters; then, if there are streams, returns their next event.
    pub(super) fn tick(&mut self, now: Instant, has_streams: bool) -> Option<Vec<u8>> {
        self.health.tick(&self.shared);
        let last_look_at = self.looks.back().map(|(looked_at, _)| *looked_at);
        if last_look_at.is_some_and(|looked_at| now.duration_since(looked_at) < SECOND) {
            return None;
        }
        let look = Look::new(&self.shared);
        if let Some((looked_at, earlier)) = self.looks.back() {
            let point = look.point_since(earlier, now.duration_since(*looked_at).as_secs_f64());
            self.history.record(now.duration_since(self.began_at).as_secs(), &point);
        }
        if self.looks.len() == LOOKS_MAX {
            self.looks.pop_front();
        }
        self.looks.push_back((now, look));
        if self.recent_counters.is_due(now) {
            let tables = self.read_tables();
            self.recent_counters.copy(&tables.general, now);
        }
        has_streams.then(|| self.with_view(now, page::format_event))
    }

    /// The response to a request, or to one that was refused when it was parsed.
    pub(super) fn respond(
        &self,
        port: Port,
        host_names: Option<&HostNames>,
        request: Result<&Request, &Refusal>,
        stream_count: usize,
    ) -> Response {
        let outcome = match request {
            Ok(request) => self.respond_to(port, host_names, request, stream_count),
            Err(refusal) => Err(refusal.clone()),
        };
        outcome.unwrap_or_else(|refusal| match request {
            // A browser that opens the page cannot send the token: the page requests it.
            Ok(request) if refusal.status == 401 && request.wants_html => {
                page::respond_login().with_refusal(&refusal)
            }
            _ => Response::refusal(&refusal),
        })
    }

    fn respond_to(
        &self,
        port: Port,
        host_names: Option<&HostNames>,
        request: &Request,
        stream_count: usize,
    ) -> Result<Response, Refusal> {
        if let Some(host_names) = host_names {
            host_names.check(request)?;
        }
        match (port, request.path.as_str()) {
            (Port::Main, "/healthz" | "/livez") => {
                return respond_to_probe(request, self.health.problem());
            }
            (Port::Main, "/readyz") => {
                let reason = self.health.not_ready(self.shared.phases.phase());
                return respond_to_probe(request, reason);
            }
            (Port::Main, _) => self.check_token(request)?,
            (Port::Metrics, "/metrics") => {}
            (Port::Metrics, _) => {
                return Err(Refusal::new(404, "this port has /metrics alone; see --http"));
            }
        }
        self.respond_to_path(request, stream_count)
    }

    fn respond_to_path(&self, request: &Request, stream_count: usize) -> Result<Response, Refusal> {
        let shared = &self.shared;
        let document = match request.path.as_str() {
            "/" => {
                let [] = read_query(&request.query, [])?;
                return Ok(self.with_view(Instant::now(), page::respond_page));
            }
            "/metrics" => {
                let [] = read_query(&request.query, [])?;
                return Ok(Response::new(EXPOSITION, write_metrics(self.context())));
            }
            "/api/events" => return respond_stream(request, stream_count),
            "/api/stats" => api::stats(shared, request),
            "/api/curve" => api::curve(shared, request),
            "/api/hotkeys" => api::hot_keys(shared, request),
            "/api/prefixes" => api::prefixes(shared, request),
            "/api/policy" => api::policy(shared, request),
            "/api/latency" => api::latency(shared, request),
            "/api/slow" => api::slow(shared, request),
            "/api/history" => api::history(shared, &self.history, request),
            "/api/findings" => self.list_findings(request),
            path => Err(Refusal::new(404, format!("{path:?} is not served; see {PATHS}"))),
        }?;
        Ok(Response::new(JSON, format!("{document}\n")))
    }

    fn context(&self) -> StatsContext<'_> {
        StatsContext { shared: &self.shared, now: self.shared.clock.now() }
    }

    fn check_token(&self, request: &Request) -> Result<(), Refusal> {
        match &self.shared.http_token {
            Some(token) if !token.is_presented(request.token.as_deref()) => Err(Refusal::new(
                401,
                "a token is required: send Authorization: Bearer TOKEN, with the token of --http-token-file",
            )),
            _ => Ok(()),
        }
    }

    fn list_findings(&self, request: &Request) -> Result<Value, Refusal> {
        let [] = read_query(&request.query, [])?;
        Ok(self.with_view(Instant::now(), |view| json!({ "findings": view.findings })))
    }

    fn read_tables(&self) -> Tables {
        let [general, settings, _, _, own] =
            write_all_tables(self.context()).map(|text| read_rows(&text));
        Tables { general, settings, own }
    }

    /// Calls `render` with what the page displays.
    fn with_view<T>(&self, now: Instant, render: impl FnOnce(&View<'_>) -> T) -> T {
        let Tables { general, settings, own } = self.read_tables();
        let live = self.shared.live.report();
        let shows_keys = self.shared.config.dump_enabled;
        let findings = self.recent_counters.find(&general, &own, &live, shows_keys, now);
        let loop_quantiles_us = match (self.looks.front(), self.looks.back()) {
            (Some((_, earliest)), Some((_, latest))) => {
                [0.5, 0.99, 0.999].map(|quantile| latest.loop_quantile_us(earliest, quantile))
            }
            _ => [0; 3],
        };
        render(&View {
            general: &general,
            settings: &settings,
            own: &own,
            history: &self.history,
            loop_quantiles_us,
            command_times: &self.shared.command_times(),
            slow_ms: self.shared.config.slow_ms,
            slow_commands: &slow_rows(&self.shared),
            fill_times: &self.shared.fill_times.times(),
            live: &live,
            findings: &findings,
            problem: self.health.not_ready(self.shared.phases.phase()),
            addresses: &self.addresses,
            shows_keys,
        })
    }
}

/// Tables of `stats`.
struct Tables {
    general: StatRows,
    settings: StatRows,
    own: StatRows,
}

fn respond_stream(request: &Request, stream_count: usize) -> Result<Response, Refusal> {
    let [] = read_query(&request.query, [])?;
    if stream_count >= STREAMS_MAX {
        return Err(Refusal::new(
            503,
            format!("{STREAMS_MAX} streams are open already; close one"),
        ));
    }
    Ok(Response::stream())
}

/// 200 without a problem, 503 with its sentence.
fn respond_to_probe(request: &Request, problem: Option<String>) -> Result<Response, Refusal> {
    let [] = read_query(&request.query, [])?;
    match problem {
        None => Ok(Response::new(TEXT, "ok\n")),
        Some(reason) => Err(Refusal::new(503, reason)),
    }
}
