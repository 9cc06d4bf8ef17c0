//! Where a session stands in its stream, and how a run of it can end.

use glasscache_protocol::command::GetHead;
use glasscache_store::Reservation;

use crate::session::dump::Dump;
use crate::session::execute::store::PendingWrite;
use crate::session::execute::{Cut, Lack};
use crate::session::outcome::Outcome;
use crate::session::output::Mark;
use crate::shared::info::Reason;
use crate::shared::peer_memory::Charge;
use crate::shared::watchers::WatchedKinds;

/// What is kept about an upload beside what its line said and its bytes, in bytes, rounded up: its state here and in
/// the store.
pub(super) const UPLOAD_BYTES_KEPT: usize = 512;

/// One connection's place in its stream.
#[derive(Default)]
pub(crate) struct Session {
    pub(super) state: State,
}

#[derive(Default)]
pub(super) enum State {
    /// At the start of a line.
    #[default]
    Command,
    /// Behind the head of a get.
    Keys(Keys),
    /// So many bytes of a refused value are still to come.
    Swallow(u64),
    /// A large value is being received into the store.
    Upload(Box<Upload>),
    /// Behind a length that cannot be: what follows may be its value, so nothing is executed.
    Lost,
    /// Nothing more is served.
    Closed,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The rest of the input, if any, is the beginning of something.
    Input,
    /// The rest of the input is the beginning of a command of so many bytes.
    Whole(usize),
    /// The next command needs so many bytes of memory that are not to be had: call again when there is room.
    Room(usize),
    /// Send the output, then call again.
    Flush,
    /// The connection has had its share: others first, then call again.
    Yield,
    /// The others' uploads hold all the room there is: call again soon, receive nothing meanwhile.
    Park,
    /// The next command writes, and no segment is free for it yet: call again when other workers have passed, receive
    /// nothing meanwhile.
    Segment,
    /// Send the output and close.
    Close(Reason),
    /// From now on the connection is a log of events.
    Watch(WatchedKinds),
    /// Send a listing of the items, then go on.
    Dump(Dump),
}

/// What one run used and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) used: usize,
    pub(crate) next: Next,
}

/// A get that is being answered.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) head: GetHead,
    /// Key bytes so far, against [`GET_KEY_BYTES_MAX`].
    pub(super) key_bytes: usize,
    /// Where its reply begins in the output; `None` before its first key and once a slice was sent.
    pub(super) reply_from: Option<Mark>,
    /// Whether a key has been looked at.
    pub(super) is_begun: bool,
}

/// A large value on its way into the store.
pub(crate) struct Upload {
    /// What its line said.
    pub(super) write: PendingWrite,
    pub(super) reservation: Reservation,
    /// What is kept about it beside its bytes.
    pub(super) _charge: Charge,
}

impl Next {
    /// How a run ends whose lookups were cut.
    pub(super) fn of_cut(cut: &Cut<'_>) -> Next {
        match cut.lack {
            Lack::Slice => Next::Flush,
            Lack::Memory(bytes) => Next::Room(bytes),
            Lack::Segment => Next::Segment,
        }
    }

    /// What a command means for the run; `None` goes on.
    pub(super) fn after(outcome: Outcome) -> Option<Next> {
        match outcome {
            Outcome::Done => None,
            Outcome::Close(reason) => Some(Next::Close(reason)),
            Outcome::Watch(watching) => Some(Next::Watch(watching)),
            Outcome::Dump(dump) => Some(Next::Dump(dump)),
        }
    }
}
