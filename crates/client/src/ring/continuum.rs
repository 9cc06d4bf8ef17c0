//! Points on a circle of 32 bits, each owned by a server: libmemcached's two ketamas and Dalli's ring.
//!
//! Points are sorted by value and, where two are equal, by the server's index in the list, which is what a stable
//! sort leaves in libmemcached. ketama takes the first point at or after the key's hash, Dalli the last at or before.

use sha1::{Digest, Sha1};

use super::{DEFAULT_PORT, RingServer, hash};

/// Digests per server of equal weight; each gives four points.
const KETAMA_DIGESTS: u16 = 40;
/// Points per server of libmemcached's unweighted ring.
const ONE_AT_A_TIME_POINTS: usize = 100;
/// Points per server of Dalli's ring at equal weights.
const DALLI_POINTS: u64 = 160;

/// The points sorted by value, and whether a hash belongs to the point at or after it, or at or before it.
#[derive(Clone, Debug)]
pub(super) struct Continuum {
    points: Vec<Point>,
    search: PointSearch,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    value: u32,
    server_index: usize,
}

#[derive(Clone, Copy, Debug)]
enum PointSearch {
    AtOrAfter,
    AtOrBefore,
}

impl Continuum {
    /// The weighted md5 ring; the weight of a server is computed in float32, as libmemcached does.
    pub(super) fn ketama(servers: &[RingServer]) -> Self {
        let total_weight: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
        let mut points = Vec::new();
        for (server_index, server) in servers.iter().enumerate() {
            for digest_index in 0..ketama_digest_count(server.weight, total_weight, servers.len()) {
                let words = hash::md5_words(point_name(server, digest_index).as_bytes());
                points.extend(words.map(|value| Point { value, server_index }));
            }
        }
        Self::from_points(points, PointSearch::AtOrAfter)
    }

    /// A hundred Jenkins points per server.
    pub(super) fn one_at_a_time(servers: &[RingServer]) -> Self {
        let mut points = Vec::new();
        for (server_index, server) in servers.iter().enumerate() {
            let point_value =
                |point_index| hash::one_at_a_time(point_name(server, point_index).as_bytes());
            points.extend(
                (0..ONE_AT_A_TIME_POINTS)
                    .map(|point_index| Point { value: point_value(point_index), server_index }),
            );
        }
        Self::from_points(points, PointSearch::AtOrAfter)
    }

    /// Dalli's points: the first word of sha1("host:port:i"), shares by integer product and float quotient.
    pub(super) fn dalli(servers: &[RingServer]) -> Self {
        let total_weight: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
        let mut points = Vec::new();
        for (server_index, server) in servers.iter().enumerate() {
            let product = DALLI_POINTS * servers.len() as u64 * u64::from(server.weight);
            let point_count = (product as f64 / total_weight as f64).floor() as u64;
            let name = server.name();
            points.extend((0..point_count).map(|point_index| Point {
                value: sha1_word(format!("{name}:{point_index}").as_bytes()),
                server_index,
            }));
        }
        Self::from_points(points, PointSearch::AtOrBefore)
    }

    fn from_points(mut points: Vec<Point>, search: PointSearch) -> Self {
        points.sort_by_key(|point| point.value);
        Self { points, search }
    }

    /// The index of the server whose point `key_hash` belongs to, wrapping round the circle.
    pub(super) fn server_index_of(&self, key_hash: u32) -> usize {
        let points = &self.points;
        let point = match self.search {
            PointSearch::AtOrAfter => points
                .get(points.partition_point(|point| point.value < key_hash))
                .or(points.first()),
            PointSearch::AtOrBefore => {
                let end_index = points.partition_point(|point| point.value <= key_hash);
                end_index
                    .checked_sub(1)
                    .and_then(|last_index| points.get(last_index))
                    .or(points.last())
            }
        };
        point.map_or(0, |point| point.server_index)
    }
}

/// libmemcached's count of digests for a weight: every step in float32, for a double rounds elsewhere.
fn ketama_digest_count(weight: u32, total_weight: u64, server_count: usize) -> usize {
    let weight_fraction = weight as f32 / total_weight as f32;
    (weight_fraction * f32::from(KETAMA_DIGESTS * 4) / 4.0 * server_count as f32 + 1e-10).floor()
        as usize
}

/// `host:port-point_index`, or `host-point_index` on memcached's own port.
fn point_name(server: &RingServer, point_index: usize) -> String {
    match server.port {
        Some(port) if port != DEFAULT_PORT => format!("{}:{port}-{point_index}", server.host),
        Some(_) => format!("{}-{point_index}", server.host),
        None => format!("{}:0-{point_index}", server.host),
    }
}

fn sha1_word(name: &[u8]) -> u32 {
    let digest: [u8; 20] = Sha1::digest(name).into();
    let [a, b, c, d, ..] = digest;
    u32::from_be_bytes([a, b, c, d])
}
