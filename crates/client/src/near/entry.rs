//! Keys and values as they are kept: a key as on the wire, a value as the bytes that the server sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_protocol::meta::request::WireKey;
use glasscache_strategy::kept_memory;

/// A key as it goes on the wire; one in base64 after a zero byte, which no wire key has.
pub(super) type NearKey = Arc<[u8]>;

/// A wire key as it is kept.
pub(super) fn near_key(key: WireKey<'_>) -> NearKey {
    if key.is_base64 {
        return [&[0], key.bytes].concat().into();
    }
    key.bytes.into()
}

/// A kept key as it goes on the wire.
pub(super) fn wire_key(key: &NearKey) -> WireKey<'_> {
    match key.strip_prefix(&[0]) {
        Some(bytes) => WireKey { bytes, is_base64: true },
        None => WireKey { bytes: key, is_base64: false },
    }
}

/// A value that was found in the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearValue {
    /// Its client flags.
    pub flags: u32,
    /// Its bytes as the server sent them.
    pub bytes: Arc<[u8]>,
}

/// A value with what bounds its use.
#[derive(Debug, Clone)]
pub(super) struct NearEntry {
    /// `None`: the server had no value. Only a request holds such an entry.
    pub(super) value: Option<NearValue>,
    /// The generation of its key when the fetch began.
    pub(super) generation: u64,
    /// When it may not be served from the process any more.
    pub(super) expires_at: Option<Instant>,
    /// When the item may end on its server.
    pub(super) item_end: ItemEnd,
}

/// When an item may end on its server, by the TTL that came with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemEnd {
    /// No TTL came.
    Unknown,
    /// It has no TTL.
    Never,
    /// Not before then.
    At(Instant),
}

impl ItemEnd {
    /// Of an item whose value a fetch that started at `started_at` found with `ttl_s` seconds left (-1: no expiry).
    pub(super) fn of_fetch(started_at: Instant, ttl_s: Option<i64>) -> Self {
        match ttl_s {
            Some(-1) => Self::Never,
            Some(ttl_s @ 1..) => {
                let seconds = Duration::from_secs(ttl_s.unsigned_abs() - 1);
                started_at.checked_add(seconds).map_or(Self::Unknown, Self::At)
            }
            _ => Self::Unknown,
        }
    }
}

impl NearEntry {
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.value.is_some() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

/// When a value may not be served any more. A fetch that started at `started_at` found it with `ttl_s` seconds left (-1:
/// no expiry). `Err`: it must not be kept.
///
/// Servers count whole seconds: what expires in `ttl_s` seconds has more than `ttl_s` - 1 left.
pub(super) fn compute_expiry(
    started_at: Instant,
    ttl_s: Option<i64>,
    near_ttl: Option<Duration>,
) -> Result<Option<Instant>, UnusableExpiry> {
    let age_expiry = near_ttl.map(|near_ttl| started_at + near_ttl);
    match ttl_s {
        Some(-1) => Ok(age_expiry),
        Some(ttl_s @ 2..) => {
            let ttl_expiry = started_at.checked_add(Duration::from_secs(ttl_s.unsigned_abs() - 1));
            Ok([age_expiry, ttl_expiry].into_iter().flatten().min())
        }
        _ => Err(UnusableExpiry),
    }
}

/// A value whose expiry is unknown or too near.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnusableExpiry;

const _: () = assert!(size_of::<Option<NearEntry>>() == kept_memory::ENTRY_BYTES);

/// The memory that a value takes.
pub(super) fn value_bytes(value: &NearValue) -> usize {
    kept_memory::slice_bytes(value.bytes.len())
}

/// The memory that a key takes, apart from the tables that have it.
pub(super) fn key_bytes(key: &NearKey) -> usize {
    kept_memory::slice_bytes(key.len())
}

/// The memory that a key of the fixed set takes, with its places in the list and in the table.
pub(super) fn fixed_key_bytes(key: &NearKey) -> usize {
    kept_memory::fixed_key_bytes(key.len())
}

/// The memory that an item of the near cache takes.
pub(super) fn near_item_bytes(key: &NearKey, value: &NearValue) -> usize {
    kept_memory::near_item_bytes(key.len(), value.bytes.len())
}
