//! Where a session stands in its stream, and how a turn of it can end.

use glasscache_protocol::command::GetHead;
use glasscache_store::Reservation;

use crate::execute::{self, Outcome};
use crate::hub::Watching;
use crate::info::Reason;
use crate::memory::Charge;
use crate::output::Mark;

/// Values from this size on are received into the store's memory; smaller ones are gathered whole
/// in the connection's buffer first, since an unfinished reservation holds its segment open.
pub(crate) const UPLOAD_BYTES_MIN: u32 = 64 << 10;

/// What is kept about an upload beside its line and its bytes, in bytes, rounded up: its state here and in the store.
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

/// How a turn ended.
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
    Watch(Watching),
    /// Send a listing of the items, then go on.
    Dump(execute::dump::Dump),
}

/// What one turn used and how it ended.
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
    /// The command line, kept for its reply.
    pub(super) line: Box<[u8]>,
    pub(super) reservation: Reservation,
    /// What is kept about it beside its bytes.
    pub(super) _charge: Charge,
}

impl Next {
    /// What a command means for the turn; `None` goes on.
    pub(super) fn after(outcome: Outcome) -> Option<Next> {
        match outcome {
            Outcome::Done => None,
            Outcome::Close(reason) => Some(Next::Close(reason)),
            Outcome::Watch(watching) => Some(Next::Watch(watching)),
            Outcome::Dump(dump) => Some(Next::Dump(dump)),
        }
    }
}
