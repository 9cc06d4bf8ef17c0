//! Text for a terminal: tables, wrapped sentences, numbers with separators and units.

mod layout;
mod table;
mod word_wrap;

pub use glasscache_findings::numbers::{
    format_bytes, format_count, format_count_of, format_decimal, format_duration, format_percent,
};
pub use layout::{TableLayout, format_table, format_two_columns};
pub use table::Table;
pub use word_wrap::wrap;
