//! What happens in a world, before it happens: servers, clients, and what each task does one after the other.
//!
//! A plan is data, so that a failing one can be made shorter step by step and run again. All that is random while it
//! runs (where bytes are cut, how long they take) comes from its seed.

use glasscache_client::Protocol;

/// Microseconds of virtual time: a time since the world began, or a duration.
pub(crate) type Micros = u64;

/// A key by its index; a plan has only a few, so that several calls use the same one.
pub(crate) type Key = u8;

/// How many keys have values; their indices come first.
pub(crate) const VALUE_KEYS: Key = 10;
/// How many keys have counters, which calls create and increment; their indices follow.
pub(crate) const COUNTER_KEYS: Key = 3;
/// Every n-th key with a value has a space in it, and is sent as base64.
const BASE64_KEY_INTERVAL: Key = 5;
/// Additions to one counter in a plan, at most: each adds a bit of its own, see `checker::addend`.
pub(crate) const ADDITIONS_MAX: u8 = 22;
/// Writes of one call, at most.
pub(crate) const WRITES_PER_CALL_MAX: u32 = 16;

/// One world.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The seed of all random choices.
    pub seed: u64,
    /// The servers.
    pub servers: Vec<ServerPlan>,
    /// The processes of clients.
    pub processes: Vec<ProcessPlan>,
    /// What each task does; task `n` belongs to process `n % processes`.
    pub tasks: Vec<Vec<TaskStep>>,
    /// How bytes travel.
    pub network: NetworkPlan,
    /// What a test plants, to see that the checker finds it.
    pub sabotage: Option<Sabotage>,
}

/// A server or a driver that breaks an invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A server changes values.
    ChangesValues,
    /// A server sends the first value that it sent for a key each time.
    SendsOldValues,
    /// A server's clock stands still.
    StopsItsClock,
    /// A server keeps more than it may.
    KeepsTooMuch,
    /// A server starts without the items that it had at a clean stop.
    LosesItems,
    /// A driver makes additions again although they may have been made.
    RepeatsAdditions,
    /// A driver replaces a value without a comparison.
    ReplacesCasBySet,
    /// A driver gives a reply to another call in flight.
    MixesReplies,
    /// A driver handles each value of a bulk read twice.
    HandlesValuesTwice,
    /// A driver reports that a write was certainly not executed.
    DeniesWrites,
    /// A driver ends a call twice.
    EndsTwice,
    /// A driver does not look at deadlines.
    IgnoresDeadlines,
    /// A driver uses a connection again whose reply is still to come.
    ReusesUnreadConnections,
    /// A driver does not close connections.
    NeverCloses,
    /// A driver does not parse the bytes that it receives until a call waits for a reply.
    KeepsUnparsedBytes,
    /// A driver forgets quiet writes that are lost.
    ForgetsQuietWrites,
    /// A driver forgets keys whose outcome is not known.
    ForgetsUncertainKeys,
    /// A driver flushes another prefix than the caller's.
    FlushesAnotherPrefix,
    /// A driver counts a failed call twice against its server.
    CountsFailuresTwice,
    /// A driver does not probe servers that are down.
    NeverProbes,
    /// A child of a fork goes on with its parent's connections.
    KeepsParentConnections,
    /// A driver panics.
    Panics,
}

/// One server.
#[derive(Debug, Clone, Copy)]
pub struct ServerPlan {
    /// `-m` in bytes.
    pub memory_bytes: u64,
    /// Whether items are evicted when the memory is full; `false` is `-M`.
    pub evict: bool,
    /// `-I`.
    pub item_bytes_max: u32,
    /// Its workers.
    pub workers: usize,
    /// The proxy through which clients reach it.
    pub proxy: Proxy,
    /// Whether clients have to log in.
    pub requires_login: bool,
    /// Whether its items outlive a clean stop (`-e`).
    pub has_memory_file: bool,
}

/// The proxy between clients and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxy {
    /// No proxy.
    None,
    /// A proxy that has no meta commands and replies ERROR to them.
    RefusesMeta,
    /// A proxy that closes on meta commands.
    ClosesOnMeta,
}

/// One process with clients.
#[derive(Debug, Clone, Copy)]
pub struct ProcessPlan {
    /// How it drives connections.
    pub driver: Driver,
    /// The longest value that its client reads.
    pub value_bytes_max: u64,
    /// Which protocol its client uses.
    pub protocol: Protocol,
}

