//! The figures of each server between two samples of its statistics.

use std::time::Instant;

use glasscache_findings::counters::Counters;
use serde_json::{Value, json};

use crate::discovery::Found;
use crate::output::{Exit, Failure};
use crate::server_reader::ServerReader;

/// Samples the servers, all at the same time.
pub(super) struct Sampler {
    servers: Vec<SampledServer>,
    /// The servers that are found meanwhile.
    found: Option<Found>,
    /// Why no servers are found any more.
    problem: Option<String>,
}

/// One sample of all servers.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) rows: Vec<Row>,
    /// Why no servers are found any more, so that these are those found last.
    pub(super) problem: Option<String>,
}

struct SampledServer {
    reader: ServerReader,
    last: Option<(Instant, Counters)>,
}

/// One server with its figures, or the reason why there are none.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) server: String,
    pub(super) figures: Result<Figures, Failure>,
}

/// The figures of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    /// The levels now.
    pub(super) now: Counters,
    /// What was counted in the interval, and its length in seconds; not known in the first sample.
    pub(super) interval: Option<(Counters, f64)>,
}

impl Figures {
    /// What a counter of the interval grows by in a second.
    pub(super) fn rate(&self, counter: fn(&Counters) -> u64) -> Option<f64> {
        self.interval.as_ref().map(|(counted, seconds)| counter(counted) as f64 / seconds)
    }

    /// Hits over gets of the interval, 0 to 1.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        self.interval.as_ref().and_then(|(counted, _)| counted.hit_ratio())
    }
}

impl Sampler {
    /// A sampler of these servers, and of those that are found later.
    pub(super) fn new(readers: Vec<ServerReader>, found: Option<Found>) -> Sampler {
        let servers = readers.into_iter().map(|reader| SampledServer { reader, last: None });
        Sampler { servers: servers.collect(), found, problem: None }
    }

    /// The figures since the last sample, a row for each server.
    pub(super) fn sample(&mut self) -> Sample {
        if let Some(outcome) = self.found.as_ref().and_then(Found::take) {
            let readers = outcome.and_then(|target| {
                ServerReader::open_all(&target).map_err(|failure| failure.message().to_owned())
            });
            self.problem = readers.map(|readers| self.replace_servers(readers)).err();
        }
        Sample { rows: self.sample_servers(), problem: self.problem.clone() }
    }

    /// Takes the servers of `readers` in place of the present ones; those that stay keep their counters.
    fn replace_servers(&mut self, readers: Vec<ServerReader>) {
        let mut before = std::mem::take(&mut self.servers);
        let keep_or_add = |reader: ServerReader| {
            let is_same = |server: &SampledServer| server.reader.address() == reader.address();
            match before.iter().position(is_same) {
                Some(index) => before.swap_remove(index),
                None => SampledServer { reader, last: None },
            }
        };
        self.servers = readers.into_iter().map(keep_or_add).collect();
    }

    fn sample_servers(&mut self) -> Vec<Row> {
        std::thread::scope(|scope| {
            let samples: Vec<_> = self
                .servers
                .iter_mut()
                .map(|server| (server.reader.to_string(), scope.spawn(move || server.sample())))
                .collect();
            let to_row = |(server, sample): (String, std::thread::ScopedJoinHandle<'_, _>)| {
                let figures = sample
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new(Exit::BadData, "the sample failed")));
                Row { server, figures }
            };
            samples.into_iter().map(to_row).collect()
        })
    }
}

impl SampledServer {
    fn sample(&mut self) -> Result<Figures, Failure> {
        let counters = self.reader.read_counters();
        let sampled_at = Instant::now();
        let now = match counters {
            Ok(now) => now,
            Err(failure) => {
                self.last = None;
                self.reader.reopen()?;
                return Err(failure);
            }
        };
        let interval = self.last.as_ref().map(|(last_at, last)| {
            (now.since(last), (sampled_at - *last_at).as_secs_f64().max(0.001))
        });
        self.last = Some((sampled_at, now.clone()));
        Ok(Figures { now, interval })
    }
}

impl Row {
    /// Why the server does not respond, without its name, which the row has already.
    pub(super) fn reason(&self) -> Option<&str> {
        let message = self.figures.as_ref().err()?.message();
        let beginning = format!("server unavailable: {} (", self.server);
        let after_name = message.strip_prefix(&beginning);
        let shortened = after_name.and_then(|text| text.split_once("): "));
        Some(shortened.map_or(message, |(_, reason)| reason))
    }

    /// The row in JSON; of a server that does not respond only its name and the reason are not null.
    pub(super) fn to_document(&self) -> Value {
        let unknown = Figures::default();
        let figures = self.figures.as_ref().unwrap_or(&unknown);
        let now = self.figures.as_ref().ok().map(|figures| &figures.now);
        json!({
            "server": self.server,
            "error": self.reason(),
            "version": now.map(|now| &now.version),
            "uptime_s": now.map(|now| now.uptime_s),
            "fill": now.and_then(Counters::fill),
            "hit_ratio": figures.hit_ratio(),
            "evictions_per_s": figures.rate(|counted| counted.evictions),
            "written_bytes_per_s": figures.rate(|counted| counted.written_bytes),
            "get_hits_per_s": figures.rate(|counted| counted.hits),
            "operations_per_s": figures.rate(Counters::operations),
            "sets_per_s": figures.rate(|counted| counted.sets),
            "read_bytes_per_s": figures.rate(|counted| counted.read_bytes),
            "refused_connections_per_s": figures.rate(|counted| counted.connections_refused),
            "items": now.map(|now| now.items),
            "bytes": now.map(|now| now.bytes),
            "limit_bytes": now.map(|now| now.limit_bytes),
            "connections": now.map(|now| now.connections),
            "connections_max": now.map(|now| now.connections_max),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn readers(servers: &str) -> Vec<ServerReader> {
        let access = crate::access::Args::default();
        let target = Target { server: servers.to_owned(), timeout_ms: 1000, access };
        ServerReader::open_all(&target).unwrap()
    }

    #[test]
    fn servers_that_stay_keep_their_counters_when_others_come_and_go() {
        let mut sampler = Sampler::new(readers("a:1,b:2"), None);
        for server in &mut sampler.servers {
            server.last = Some((Instant::now(), Counters::default()));
        }
        sampler.replace_servers(readers("b:2,c:3"));
        let servers = sampler.servers.iter();
        let kept: Vec<_> =
            servers.map(|server| (server.reader.to_string(), server.last.is_some())).collect();
        assert_eq!(kept, [("b:2".to_owned(), true), ("c:3".to_owned(), false)]);
    }
}
