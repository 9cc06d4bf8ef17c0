//! The memcached text and meta protocols, both ends, as pure functions over bytes.
