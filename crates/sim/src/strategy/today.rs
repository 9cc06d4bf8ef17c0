//! What the requests of a log cost when they were recorded: measured, not simulated.

use crate::trace::log::RequestLog;

/// Means over the requests whose calls were recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Today {
    /// The requests.
    pub requests: u64,
    /// Calls of a request, those that write included.
    pub calls: f64,
    /// Those of them that write.
    pub writes: f64,
    /// Keys that it read.
    pub keys: f64,
    /// Milliseconds that it waited for its calls, overlapping ones counted once.
    pub wait_ms: f64,
    /// Milliseconds of these in which values were decoded.
    pub decode_ms: f64,
    /// Milliseconds that it took; `None` if the recorder did not know.
    pub request_ms: Option<f64>,
}

impl Today {
    /// `None` if no calls were recorded, as in a log of an earlier version.
    pub fn of(log: &RequestLog) -> Option<Self> {
        let requests = &log.requests;
        let (mut count, mut base_us) = (0, 0);
        let (mut calls, mut writes, mut keys, mut wait_us, mut decode_us) = (0, 0, 0, 0, 0);
        for index in 0..requests.len() {
            let Some((keys_of_calls, times)) = requests.calls.of(index) else { continue };
            count += 1;
            base_us += u64::from(requests.base_times_us[index]);
            calls += keys_of_calls.len() as u64;
            writes += u64::from(times.writes);
            keys += requests.items_of(index).len() as u64;
            wait_us += u64::from(times.wait_us);
            decode_us += u64::from(times.decode_us);
        }
        let mean = |sum: u64| sum as f64 / count as f64;
        (count > 0).then(|| Self {
            requests: count,
            calls: mean(calls + writes),
            writes: mean(writes),
            keys: mean(keys),
            wait_ms: mean(wait_us) / 1000.0,
            decode_ms: mean(decode_us) / 1000.0,
            request_ms: (base_us > 0).then(|| mean(wait_us + base_us) / 1000.0),
        })
    }

    /// The share of the requests' time that they waited.
    pub fn wait_share(&self) -> Option<f64> {
        self.request_ms.map(|request_ms| self.wait_ms / request_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::log::{CallTimes, Requests};

    #[test]
    fn means_are_over_the_requests_whose_calls_are_known() {
        let mut log = RequestLog::default();
        assert_eq!(Today::of(&log), None);
        log.requests = Requests {
            base_times_us: vec![9999, 590, 590],
            starts: vec![0, 2, 53, 104],
            items: vec![0; 104],
            ..Requests::default()
        };
        let times = CallTimes { wait_us: 660, decode_us: 560, writes: 1 };
        log.requests.calls.push(1, Some((&[50, 1], times)));
        log.requests.calls.push(2, Some((&[50, 1], CallTimes { writes: 0, ..times })));
        let today = Today::of(&log).unwrap();
        assert_eq!((today.requests, today.calls, today.writes, today.keys), (2, 2.5, 0.5, 51.0));
        assert_eq!((today.wait_ms, today.decode_ms), (0.66, 0.56));
        assert_eq!((today.request_ms, today.wait_share()), (Some(1.25), Some(0.66 / 1.25)));
    }
}
