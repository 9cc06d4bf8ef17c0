//! Requests to the store and their outcomes: plain data, independent of the protocol.
//!
//! One request type per family of commands, so that every decision (compare, refuse, mark stale) is made by the
//! store at the moment of publication and not by the caller between two calls.

/// Longest key in bytes, as the memcached protocol has it.
pub const KEY_BYTES_MAX: usize = 250;

/// Seconds on the store's own clock. The caller passes `now`; 0 is the start of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub u32);

/// When an item dies: never, or at a second of the store's clock (dead once `now >= at`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expiry {
    /// Lives until it is evicted or deleted.
    #[default]
    Never,
    /// Dead once the clock shows this second.
    At(Seconds),
}

/// A seeded 64-bit hash of a key, made by [`crate::Store::hash`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// A number that changes with each write of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CasUnique(pub u64);

/// How a write treats what is already under the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetMode {
    /// Store unconditionally.
    #[default]
    Set,
    /// Store only if there is no live item; a live item counts as used (memcached touches it).
    Add,
    /// Store only if there is a live item.
    Replace,
    /// Append the value; flags and expiry of the item stay.
    Append,
    /// Prepend the value; flags and expiry of the item stay.
    Prepend,
}

/// A write of one whole item.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetOptions {
    /// How the write treats an existing item.
    pub mode: SetMode,
    /// Bits that belong to the client.
    pub flags: u32,
    /// When the new item dies.
    pub expiry: Expiry,
    /// Store only if the item has this unique (`cas`, meta `C`).
    pub required_cas: Option<CasUnique>,
    /// The unique of the new item (meta `E`); else the store chooses.
    pub new_unique: Option<CasUnique>,
    /// Meta `I`: a `required_cas` lower than the item's unique still stores, and marks the item stale.
    pub invalidate: bool,
    /// Meta `N` on append or prepend: on a miss store the value as a new item with this expiry.
    pub vivify: Option<Expiry>,
    /// The caller sends the unique of the outcome to no client, so that the item may get a higher one when it is
    /// moved, which saves six bytes.
    pub hides_unique: bool,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOutcome {
    /// Stored, visible to every reader, with this unique.
    Stored(CasUnique),
    /// The condition of `add`, `replace`, `append` or `prepend` did not hold.
    NotStored,
    /// `required_cas` was given and the item has another unique.
    Exists,
    /// `required_cas` was given and there is no item.
    NotFound,
    /// The item is larger than the limit; the old item is removed.
    TooLarge,
    /// No memory although nothing more may be evicted (`-M`, or all memory is held by others).
    NoMemory,
}

/// The options of a meta `mg` besides reading. The default is a plain `get`.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetOptions {
    /// Give the item this expiry (`gat`, `touch`, meta `T`).
    pub touch: Option<Expiry>,
    /// On a miss, create an empty item with this expiry, won by this caller (meta `N`).
    pub vivify: Option<Expiry>,
    /// If the remaining TTL is below this many seconds, let one caller win the refill (meta `R`).
    pub recache_s: Option<u32>,
    /// The remaining TTL is the one after `touch`, not before it (meta `T` before `R`).
    pub recache_after_touch: bool,
    /// Give the one win of a stale or expiring item to this caller. Only a caller that can report it may take it.
    pub may_win: bool,
    /// Do not count the hit, neither for eviction nor for h, l and t (meta `u`).
    pub no_bump: bool,
    /// The unique for an item that `vivify` creates (meta `E`).
    pub new_unique: Option<CasUnique>,
}

/// The state of the lease of a hit (meta flags W, X, Z).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// This caller won the right to refill (W).
    pub won: bool,
    /// The item is marked stale (X).
    pub is_stale: bool,
    /// Another caller has already won (Z).
    pub already_won: bool,
    /// The read itself created the item (meta `N`).
    pub created: bool,
    /// The expiry before `touch` changed it; `None` when nothing changed it.
    pub expiry_before: Option<Expiry>,
}

/// A deletion, plain or by meta `md`.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeleteOptions {
    /// Delete only if the item has this unique.
    pub required_cas: Option<CasUnique>,
    /// Meta `I`: mark the item stale instead of removing it, with the given expiry.
    pub invalidate: bool,
    /// Meta `T` with `invalidate`.
    pub expiry: Option<Expiry>,
    /// Meta `x`: keep the item, remove its value and client flags.
    pub clear_value: bool,
    /// The unique of the item that stays (meta `E`).
    pub new_unique: Option<CasUnique>,
}

/// The outcome of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// Removed, or marked as requested.
    Deleted,
    /// No live item under the key.
    NotFound,
    /// `required_cas` was given and the item has another unique.
    Exists,
}

/// An increment or decrement of a decimal value, plain or by meta `ma`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArithOptions {
    /// Subtract instead of add; a decrement stops at 0, an increment wraps at 2^64.
    pub is_decrement: bool,
    /// The amount.
    pub delta: u64,
    /// Change only if the item has this unique.
    pub required_cas: Option<CasUnique>,
    /// On a miss, store this number with this expiry (meta `N` and `J`).
    pub initial: Option<(u64, Expiry)>,
    /// Give the changed item this expiry (meta `T`).
    pub touch: Option<Expiry>,
    /// The unique of the new item (meta `E`).
    pub new_unique: Option<CasUnique>,
    /// As in [`SetOptions`]: the caller sends the unique of the outcome to no client.
    pub hides_unique: bool,
}

/// The outcome of an increment or decrement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithOutcome {
    /// The new number, and the unique and expiry of the item that now holds it.
    Number {
        /// The number now stored.
        value: u64,
        /// Its unique.
        unique: CasUnique,
        /// When it dies.
        expiry: Expiry,
        /// When it would have died without this change; [`Expiry::Never`] for a created one.
        expiry_before: Expiry,
        /// True when the item was created from `initial`.
        created: bool,
    },
    /// No live item under the key, and no `initial`.
    NotFound,
    /// `required_cas` was given and the item has another unique.
    Exists,
    /// The value is not a decimal number of 64 bits.
    NotANumber,
    /// No memory for the new copy.
    NoMemory,
}

/// A write found no free segment, but there will be one once other workers, or the caller itself, have passed.
///
/// Nothing was changed. A caller that can wait ends its borrows, calls [`crate::Worker::pass`], lets the other
/// workers run and tries again, as [`crate::Worker::retry`] does; one that cannot wait any longer calls the method
/// without `try_`, which is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no segment is free yet")]
pub struct NoRoomYet;

/// Why a reservation was refused. The old item is removed in both cases, as in memcached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Larger than the item limit.
    TooLarge,
    /// No memory: nothing may be evicted, or uncommitted uploads use their share.
    NoMemory,
}
