//! An instance of the application in a replay: our client with its own near cache, and a clock around each read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::key::WireKeys;
use glasscache_client::near::{ClientNearCache, NearRead, RequestScope, StrategyOptions};
use glasscache_client::{Budget, Client, Options, WireKey};
use glasscache_sim::strategy::StrategyFile;
use glasscache_sim::strategy::latency_table::TimedCall;
use glasscache_sim::strategy::run::RequestStats;

use super::{ReplayError, Servers};
use crate::target::new_call_budget;

/// An instance of the application.
pub(super) struct AppInstance {
    client: Client,
    near: Arc<ClientNearCache>,
}

/// One read: how long its calls took, and how many of its keys have no value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadStats {
    /// Zero for a read that needed no call.
    pub(super) wait_time: Duration,
    pub(super) absent_keys: u64,
}

impl AppInstance {
    /// An instance that runs this strategy; connects to no server yet.
    pub(super) fn new(
        servers: Servers<'_>,
        strategy_file: &StrategyFile,
    ) -> Result<Self, ReplayError> {
        let options = Options {
            strategy: Some(StrategyOptions {
                // The log does not say when values change.
                near_ttl: None,
                ..StrategyOptions::new(strategy_file.clone())
            }),
            ..servers.client_options()
        };
        let client = servers.new_client(options)?;
        let near = client.near().cloned().ok_or(ReplayError::NoStrategy)?;
        Ok(Self { client, near })
    }

    /// The near cache of this instance.
    pub(super) fn near(&self) -> &ClientNearCache {
        &self.near
    }

    /// Loads the fixed set.
    pub(super) fn load(&self) -> Result<(), ReplayError> {
        self.read(&[], None).map(|_| ())
    }

    /// Does what one request of the application did: about this page, it makes these calls one after the other, each of
    /// which reads some keys. Its calls are added to a list if there is one.
    pub(super) fn make_request<'k>(
        &self,
        page: Option<&str>,
        calls: impl Iterator<Item = Vec<&'k str>>,
        mut timed_calls: Option<&mut Vec<TimedCall>>,
    ) -> Result<(RequestStats, u64), ReplayError> {
        let counters_before = self.near.counters();
        let mut counters = timed_calls.is_some().then(|| counters_before.clone());
        let mut add_call = |read_stats: ReadStats| {
            if let (Some(timed_calls), Some(counters)) = (&mut timed_calls, &mut counters)
                && !read_stats.wait_time.is_zero()
            {
                let before = std::mem::replace(counters, self.near.counters());
                if counters.calls - before.calls == 1 && counters.keys > before.keys {
                    timed_calls.push(TimedCall {
                        keys: counters.keys - before.keys,
                        bytes: counters.bytes - before.bytes,
                        ns: read_stats.wait_time.as_nanos() as u64,
                    });
                }
            }
        };
        let scope = Arc::new(self.near.scope(page.map(str::as_bytes))?);
        let mut totals = self.read(&[], Some(&scope))?;
        add_call(totals);
        for keys in calls {
            let call_stats = self.read(&self.wire_keys(&keys)?.all(), Some(&scope))?;
            add_call(call_stats);
            totals.wait_time += call_stats.wait_time;
            totals.absent_keys += call_stats.absent_keys;
        }
        let counters_after = self.near.counters();
        let stats = RequestStats {
            added_ns: totals.wait_time.as_nanos() as u64,
            bytes: counters_after.bytes - counters_before.bytes,
            calls: (counters_after.calls - counters_before.calls) as u32,
            keys: (counters_after.keys - counters_before.keys) as u32,
            used_keys: (counters_after.used_keys - counters_before.used_keys) as u32,
        };
        Ok((stats, totals.absent_keys))
    }

    /// Keys of the log as this client sends them.
    pub(super) fn wire_keys(&self, keys: &[&str]) -> Result<WireKeys, ReplayError> {
        let mut wire_keys = WireKeys::default();
        keys.iter().try_for_each(|key| wire_keys.push(self.client.keys(), key.as_bytes()))?;
        Ok(wire_keys)
    }

    /// Reads keys together. Without keys it fetches what the fixed set or the page of the request needs.
    pub(super) fn read(
        &self,
        keys: &[WireKey<'_>],
        scope: Option<&Arc<RequestScope>>,
    ) -> Result<ReadStats, ReplayError> {
        let mut near_read = NearRead::new(self.near.clone(), keys, scope.cloned());
        let started = Instant::now();
        let mut wait_time = Duration::ZERO;
        if let Some(step) = near_read.step(started) {
            let budget = Budget { scope, ..new_call_budget() };
            self.client.finish_near(&mut near_read, step, &budget)?;
            wait_time = started.elapsed();
        }
        let (values, failures) = near_read.finish();
        if let Some((_, error)) = failures.into_iter().next() {
            return Err(error.into());
        }
        let absent_keys = values.iter().filter(|value| value.is_none()).count() as u64;
        Ok(ReadStats { wait_time, absent_keys })
    }
}
