//! The operation column: memcached's commands and the operations of storage traces.

use std::fmt;

/// What a request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants are the protocol's commands")]
pub enum Op {
    Get,
    Gets,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Delete,
    Incr,
    Decr,
    Touch,
    Read,
    Write,
    Load,
    Store,
    /// Any other operation of the source.
    Other,
}

/// What a row does to the cache that is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A lookup that hits or misses; a miss stores the object. Also the reads and writes of storage traces, and rows
    /// without an operation.
    Request,
    /// A client stores the object: neither a hit nor a miss.
    Set,
    /// A client deletes the object.
    Delete,
    /// Changes that leave the object where it is, and operations of unknown meaning: left out.
    None,
}

/// Every operation with its name; `Other` has no name of its own.
const OP_NAMES: [(Op, &str); 16] = [
    (Op::Get, "get"),
    (Op::Gets, "gets"),
    (Op::Set, "set"),
    (Op::Add, "add"),
    (Op::Replace, "replace"),
    (Op::Append, "append"),
    (Op::Prepend, "prepend"),
    (Op::Cas, "cas"),
    (Op::Delete, "delete"),
    (Op::Incr, "incr"),
    (Op::Decr, "decr"),
    (Op::Touch, "touch"),
    (Op::Read, "read"),
    (Op::Write, "write"),
    (Op::Load, "load"),
    (Op::Store, "store"),
];

impl Op {
    /// The operation with this name, in any case; unknown names are `Other`.
    pub fn parse(name: &[u8]) -> Self {
        OP_NAMES
            .iter()
            .find(|(_, op_name)| op_name.as_bytes().eq_ignore_ascii_case(name))
            .map_or(Self::Other, |(op, _)| *op)
    }

    /// The name of the operation in a file.
    pub fn name(self) -> &'static str {
        OP_NAMES.iter().find(|(op, _)| *op == self).map_or("other", |(_, op_name)| op_name)
    }

    /// What the request does to a cache.
    pub fn effect(self) -> Effect {
        match self {
            Self::Get | Self::Gets | Self::Read | Self::Load | Self::Write | Self::Store => {
                Effect::Request
            }
            Self::Set | Self::Add | Self::Replace | Self::Cas => Effect::Set,
            Self::Delete => Effect::Delete,
            Self::Append | Self::Prepend | Self::Incr | Self::Decr | Self::Touch | Self::Other => {
                Effect::None
            }
        }
    }

    /// Whether the request reads a value.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Gets | Self::Read | Self::Load)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_each_name_that_it_writes() {
        for (op, name) in OP_NAMES {
            assert_eq!(Op::parse(name.as_bytes()), op);
            assert_eq!(op.to_string(), name);
        }
        assert_eq!(Op::parse(b"scan"), Op::Other);
    }
}
