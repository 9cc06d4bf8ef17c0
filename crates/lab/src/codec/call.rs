//! The parts of the time of a call: those measured by value size, and what a slower network adds.

use serde::Serialize;

/// What a form is chosen for.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodecObjective {
    /// Time of a byte on the network, on top of what was measured against the server.
    pub(super) ns_per_byte: f64,
    /// Gets for each set.
    pub(super) reads_per_write: f64,
}

/// The median time of calls with values that need no conversion, by size, and the server's CPU time in it.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct CallTimes {
    /// Of sets, ascending by size.
    pub set: Vec<CallTime>,
    /// Of gets, ascending by size.
    pub get: Vec<CallTime>,
}

/// One measured size.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CallTime {
    /// Bytes of the value.
    pub bytes: usize,
    /// Median time of the call.
    pub us: f64,
    /// CPU time of the server; null where its process cannot be seen.
    pub server_us: Option<f64>,
}

/// The mean time of a call by part, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[expect(clippy::struct_field_names, reason = "these are the names in JSON")]
pub(super) struct CallParts {
    /// From the value to bytes.
    pub serialise_us: f64,
    /// Compression.
    pub compress_us: f64,
    /// Both kernels and the network on the way to the server.
    pub send_us: f64,
    /// CPU time of the server; 0 where it cannot be seen, which leaves it in the other parts.
    pub server_us: f64,
    /// Both kernels and the network on the way back.
    pub receive_us: f64,
    /// Decompression.
    pub decompress_us: f64,
    /// From bytes to the value.
    pub deserialise_us: f64,
}

impl CallParts {
    /// All parts together.
    pub(super) fn total_us(&self) -> f64 {
        self.serialise_us
            + self.compress_us
            + self.send_us
            + self.server_us
            + self.receive_us
            + self.decompress_us
            + self.deserialise_us
    }

    pub(super) fn add_weighted(&mut self, other: Self, weight: f64) {
        self.serialise_us += other.serialise_us * weight;
        self.compress_us += other.compress_us * weight;
        self.send_us += other.send_us * weight;
        self.server_us += other.server_us * weight;
        self.receive_us += other.receive_us * weight;
        self.decompress_us += other.decompress_us * weight;
        self.deserialise_us += other.deserialise_us * weight;
    }
}

/// Finds the time of this size among the measured ones, in a straight line between two of them.
fn interpolate_times(times: &[CallTime], bytes: usize) -> (f64, f64) {
    let total_and_server_us =
        |time: &CallTime| (time.us, time.server_us.unwrap_or(0.0).min(time.us));
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return (0.0, 0.0);
    };
    if bytes <= first.bytes {
        return total_and_server_us(first);
    }
    let upper_index = times.iter().position(|time| time.bytes >= bytes);
    let Some((low, high)) = upper_index
        .and_then(|upper_index| Some((times.get(upper_index - 1)?, times.get(upper_index)?)))
    else {
        return total_and_server_us(last);
    };
    let fraction = (bytes - low.bytes) as f64 / (high.bytes - low.bytes) as f64;
    let ((low_us, low_server_us), (high_us, high_server_us)) =
        (total_and_server_us(low), total_and_server_us(high));
    (
        low_us + (high_us - low_us) * fraction,
        low_server_us + (high_server_us - low_server_us) * fraction,
    )
}

/// Send, server and receive of a call whose value goes one way; half of an empty call's time is spent on each way.
pub(super) fn split_network_and_server(
    times: &[CallTime],
    bytes: usize,
    is_set: bool,
    objective: &CodecObjective,
) -> CallParts {
    let (total_us, server_us) = interpolate_times(times, bytes);
    let (empty_us, empty_server_us) = interpolate_times(times, 0);
    let one_way_us = ((empty_us - empty_server_us) / 2.0).min(total_us - server_us);
    let value_us = total_us - server_us - one_way_us + objective.ns_per_byte * bytes as f64 / 1e3;
    let (send_us, receive_us) =
        if is_set { (value_us, one_way_us) } else { (one_way_us, value_us) };
    CallParts { send_us, server_us, receive_us, ..CallParts::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_two_sizes_lie_on_the_line_between_them() {
        let at_size = |bytes: usize, us: f64| CallTime { bytes, us, server_us: Some(10.0) };
        let times = [at_size(0, 30.0), at_size(1000, 40.0)];
        assert_eq!(interpolate_times(&times, 500), (35.0, 10.0));
        assert_eq!(interpolate_times(&times, 0), (30.0, 10.0));
        assert_eq!(interpolate_times(&times, 5000), (40.0, 10.0));
        let parts = split_network_and_server(
            &times,
            1000,
            false,
            &CodecObjective { ns_per_byte: 1.0, reads_per_write: 10.0 },
        );
        assert!((parts.send_us - 10.0).abs() < 1e-9 && (parts.receive_us - 21.0).abs() < 1e-9);
    }
}
