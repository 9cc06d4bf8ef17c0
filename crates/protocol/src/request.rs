//! What requests of both dialects have in common: the head of a store, and numbers.

/// Which store command: the word on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreWord {
    /// Store in any case.
    Set,
    /// Store only if there is no item.
    Add,
    /// Store only if there is one.
    Replace,
    /// Put the bytes behind those that are there.
    Append,
    /// Put the bytes before those that are there.
    Prepend,
    /// Store only if the item's CAS unique is still this one.
    Cas(u64),
}

impl StoreWord {
    pub(crate) fn word(self) -> &'static [u8] {
        match self {
            Self::Set => b"set ",
            Self::Add => b"add ",
            Self::Replace => b"replace ",
            Self::Append => b"append ",
            Self::Prepend => b"prepend ",
            Self::Cas(_) => b"cas ",
        }
    }
}

/// What the head of a store says beside verb and key.
#[derive(Debug, Clone, Copy)]
pub struct StoreHead {
    /// Client flags.
    pub flags: u32,
    /// The exptime as it goes on the wire.
    pub exptime: i64,
    /// Length of the value in bytes.
    pub value_bytes: usize,
    /// Whether the server is asked to be silent.
    pub noreply: bool,
}

/// Appends a decimal number.
pub fn number(out: &mut Vec<u8>, n: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
}
