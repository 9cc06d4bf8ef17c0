//! The calls of recorded requests: which keys were read together, and how long the request waited for all of them.
//!
//! Logs of earlier versions, of generators and of other programs do not have them: then each read counts as a call.

use super::{NONE, Requests};

/// What a recorder noted about the calls of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallTimes {
    /// Microseconds that the request waited for calls, overlapping ones counted once.
    pub wait_us: u32,
    /// Microseconds of these in which values were decoded.
    pub decode_us: u32,
    /// Calls that wrote.
    pub writes: u32,
}

/// The calls of all requests; without any entry they are unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedCalls {
    /// The keys of each call that read, one request after the other.
    keys: Vec<u32>,
    /// Where the calls of each request begin in `keys`, and the end of the last; empty if no request has them.
    starts: Vec<usize>,
    /// Of each request, with `wait_us` [`NONE`] where unknown.
    times: Vec<CallTimes>,
}

/// What is known of the calls of a request: the keys of each, and the times.
pub type CallsOfRequest<'c> = (&'c [u32], CallTimes);

impl RecordedCalls {
    /// Appends those of the request with this index, and that those between are unknown.
    pub fn push(&mut self, request_index: usize, calls: Option<CallsOfRequest<'_>>) {
        let Some((keys, times)) = calls else { return };
        self.pad_to(request_index);
        self.keys.extend_from_slice(keys);
        self.starts.push(self.keys.len());
        self.times.push(times);
    }

    fn pad_to(&mut self, request_count: usize) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        let end = self.keys.len();
        self.starts.resize(request_count + 1, end);
        self.times.resize(request_count, CallTimes { wait_us: NONE, ..CallTimes::default() });
    }

    /// Those of a request, if they are known.
    pub fn of(&self, request_index: usize) -> Option<CallsOfRequest<'_>> {
        let times = self.times.get(request_index).filter(|times| times.wait_us != NONE)?;
        let range = *self.starts.get(request_index)?..*self.starts.get(request_index + 1)?;
        Some((self.keys.get(range)?, *times))
    }

    /// Whether those of any request are known.
    pub fn are_known(&self) -> bool {
        !self.times.is_empty()
    }
}

impl Requests {
    /// The items that each call of a request read, in order, with repeats: each item alone where calls are unknown.
    pub fn calls_of(&self, index: usize) -> impl Iterator<Item = &[u32]> {
        let items = self.items_of(index);
        let keys_of_calls = self.calls.of(index).map(|(keys, _)| keys);
        let is_complete =
            |keys: &&[u32]| keys.iter().map(|&keys| keys as usize).sum::<usize>() == items.len();
        let keys_of_calls = keys_of_calls.filter(is_complete);
        let call_count = keys_of_calls.map_or(items.len(), <[u32]>::len);
        let mut rest = items;
        (0..call_count).map(move |call_index| {
            let key_count = keys_of_calls.map_or(1, |keys| keys[call_index] as usize);
            let (call_items, items_after) = rest.split_at(key_count);
            rest = items_after;
            call_items
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_those_that_were_recorded_and_single_reads_where_they_are_unknown() {
        let mut requests = Requests {
            starts: vec![0, 3, 5, 7],
            items: vec![1, 2, 3, 4, 5, 6, 7],
            ..Requests::default()
        };
        let calls_of = |requests: &Requests, index: usize| {
            requests.calls_of(index).map(<[u32]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(calls_of(&requests, 0), [[1], [2], [3]]);
        let times = CallTimes { wait_us: 5, ..CallTimes::default() };
        requests.calls.push(1, Some((&[2], times)));
        requests.calls.push(2, Some((&[1, 9], times)));
        assert_eq!(calls_of(&requests, 0), [[1], [2], [3]]);
        assert_eq!(calls_of(&requests, 1), [[4, 5]]);
        assert_eq!(calls_of(&requests, 2), [[6], [7]], "not those of its items");
        assert_eq!((requests.calls.of(0), requests.calls.are_known()), (None, true));
    }
}
