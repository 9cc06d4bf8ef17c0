//! What a caller asks of the store and what it answers: plain data, no wire words.
//!
//! One request type per family of commands, so that every decision (compare, refuse, mark stale)
//! is taken by the store at the moment of publication and not by the caller between two calls.

/// Longest key in bytes, as the memcached protocol has it.
pub const KEY_BYTES_MAX: usize = 250;

/// Seconds on the store's own clock. The caller hands `now` in; 0 is the start of the clock.
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
    /// Store whatever is there.
    #[default]
    Set,
    /// Store only when nothing alive is there; a live item counts as used (memcached touches it).
    Add,
    /// Store only when something alive is there.
    Replace,
    /// Put the value behind the present one; flags and expiry of the present item stay.
    Append,
    /// Put the value before the present one; flags and expiry of the present item stay.
    Prepend,
}

/// A write of one whole item.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetOptions {
    /// How the write treats what is there.
    pub mode: SetMode,
    /// Bits that belong to the client.
    pub flags: u32,
    /// When the new item dies.
    pub expiry: Expiry,
    /// Store only if the present item has this unique (`cas`, meta `C`).
    pub compare: Option<CasUnique>,
    /// The unique that the new item shall have (meta `E`); else the store chooses.
    pub new_unique: Option<CasUnique>,
    /// Meta `I`: a `compare` lower than the present unique still stores, and marks the item stale.
    pub invalidate: bool,
    /// Meta `N` on append or prepend: on a miss store the value as a new item with this expiry.
    pub vivify: Option<Expiry>,
    /// The caller tells nobody the unique of the outcome, so that the item may be given a higher one when it
    /// is moved, which spares six bytes.
    pub hides_unique: bool,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOutcome {
    /// Stored, visible to every reader, with this unique.
    Stored(CasUnique),
    /// The condition of `add`, `replace`, `append` or `prepend` did not hold.
    NotStored,
    /// `compare` was given and the item has another unique.
    Exists,
    /// `compare` was given and there is no item.
    NotFound,
    /// The item is larger than the limit; whatever was under the key is gone.
    TooLarge,
    /// No memory although nothing more may be evicted (`-M`, or all memory is held by others).
    NoMemory,
}

/// What a meta `mg` does besides reading. The default is a plain `get`.
#[derive(Debug, Clone, Copy, Default)]
pub struct GetOptions {
    /// Give the item this expiry (`gat`, `touch`, meta `T`).
    pub touch: Option<Expiry>,
    /// On a miss, create an empty item with this expiry, won by this caller (meta `N`).
    pub vivify: Option<Expiry>,
    /// If less than this many seconds of life are left, let one caller win the refill (meta `R`).
    pub recache_s: Option<u32>,
    /// What is left of life counts after `touch`, not before it (meta `T` in front of `R`).
    pub recache_after_touch: bool,
    /// Hand the one win of a stale or nearly dead item to this caller. Only a caller that can be told may take it.
    pub may_win: bool,
    /// Do not count the hit, neither for eviction nor for h, l and t (meta `q` with `k`: no bump).
    pub no_bump: bool,
    /// The unique for an item that `vivify` creates (meta `E`).
    pub new_unique: Option<CasUnique>,
}

/// What the lease machinery says of a hit (meta flags W, X, Z).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// This caller won the right to refill (W).
    pub won: bool,
    /// The item is marked stale (X).
    pub is_stale: bool,
    /// Another caller has won already (Z).
    pub win_sent: bool,
    /// The read itself created the item (meta `N`).
    pub created: bool,
    /// The expiry before `touch` changed it; `None` when nothing changed it.
    pub expiry_before: Option<Expiry>,
}

/// A deletion, plain or as meta `md` words it.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeleteOptions {
    /// Delete only if the item has this unique.
    pub compare: Option<CasUnique>,
    /// Meta `I`: mark the item stale instead of removing it, with the expiry beside it if given.
    pub invalidate: bool,
    /// Meta `T` beside `invalidate`.
    pub expiry: Option<Expiry>,
    /// Meta `x`: keep the item, remove its value and client flags.
    pub clear_value: bool,
    /// The unique for what stays (meta `E`).
    pub new_unique: Option<CasUnique>,
}

/// What became of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// Gone, or marked as asked.
    Deleted,
    /// Nothing alive under the key.
    NotFound,
    /// `compare` was given and the item has another unique.
    Exists,
}

/// An increment or decrement of a decimal value, plain or as meta `ma` words it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArithOptions {
    /// Subtract instead of add; a decrement stops at 0, an increment wraps at 2^64.
    pub decrement: bool,
    /// How much.
    pub delta: u64,
    /// Change only if the item has this unique.
    pub compare: Option<CasUnique>,
    /// On a miss, store this number with this expiry (meta `N` and `J`).
    pub initial: Option<(u64, Expiry)>,
    /// Give the changed item this expiry (meta `T`).
    pub touch: Option<Expiry>,
    /// The unique of the new item (meta `E`).
    pub new_unique: Option<CasUnique>,
    /// As in [`SetOptions`]: the caller tells nobody the unique of the outcome.
    pub hides_unique: bool,
}

/// What became of an increment or decrement.
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
    /// Nothing alive under the key, and no `initial`.
    NotFound,
    /// `compare` was given and the item has another unique.
    Exists,
    /// The value is not a decimal number of 64 bits.
    NotANumber,
    /// No memory for the new copy.
    NoMemory,
}

/// A write found no free segment, but there will be one once other workers, or the caller itself, have passed.
///
/// Nothing was changed. A caller that can wait ends what it borrowed, calls [`crate::Worker::pass`], lets the other
/// workers run and tries again, as [`crate::Worker::retry`] does; one that cannot wait any longer calls the method
/// without `try_`, which is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no segment is free yet")]
pub struct NoRoomYet;

/// Why a reservation was refused. The old item is gone in both cases, as memcached does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Larger than the item limit.
    TooLarge,
    /// No memory: nothing may be evicted, or uncommitted uploads use their share.
    NoMemory,
}
