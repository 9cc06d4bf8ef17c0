//! `GET /metrics`: the names of memcached's usual exporter, and our own.
//!
//! Both are read from the rows of `stats`, so that the two never differ. The text format 0.0.4 is used whatever the
//! scraper prefers: under `OpenMetrics` six of the exporter's names would get another suffix, and its dashboards and
//! alerts would find nothing.

mod memcached;
mod own;
mod text;

use crate::session::stats::table::StatsContext;
use crate::session::stats::{StatRows, read_rows, write_all_tables};

/// All metrics.
pub(crate) fn write_metrics(context: StatsContext<'_>) -> String {
    let [general, settings, items, slabs, own] =
        write_all_tables(context).map(|text| read_rows(&text));
    let mut exposition = text::Exposition::default();
    memcached::write(&memcached::Tables { general, settings, items, slabs }, &mut exposition);
    own::write(context.shared, &own, &mut exposition);
    exposition.0
}
