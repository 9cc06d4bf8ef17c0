//! The ring: which server a key belongs to, key by key as other clients decide it.
//!
//! A cache that moves to this client must find what its old client stored, so each placement follows the rule of a
//! named library to the bit, float arithmetic and quirks included; `make placement` compares them with the libraries
//! themselves. Placement is pure: no socket, no state that changes after [`Ring::new`]. What to do when the chosen
//! server is down is the pool's business.

mod continuum;
mod hash;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use continuum::Continuum;

/// The port that libmemcached leaves out of a server's name on its continuum.
pub const DEFAULT_PORT: u16 = 11211;

/// One server as placement sees it: a name to be hashed and its part of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingServer {
    /// Host name or address exactly as it was configured (it is hashed as text), or the path of a unix socket.
    pub host: String,
    /// TCP port; `None` for a unix socket.
    pub port: Option<u16>,
    /// Relative part of the keys, at least 1.
    pub weight: u32,
}

impl RingServer {
    /// A TCP server of weight 1.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port: Some(port), weight: 1 }
    }

    /// The same server with another weight.
    #[must_use]
    pub fn with_weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    /// `host:port`, or the path alone, as most clients spell a server when they hash it.
    fn name(&self) -> String {
        self.port.map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}

/// The rule by which a key finds its server; each names the clients whose placement it equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// libmemcached's weighted md5 ring: pylibmc `ketama_weighted`, php-memcached `LIBKETAMA_COMPATIBLE`,
    /// spymemcached's `KetamaConnectionFactory` with addresses. The default.
    #[default]
    Ketama,
    /// libmemcached's unweighted ring: pylibmc `ketama`, php-memcached `DISTRIBUTION_CONSISTENT`.
    KetamaOneAtATime,
    /// Jenkins' hash modulo the number of servers: the default of pylibmc and php-memcached.
    Modula,
    /// Highest murmur3 score wins: pymemcache's `HashClient`.
    Rendezvous,
    /// Middle bits of crc32 modulo buckets: python-memcached, libmemcached's hash `crc`.
    Crc,
    /// The same, but a hash of 0 counts as 1 (a key in 32,768): pecl-memcache with `hash_strategy=standard`.
    Pecl,
    /// crc32 modulo the number of servers: gomemcache.
    Crc32,
    /// sha1 points, greatest point not above the key: Dalli.
    Dalli,
    /// Java's `String.hashCode` modulo the number of servers: the default of spymemcached and xmemcached.
    Spymemcached,
    /// Jump consistent hash over xxh3: memcached's own proxy with `dist_jump_hash` and its default hash.
    Jump,
}

/// Each placement with its name in the configuration.
pub const PLACEMENTS: [(Placement, &str); 10] = [
    (Placement::Ketama, "ketama"),
    (Placement::KetamaOneAtATime, "ketama-oneatatime"),
    (Placement::Modula, "modula"),
    (Placement::Rendezvous, "rendezvous"),
    (Placement::Crc, "crc"),
    (Placement::Pecl, "pecl"),
    (Placement::Crc32, "crc32"),
    (Placement::Dalli, "dalli"),
    (Placement::Spymemcached, "spymemcached"),
    (Placement::Jump, "jump"),
];

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            PLACEMENTS.iter().find(|(candidate, _)| candidate == self).map_or("", |(_, name)| name),
        )
    }
}

impl FromStr for Placement {
    type Err = RingError;

    fn from_str(name: &str) -> Result<Self, RingError> {
        PLACEMENTS
            .iter()
            .find(|(_, candidate)| *candidate == name)
            .map(|(placement, _)| *placement)
            .ok_or_else(|| RingError::UnknownPlacement(name.to_owned()))
    }
}

/// Why a ring cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The server list is empty.
    #[error("no servers: a ring needs at least one")]
    NoServers,
    /// A weight of zero, or so many buckets that the table would be absurd.
    #[error("bad weight {weight} of server {server:?}: 1 to {WEIGHT_MAX}")]
    BadWeight {
        /// The server as configured.
        server: String,
        /// The weight as configured.
        weight: u32,
    },
    /// The library that this placement follows has no weights, so a weighted list could not agree with it.
    #[error("placement {placement} has no weights, server {server:?} has weight {weight}")]
    Unweighted {
        /// The requested placement.
        placement: Placement,
        /// The server as configured.
        server: String,
        /// The weight as configured.
        weight: u32,
    },
    /// The name of an unknown placement.
    #[error(
        "unknown placement {0:?}: one of ketama, ketama-oneatatime, modula, rendezvous, crc, pecl, crc32, dalli, \
         spymemcached, jump"
    )]
    UnknownPlacement(String),
}

/// Bound of one server's weight: some rules repeat a server `weight` times in a table.
pub const WEIGHT_MAX: u32 = 10_000;

/// A server list made ready for look-ups; immutable, a changed list is a new ring.
#[derive(Clone, Debug)]
pub struct Ring {
    table: PlacementTable,
    server_count: usize,
}

