//! Results as JSON, with the names of docs/reference/formats.md, "Results": one form for the command and Python.

use serde_json::{Map, Value, json};

use super::figures::{Figures, PERCENTILES, SLOWDOWNS};
use super::report::Report;

impl Report {
    /// What a strategy did, `routes` naming its figures by route in their order.
    pub fn to_document(&self, routes: &[String]) -> Value {
        let mut document = json!({
            "all": self.all.to_document(),
            "second_half": self.second_half.to_document(),
            "kept": {
                "fixed_items": self.kept.fixed_items,
                "fixed_bytes": self.kept.fixed_bytes,
                "local_bytes": self.kept.local_bytes,
            },
        });
        if let (Some(drawn), Some(comonotone)) = (&self.drawn, &self.comonotone) {
            document["drawn"] = json!({ "second_half": drawn.to_document() });
            document["drawn_comonotone"] = json!({ "second_half": comonotone.to_document() });
        }
        if !routes.is_empty() {
            let route_entry = |(name, (all, second_half)): (&String, &(Figures, Figures))| {
                let halves =
                    json!({ "all": all.to_document(), "second_half": second_half.to_document() });
                (name.clone(), halves)
            };
            document["routes"] =
                Value::Object(routes.iter().zip(&self.routes).map(route_entry).collect());
        }
        document
    }
}

impl Figures {
    /// The figures of some requests.
    pub fn to_document(&self) -> Value {
        let by_percentile = |values: Vec<Value>| -> Map<String, Value> {
            let names = PERCENTILES.iter().map(|(name, _)| (*name).to_owned());
            names.zip(values).collect()
        };
        let shares = self.share_slower.map(|share| json!(share));
        let slower: Map<String, Value> =
            SLOWDOWNS.iter().map(|(name, _)| (*name).to_owned()).zip(shares).collect();
        json!({
            "requests": self.requests,
            "calls": self.calls,
            "keys": self.keys,
            "bytes": self.bytes,
            "used_keys": self.used_keys,
            "added_ns": self.added_ns,
            "decode_ns": self.decode_ns,
            "cache_ns": self.cache_ns,
            "added_ns_pct": by_percentile(self.added_ns_pct.iter().map(|value| json!(value)).collect()),
            "slowdown_pct": by_percentile(self.slowdown_pct.iter().map(|value| json!(value)).collect()),
            "latency_ns_pct": by_percentile(self.latency_ns_pct.iter().map(|value| json!(value)).collect()),
            "share_slower": slower,
        })
    }
}
