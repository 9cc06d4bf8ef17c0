//! Parts of a request that the text and meta protocols share: the head of a store, and numbers.

/// A storage command, as named on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreMode {
    /// Store unconditionally.
    Set,
    /// Store only if there is no item.
    Add,
    /// Store only if there is an item.
    Replace,
    /// Append to the value.
    Append,
    /// Prepend to the value.
    Prepend,
    /// Store only if the item still has this CAS unique.
    Cas(u64),
}

impl StoreMode {
    pub(crate) fn verb(self) -> &'static [u8] {
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

/// The parameters of a storage command, without verb and key.
#[derive(Debug, Clone, Copy)]
pub struct TextStoreParameters {
    /// Client flags.
    pub flags: u32,
    /// The exptime as sent.
    pub exptime: i64,
    /// Length of the value in bytes.
    pub value_bytes: usize,
    /// Whether to send `noreply`.
    pub noreply: bool,
}

/// Appends a decimal number.
pub fn write_decimal(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
