//! A finding, and the table of all kinds of them.

use serde::Serialize;

/// What one rule found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Which rule, a name of [`KINDS`].
    pub id: &'static str,
    /// What is wrong, with its figure.
    pub sentence: String,
    /// The figure, in the unit of its [`Kind`].
    pub value: f64,
    /// The setting to change, with the value to set where that can be computed.
    pub setting: String,
    /// What the change would bring.
    pub gain: String,
}

/// One kind of finding.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// [`Finding::id`].
    pub id: &'static str,
    /// What [`Finding::value`] counts.
    pub value: &'static str,
    /// When it is found.
    pub condition: &'static str,
}

const fn kind(id: &'static str, value: &'static str, condition: &'static str) -> Kind {
    Kind { id, value, condition }
}

/// All kinds, the most important first.
pub const KINDS: [Kind; 13] = [
    kind(
        "connections_full",
        "open connections",
        "95 % of the connections that `-c` allows are open, or a new one is refused",
    ),
    kind("refused_connections", "connections refused", "connections were refused because of `-c`"),
    kind("swap", "bytes in swap", "at least 1 MB of the server's memory is in swap"),
    kind("no_memory", "values refused", "values were refused because there was no memory for them"),
    kind(
        "never_read_sets",
        "share of the items",
        "75 % of the items, or of the evicted ones, were never read, and most sets follow no miss",
    ),
    kind(
        "too_small",
        "evictions a second",
        "items are evicted and missed, or by the curve more memory avoids 5 % of the misses",
    ),
    kind("one_hot_key", "share of the gets", "one key has a quarter of the gets"),
    kind(
        "values_refused",
        "values refused",
        "values were refused because they were larger than `-I` allows",
    ),
    kind("huge_values", "share of the bytes", "values of 100 KB and more take half of the bytes"),
    kind(
        "dead_client_pool",
        "idle connections",
        "a tenth of the connections that `-c` allows, and 80 % of the open ones, send nothing",
    ),
    kind(
        "too_large",
        "bytes to give back",
        "100 MB and more of the memory bring nothing: never filled, or by the curve",
    ),
    kind(
        "ttls_alike",
        "share of the items",
        "half of the items with a TTL expire within one fiftieth of their remaining time",
    ),
    kind("no_ttls", "share of the items", "90 % of the items have no TTL"),
];
