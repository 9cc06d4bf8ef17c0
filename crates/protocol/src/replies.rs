//! Reply lines without variable parts, byte for byte memcached's because clients compare them.

/// Defines the constants, and a table of them for the reference.
macro_rules! replies {
    ($($(#[doc = $meaning:literal])+ $name:ident = $line:literal;)+) => {
        $($(#[doc = $meaning])+ pub const $name: &[u8] = $line;)+

        /// Every line with its meaning.
        pub const ALL: &[(&[u8], &str)] = &[$(($name, concat!($($meaning),+)),)+];
    };
}

replies! {
    /// Ends the reply of a `get`.
    END = b"END\r\n";
    /// The value is stored.
    STORED = b"STORED\r\n";
    /// The condition of add, replace, append or prepend did not hold.
    NOT_STORED = b"NOT_STORED\r\n";
    /// The unique of a `cas` did not match.
    EXISTS = b"EXISTS\r\n";
    /// The key has no item.
    NOT_FOUND = b"NOT_FOUND\r\n";
    /// The item is gone.
    DELETED = b"DELETED\r\n";
    /// The item has its new expiry.
    TOUCHED = b"TOUCHED\r\n";
    /// An administrative command was executed.
    OK = b"OK\r\n";
    /// `stats reset` was executed.
    RESET = b"RESET\r\n";
    /// An unknown command.
    ERROR = b"ERROR\r\n";
    /// The line has invalid syntax for its command.
    BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n";
    /// The line has too few tokens.
    BAD_LINE = b"CLIENT_ERROR bad command line\r\n";
    /// The value is not followed by a line ending.
    BAD_DATA_CHUNK = b"CLIENT_ERROR bad data chunk\r\n";
    /// The exptime is not a number.
    BAD_EXPTIME = b"CLIENT_ERROR invalid exptime argument\r\n";
    /// The delta of incr or decr is not a number.
    BAD_DELTA = b"CLIENT_ERROR invalid numeric delta argument\r\n";
    /// The value under the key is not a number.
    NOT_A_NUMBER = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    /// A line that does not end within its bound; the connection closes after the reply.
    LINE_TOO_LONG = b"CLIENT_ERROR line too long\r\n";
    /// The value is larger than `-I` allows.
    TOO_LARGE = b"SERVER_ERROR object too large for cache\r\n";
    /// No memory for a new item.
    NO_MEMORY = b"SERVER_ERROR out of memory storing object\r\n";
    /// No memory for a changed item.
    NO_MEMORY_ARITH = b"SERVER_ERROR out of memory\r\n";
    /// More connections than `-c` allows.
    TOO_MANY_CONNECTIONS = b"ERROR Too many open connections\r\n";
    /// A command before the login.
    UNAUTHENTICATED = b"CLIENT_ERROR unauthenticated\r\n";
    /// A command that is not served at an address for statistics (`noauth:`).
    STATISTICS_ONLY = b"CLIENT_ERROR this address serves statistics only (noauth:)\r\n";
    /// The value of a login is longer than 512 bytes.
    LOGIN_TOO_LONG = b"CLIENT_ERROR auth token too long\r\n";
    /// The value of a login is not followed by a line ending.
    LOGIN_BAD_ENDING = b"CLIENT_ERROR bad command line termination\r\n";
    /// The value of a login is not a user, a space and a password.
    LOGIN_BAD_FORMAT = b"CLIENT_ERROR bad authentication token format\r\n";
    /// The user or the password of a login is wrong.
    LOGIN_FAILED = b"CLIENT_ERROR authentication failure\r\n";
    /// A meta flag appears twice.
    DUPLICATE_FLAG = b"CLIENT_ERROR duplicate flag\r\n";
    /// A meta flag is unknown.
    INVALID_FLAG = b"CLIENT_ERROR invalid flag\r\n";
    /// A meta arithmetic line has a bad flag of any kind.
    BAD_ARITH_FLAG = b"CLIENT_ERROR invalid or duplicate flag\r\n";
    /// The argument of a meta flag is invalid.
    BAD_TOKEN = b"CLIENT_ERROR bad token in command line format\r\n";
    /// The base64 key is invalid.
    BAD_KEY = b"CLIENT_ERROR error decoding key\r\n";
    /// The opaque is longer than its bound.
    OPAQUE_TOO_LONG = b"CLIENT_ERROR opaque token too long\r\n";
    /// The line has more flags than its bound.
    TOO_MANY_FLAGS = b"CLIENT_ERROR options flags are too long\r\n";
    /// An unknown mode of a meta set.
    BAD_SET_MODE = b"CLIENT_ERROR invalid mode for ms M token\r\n";
    /// An unknown mode of a meta arithmetic.
    BAD_ARITH_MODE = b"CLIENT_ERROR invalid mode for ma M token\r\n";
    /// `flush_all` is disabled (`-F`).
    FLUSH_DISABLED = b"CLIENT_ERROR flush_all not allowed\r\n";
    /// `flush_prefix` and `mf` are disabled (`-F`).
    FLUSH_PREFIX_DISABLED = b"CLIENT_ERROR flush_prefix not allowed\r\n";
    /// `flush_prefix` or `mf` with one prefix more than the server remembers.
    TOO_MANY_PREFIXES = b"SERVER_ERROR flush_prefix failed: no more prefixes can be remembered; flush fewer prefixes or everything\r\n";
    /// `watch` is disabled (`-W`).
    WATCH_DISABLED = b"CLIENT_ERROR watch commands not allowed\r\n";
    /// `watch` comes after commands without a reply so far.
    WATCH_IN_PIPELINE = b"ERROR cannot pipeline other commands before watch\r\n";
    /// More watchers than the server allows.
    TOO_MANY_WATCHERS = b"WATCHER_TOO_MANY log watcher limit reached\r\n";
    /// `shutdown` is not enabled (`-A`).
    SHUTDOWN_DISABLED = b"SERVER_ERROR: shutdown not enabled\r\n";
    /// An unknown argument of `shutdown`.
    BAD_SHUTDOWN_MODE = b"CLIENT_ERROR invalid shutdown mode\r\n";
    /// `cache_memlimit` below 8 MB.
    MEMORY_LIMIT_TOO_SMALL = b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
    /// `cache_memlimit` with a value that must be in bytes.
    MEMORY_LIMIT_IN_BYTES = b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
    /// `cache_memlimit` beyond the memory mapped at the start.
    MEMORY_LIMIT_FAILED = b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    /// `refresh_certs` where no listener has TLS (`-Z`).
    TLS_NOT_ENABLED = b"Error TLS not enabled\r\n";
    /// The crawler is off (`-o no_lru_crawler`).
    CRAWLER_OFF = b"CLIENT_ERROR lru crawler disabled\r\n";
    /// `lru_crawler sleep` above one second.
    BAD_CRAWLER_SLEEP = b"CLIENT_ERROR sleep must be one second or less\r\n";
    /// An invalid slab class in `lru_crawler` or `slabs reassign`.
    BAD_CLASS = b"BADCLASS invalid class id\r\n";
    /// `lru_crawler mgdump` is disabled (`-X`).
    MGDUMP_DISABLED = b"ERROR key dump not allowed\r\n";
    /// `lru_crawler metadump` is disabled (`-X`).
    METADUMP_DISABLED = b"ERROR metadump not allowed\r\n";
    /// `lru_crawler mgdump` comes after commands without a reply so far.
    MGDUMP_IN_PIPELINE = b"ERROR cannot pipeline other commands before mgdump\r\n";
    /// `lru_crawler metadump` comes after commands without a reply so far.
    METADUMP_IN_PIPELINE = b"ERROR cannot pipeline other commands before metadump\r\n";
    /// `lru tune` with percentages above 80 together.
    BAD_LRU_PERCENTS = b"ERROR hot and warm pcts must not exceed 80\r\n";
    /// `lru tune` with a factor of 0 or less.
    BAD_LRU_FACTORS = b"ERROR hot/warm age factors must be greater than 0\r\n";
    /// `slabs reassign` of a class to itself.
    SAME_CLASS = b"SAME src and dst class are identical\r\n";
    /// `slabs reassign`: this server has no slab pages to move.
    NO_SPARE_PAGES = b"NOSPARE source class has no spare pages\r\n";
    /// `slabs automove` with an invalid window.
    BAD_AUTOMOVE_WINDOW = b"CLIENT_ERROR automove window too low or too high\r\n";
    /// `stats hotkeys` is disabled (`-X`).
    HOTKEYS_DISABLED = b"CLIENT_ERROR stats hotkeys not allowed\r\n";
    /// An unknown argument of `stats hotkeys`.
    HOTKEYS_USAGE = b"CLIENT_ERROR usage: stats hotkeys [1s|1m|1h] [requests|bytes]\r\n";
    /// `stats prefixes` is disabled (`-X`).
    PREFIXES_DISABLED = b"CLIENT_ERROR stats prefixes not allowed\r\n";
    /// `stats detail` is disabled (`-X`).
    DETAIL_DISABLED = b"CLIENT_ERROR stats detail not allowed\r\n";
    /// An unknown argument of `stats detail`.
    DETAIL_USAGE = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
    /// `stats cachedump` is disabled (`-X`).
    CACHEDUMP_DISABLED = b"CLIENT_ERROR stats cachedump not allowed\r\n";
    /// An invalid slab class in `stats cachedump`.
    BAD_SLAB = b"CLIENT_ERROR Illegal slab id\r\n";
}