/// How a process drives connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// One call at a time on a connection, and at most this many connections to a server: threads.
    Pooled(usize),
    /// All calls on one connection to a server: an event loop.
    Shared,
}

/// How bytes travel.
#[derive(Debug, Clone, Copy)]
pub struct NetworkPlan {
    /// The shortest time from end to end.
    pub latency_min: Micros,
    /// The longest.
    pub latency_max: Micros,
    /// This many percent of what is sent is cut in pieces.
    pub cut_percent: u64,
    /// What a peer's socket takes before it is read.
    pub receive_window_bytes: usize,
}

/// One thing that a task does.
#[derive(Debug, Clone)]
pub enum TaskStep {
    /// Makes a call and waits for its end.
    Call(Call),
    /// Waits.
    Sleep(Micros),
    /// Injects a fault after this time; the task itself goes on at once.
    Fault(Micros, InjectedFault),
}

/// One call of a client.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its serial in the plan, of which the write ids in its values are made.
    pub serial: u32,
    /// The operation.
    pub operation: Operation,
    /// How long it may take.
    pub timeout: Micros,
    /// When its caller cancels it, counted from its start; `None`: never.
    pub cancel_after: Option<Micros>,
}

/// When a value expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// Never.
    Never,
    /// After this many seconds.
    Seconds(u32),
    /// At this many seconds after now, as a Unix time.
    Absolute(u32),
}

/// The value of a write: its length, its expiry, and whether the caller waits.
#[derive(Debug, Clone, Copy)]
pub struct ValueWrite {
    /// Length of the value.
    pub value_bytes: u32,
    /// When it expires.
    pub ttl: Ttl,
    /// Nobody waits.
    pub noreply: bool,
}

/// The operation of a call.
#[derive(Debug, Clone)]
pub enum Operation {
    /// One value.
    Get(Key),
    /// One value with its CAS unique.
    Gets(Key),
    /// One value, and a new expiry.
    GetAndTouch(Key, Ttl),
    /// A write whatever is there.
    Set(Key, ValueWrite),
    /// A write where nothing is.
    Add(Key, ValueWrite),
    /// A write where nothing has changed since the task's last [`Operation::Gets`] of the key; without one a [`Operation::Add`].
    Cas(Key, ValueWrite),
    /// A removal.
    Delete {
        /// The key.
        key: Key,
        /// Nobody waits.
        noreply: bool,
    },
    /// A new expiry.
    Touch {
        /// The key.
        key: Key,
        /// The new one.
        ttl: Ttl,
        /// Nobody waits.
        noreply: bool,
    },
    /// An addition to a counter.
    Increment {
        /// The key.
        key: Key,
        /// Which addition it is, below `ADDITIONS_MAX`.
        addition: u8,
        /// A missing counter is created.
        creates_missing: bool,
        /// Nobody waits.
        noreply: bool,
    },
    /// Values of several keys.
    GetMany(Vec<Key>),
    /// Writes of several keys.
    SetMany(Vec<Key>, ValueWrite),
    /// Removals of several keys.
    DeleteMany(Vec<Key>),
    /// Removes all items of one server.
    Flush(usize),
    /// Removes the items of one server whose keys begin with a prefix.
    FlushPrefix(usize, Prefix),
    /// The version of one server.
    Version(usize),
}

/// A prefix of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// The prefix of all keys with values, including those that are sent as base64.
    Values,
    /// The prefix of all keys with counters.
    Counters,
    /// A whole key, which is not the prefix of another one.
    Whole(Key),
}

impl Prefix {
    /// Its bytes.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Values => b"k".to_vec(),
            Self::Counters => b"n".to_vec(),
            Self::Whole(key) => key_bytes_of(key),
        }
    }

    /// Whether a key begins with it.
    pub(crate) fn matches(self, key: Key) -> bool {
        match self {
            Self::Values => !is_counter_key(key),
            Self::Counters => is_counter_key(key),
            Self::Whole(whole) => whole == key,
        }
    }
}