/// What a placement needs at look-up time.
#[derive(Clone, Debug)]
enum PlacementTable {
    Points { continuum: Continuum, hash_key: fn(&[u8]) -> u32 },
    Buckets { buckets: Vec<usize>, hash_key: fn(&[u8]) -> u32 },
    Rendezvous { names: Vec<String> },
    Jump { buckets: Vec<usize> },
}

impl Ring {
    /// Builds the table of `placement` for `servers`, in their order.
    pub fn new(servers: &[RingServer], placement: Placement) -> Result<Self, RingError> {
        check_servers(servers, placement)?;
        let has_weights = servers.iter().any(|server| server.weight > 1);
        let table = match placement {
            Placement::Ketama => PlacementTable::Points {
                continuum: Continuum::ketama(servers),
                hash_key: hash::md5_word,
            },
            // libmemcached switches to md5 points as soon as one weight is set, yet hashes keys as before.
            Placement::KetamaOneAtATime if has_weights => PlacementTable::Points {
                continuum: Continuum::ketama(servers),
                hash_key: hash::one_at_a_time,
            },
            Placement::KetamaOneAtATime => PlacementTable::Points {
                continuum: Continuum::one_at_a_time(servers),
                hash_key: hash::one_at_a_time,
            },
            Placement::Dalli => PlacementTable::Points {
                continuum: Continuum::dalli(servers),
                hash_key: crc32fast::hash,
            },
            Placement::Modula => PlacementTable::Buckets {
                buckets: build_buckets(servers),
                hash_key: hash::one_at_a_time,
            },
            Placement::Crc => PlacementTable::Buckets {
                buckets: build_buckets(servers),
                hash_key: hash::crc_middle,
            },
            Placement::Pecl => PlacementTable::Buckets {
                buckets: build_buckets(servers),
                hash_key: |key| hash::crc_middle(key).max(1),
            },
            Placement::Crc32 => PlacementTable::Buckets {
                buckets: build_buckets(servers),
                hash_key: crc32fast::hash,
            },
            Placement::Spymemcached => PlacementTable::Buckets {
                buckets: build_buckets(servers),
                hash_key: hash::java_string,
            },
            Placement::Rendezvous => {
                PlacementTable::Rendezvous { names: servers.iter().map(RingServer::name).collect() }
            }
            Placement::Jump => PlacementTable::Jump { buckets: build_buckets(servers) },
        };
        Ok(Self { table, server_count: servers.len() })
    }

    /// The index, in the list given to [`Ring::new`], of the server that holds `key`, which has its namespace.
    pub fn server_of(&self, key: &[u8]) -> usize {
        if self.server_count == 1 {
            return 0;
        }
        match &self.table {
            PlacementTable::Points { continuum, hash_key } => {
                continuum.server_index_of(hash_key(key))
            }
            PlacementTable::Buckets { buckets, hash_key } => {
                bucket_at(buckets, hash_key(key) as usize % buckets.len().max(1))
            }
            PlacementTable::Rendezvous { names } => highest_scoring_server(names, key),
            PlacementTable::Jump { buckets } => {
                bucket_at(buckets, hash::jump_bucket(hash::xxh3(key), buckets.len()))
            }
        }
    }
}

fn check_servers(servers: &[RingServer], placement: Placement) -> Result<(), RingError> {
    if servers.is_empty() {
        return Err(RingError::NoServers);
    }
    // libmemcached's modula, pymemcache and spymemcached ignore or lack weights.
    let ignores_weights =
        matches!(placement, Placement::Modula | Placement::Rendezvous | Placement::Spymemcached);
    for server in servers {
        let (name, weight) = (server.name(), server.weight);
        if weight == 0 || weight > WEIGHT_MAX {
            return Err(RingError::BadWeight { server: name, weight });
        }
        if ignores_weights && weight > 1 {
            return Err(RingError::Unweighted { placement, server: name, weight });
        }
    }
    Ok(())
}

/// Server indexes, each repeated `weight` times in list order: what python-memcached and pecl do with weights.
fn build_buckets(servers: &[RingServer]) -> Vec<usize> {
    let repeat =
        |(server_index, server): (usize, &RingServer)| vec![server_index; server.weight as usize];
    servers.iter().enumerate().flat_map(repeat).collect()
}

fn bucket_at(buckets: &[usize], bucket_index: usize) -> usize {
    buckets.get(bucket_index).copied().unwrap_or(0)
}

/// pymemcache's rule: murmur3 of `name-key`, a tie goes to the greater name.
fn highest_scoring_server(names: &[String], key: &[u8]) -> usize {
    let key = String::from_utf8_lossy(key);
    let score = |name: &String| hash::murmur3_of_chars(&format!("{name}-{key}"));
    let best_name = names.iter().enumerate().max_by_key(|(_, name)| (score(name), *name));
    best_name.map_or(0, |(server_index, _)| server_index)
}
