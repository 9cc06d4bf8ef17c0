//! The items of a fixed set by name: which keys and prefixes it holds, their bytes, and what each saves.

use std::collections::BTreeMap;

use glasscache_lab::text::format_count;
use glasscache_sim::key_prefix::{NO_PREFIX, PrefixGroups};
use glasscache_sim::page::{Table, format_short_bytes};
use glasscache_sim::strategy::fixed::{choose_fixed, compute_call_costs};
use glasscache_sim::strategy::prepare::PreparedLog;
use serde_json::{Value, json};

use super::NamedStrategy;
use super::load::LoadedLog;

/// Items in JSON.
const ITEMS_MAX: usize = 10_000;

/// A fixed set with its items.
pub(super) struct FixedItems {
    /// The strategy that has it.
    notation: String,
    /// Its items, those that save most first.
    items: Vec<FixedItem>,
}

/// An item of a fixed set.
struct FixedItem {
    key: String,
    /// 0 where it is unknown.
    bytes: u64,
    /// Requests of the first half, in per cent, that use it.
    uses_percent: f64,
    /// Its part of the time of the calls that read it, per request of the first half.
    saved_ms: f64,
}

impl FixedItems {
    /// The items of a strategy's fixed set; `None` if it has none.
    pub(super) fn of_strategy(
        named: &NamedStrategy,
        loaded: &LoadedLog,
        prepared: &PreparedLog<'_>,
    ) -> Option<FixedItems> {
        named.strategy.fixed?;
        let chosen = choose_fixed(named.strategy.fixed, prepared, &loaded.cost_model);
        let half_requests = prepared.second_half_start();
        let uses = prepared.uses(0..half_requests);
        let call_costs_ns = compute_call_costs(prepared, &loaded.cost_model, 0..half_requests);
        let request_count = half_requests.max(1) as f64;
        let new_item = |&item_number: &u32| {
            let index = item_number as usize;
            let bytes = u64::from(prepared.items.sizes[index]);
            FixedItem {
                key: loaded.log.items.keys[index].clone(),
                bytes,
                uses_percent: 100.0 * f64::from(uses[index]) / request_count,
                saved_ms: call_costs_ns[index] / 1e6 / request_count,
            }
        };
        let mut items: Vec<FixedItem> = chosen.items.iter().map(new_item).collect();
        items.sort_by(|a, b| {
            let by_time = b.saved_ms.total_cmp(&a.saved_ms);
            by_time.then_with(|| a.key.cmp(&b.key))
        });
        Some(FixedItems { notation: named.notation.clone(), items })
    }

    /// The items that save most, and the set by prefix where there are several prefixes.
    pub(super) fn tables(&self, rows_max: usize) -> Vec<Table> {
        let to_header = |first: &str, second: &str| {
            [first, second, "bytes", "saves ms a request"].map(str::to_owned).to_vec()
        };
        let format_item_row = |item: &FixedItem| {
            vec![
                item.key.clone(),
                format!("{:.1} %", item.uses_percent),
                if item.bytes == 0 { "unknown".to_owned() } else { format_count(item.bytes) },
                format!("{:.4}", item.saved_ms),
            ]
        };
        let mut tables = vec![Table {
            title: format!(
                "What `{}` keeps: the items that save most, of {}",
                self.notation,
                format_count(self.items.len() as u64)
            ),
            header: to_header("item", "requests that use it"),
            rows: self.items.iter().take(rows_max).map(format_item_row).collect(),
        }];
        let prefix_rows = self.list_prefix_rows();
        if prefix_rows.len() > 1 {
            let format_prefix_row = |row: &PrefixRow| {
                vec![
                    row.prefix.clone(),
                    format_count(row.items),
                    format_short_bytes(row.bytes),
                    format!("{:.4}", row.saved_ms),
                ]
            };
            tables.push(Table {
                title: "By key prefix".to_owned(),
                header: to_header("prefix", "items"),
                rows: prefix_rows.iter().take(rows_max).map(format_prefix_row).collect(),
            });
        }
        tables
    }

    fn list_prefix_rows(&self) -> Vec<PrefixRow> {
        let prefixes = PrefixGroups::of_keys(self.items.iter().map(|item| item.key.as_str()));
        let mut groups: BTreeMap<&str, PrefixRow> = BTreeMap::new();
        for item in &self.items {
            let prefix = prefixes.prefix_of(&item.key).unwrap_or(NO_PREFIX);
            let row = groups
                .entry(prefix)
                .or_insert_with(|| PrefixRow { prefix: prefix.to_owned(), ..PrefixRow::default() });
            row.items += 1;
            row.bytes += item.bytes;
            row.saved_ms += item.saved_ms;
        }
        let mut rows: Vec<PrefixRow> = groups.into_values().collect();
        rows.sort_by(|a, b| b.saved_ms.total_cmp(&a.saved_ms));
        rows
    }

    /// The set as JSON.
    pub(super) fn to_document(&self) -> Value {
        let item_document = |item: &FixedItem| {
            json!({
                "key": item.key,
                "bytes": (item.bytes > 0).then_some(item.bytes),
                "uses_percent": item.uses_percent,
                "saved_ms": item.saved_ms,
            })
        };
        let prefix_document = |row: &PrefixRow| json!({ "prefix": row.prefix, "items": row.items, "bytes": row.bytes, "saved_ms": row.saved_ms });
        json!({
            "strategy": self.notation,
            "count": self.items.len(),
            "items": self.items.iter().take(ITEMS_MAX).map(item_document).collect::<Vec<_>>(),
            "by_prefix": self.list_prefix_rows().iter().map(prefix_document).collect::<Vec<_>>(),
        })
    }
}

/// The items of a fixed set that have one key prefix, counted.
#[derive(Default)]
struct PrefixRow {
    prefix: String,
    items: u64,
    bytes: u64,
    /// The time that they save per request.
    saved_ms: f64,
}

/// How many used items have an unknown size, and a note about it; `None` if there are none.
pub(super) fn find_unknown_sizes(prepared: &PreparedLog<'_>) -> Option<(u64, String)> {
    let uses = prepared.uses(0..prepared.len());
    let sizes = &prepared.items.sizes;
    let is_unknown = |(size, uses): &(&u32, &u32)| **size == 0 && **uses > 0;
    let item_count = sizes.iter().zip(&uses).filter(is_unknown).count() as u64;
    let noun = if item_count == 1 { "item has" } else { "items have" };
    let note = format!(
        "{} used {noun} an unknown size and {} as empty: calls and memory are underestimated.",
        format_count(item_count),
        if item_count == 1 { "counts" } else { "count" }
    );
    (item_count > 0).then_some((item_count, note))
}