/// What goes wrong: at one server, unless the fault names a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFault {
    /// Its connections break, and both ends learn of it.
    Reset(usize),
    /// Its connections break, and only the clients learn of it.
    ResetToClient(usize),
    /// Its connections break, and only the server learns of it.
    ResetToServer(usize),
    /// It closes its connections in order.
    Close(usize),
    /// It does nothing for a while.
    Pause(usize, Micros),
    /// Nothing gets through to it or from it for a while.
    Unreachable(usize, Micros),
    /// It starts again, empty; its peers learn of it at once or when they send.
    Restart {
        /// The server.
        server: usize,
        /// Its peers learn of it at once.
        is_reported: bool,
    },
    /// It stops cleanly and starts again with its items, if it has a memory file; its peers learn of it at once or when
    /// they send.
    CleanRestart {
        /// The server.
        server: usize,
        /// Its peers learn of it at once.
        is_reported: bool,
    },
    /// It is gone for a while, and starts again empty.
    Down(usize, Micros),
    /// Only this many thousandths of its next reply are sent, then the connection breaks.
    CutReply(usize, u16),
    /// The same, and it starts again, empty.
    KillInReply(usize, u16),
    /// Only this many thousandths of the next bytes sent to it arrive, then the connection breaks.
    CutRequest(usize, u16),
    /// From now on its replies are wrong in this way.
    Misbehave {
        /// The server.
        server: usize,
        /// How a reply is wrong.
        misbehaviour: Misbehaviour,
        /// One reply in this many is wrong.
        one_in: u32,
    },
    /// Its memory is filled.
    Fill(usize),
    /// Its clock jumps ahead by this many seconds.
    ServerClock(usize, u32),
    /// Its wall clock is moved by this many seconds.
    WallClock(usize, i32),
    /// A process stands still for a while: its clock jumps.
    Freeze {
        /// The process.
        process: usize,
        /// How long it stands still.
        duration: Micros,
    },
    /// A process forks and its parent ends: the child goes on with a copy of its clients.
    Fork {
        /// The process that forks.
        process: usize,
    },
}

/// How a reply is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misbehaviour {
    /// It names another key.
    Key,
    /// A length in it is wrong.
    Length,
    /// It has another opaque.
    Opaque,
    /// It is that of the request before.
    RepeatsPrevious,
    /// It comes twice.
    Twice,
    /// It does not come.
    Missing,
    /// It is not a reply at all.
    Garbage,
    /// Refusals without end follow a request, whether or not it has a reply.
    Flood,
}

impl Misbehaviour {
    /// Those that change a reply: all but the flood.
    pub const REPLY_CHANGES: [Misbehaviour; 7] = [
        Misbehaviour::Key,
        Misbehaviour::Length,
        Misbehaviour::Opaque,
        Misbehaviour::RepeatsPrevious,
        Misbehaviour::Twice,
        Misbehaviour::Missing,
        Misbehaviour::Garbage,
    ];
}

impl Plan {
    /// The server of a key.
    pub fn server_of(&self, key: Key) -> usize {
        usize::from(key) % self.servers.len()
    }

    /// Whether a server ever sends wrong replies.
    pub fn misbehaves(&self, server: usize) -> bool {
        let is_misbehaviour = |step: &TaskStep| matches!(step, TaskStep::Fault(_, InjectedFault::Misbehave { server: faulty_server, .. }) if *faulty_server == server);
        self.tasks.iter().flatten().any(is_misbehaviour)
    }

    /// Calls and faults.
    pub fn step_count(&self) -> usize {
        self.tasks.iter().map(Vec::len).sum()
    }
}

/// Whether a key is sent as base64.
pub(crate) fn is_base64(key: Key) -> bool {
    key < VALUE_KEYS && key % BASE64_KEY_INTERVAL == BASE64_KEY_INTERVAL - 1
}

/// Whether a key has a counter.
pub(crate) fn is_counter_key(key: Key) -> bool {
    key >= VALUE_KEYS
}

/// A key as it is sent.
pub(crate) fn key_bytes_of(key: Key) -> Vec<u8> {
    if is_base64(key) {
        // "k" and a space before one digit: three bytes, whose last six bits are the digit's.
        return vec![b'a', b'y', b'A', b"wxyz012345"[usize::from(key % 10)]];
    }
    let letter = if is_counter_key(key) { 'n' } else { 'k' };
    format!("{letter}{key}").into_bytes()
}
