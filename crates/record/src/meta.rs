//! What readers and writers of a log's folder know of its `meta.json`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The keys and patterns of keys that `meta.json` has as changed in place.
pub(crate) fn changed_of_meta(meta: &Map<String, Value>) -> BTreeSet<String> {
    let texts = meta.get("changed").and_then(Value::as_array).into_iter().flatten();
    texts.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}
