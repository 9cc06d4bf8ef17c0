//! The memcached text and meta protocols, both ends, as pure functions over bytes.

pub mod meta;
pub mod text;
