//! The operation column: memcached's words, and those that storage traces use.

use std::fmt;

/// What a request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants are the protocol's words")]
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
    /// Another word of the source.
    Other,
}

/// Every operation beside its word; `Other` has none of its own.
const WORDS: [(Op, &str); 16] = [
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
    /// The operation a word stands for; a word of the source that is not listed is `Other`.
    pub fn parse(word: &[u8]) -> Self {
        WORDS
            .iter()
            .find(|(_, text)| text.as_bytes() == word)
            .map_or(Self::Other, |(op, _)| *op)
    }

    /// The word of the operation, as it stands in a file.
    pub fn word(self) -> &'static str {
        WORDS
            .iter()
            .find(|(op, _)| *op == self)
            .map_or("other", |(_, text)| text)
    }

    /// Whether the request asks for a value, rather than giving one or taking one away.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Gets | Self::Read | Self::Load)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_back() {
        for (op, word) in WORDS {
            assert_eq!(Op::parse(word.as_bytes()), op);
            assert_eq!(op.to_string(), word);
        }
        assert_eq!(Op::parse(b"scan"), Op::Other);
    }
}
