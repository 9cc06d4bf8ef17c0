//! A typed value as a whole, for an application in Rust.

use super::DEPTH_MAX;
use super::token::{Token, Tokens};

/// A typed value with its items; borrows text and bytes from what it was parsed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed<'b> {
    /// Its type, and its value unless it is a container.
    pub token: Token<'b>,
    /// As many as [`Token::item_count`] returns: those of a dict are key, value, key, value; of a record name and value.
    pub items: Vec<Typed<'b>>,
}

/// Most items that memory is reserved for before they are read: a count alone reserves none.
const RESERVED_ITEMS_MAX: usize = 64;

impl<'b> Typed<'b> {
    /// A value without items.
    pub fn of(token: Token<'b>) -> Self {
        Self { token, items: Vec::new() }
    }

    /// The value of these bytes, as [`Decoded::Typed`](crate::value::Decoded::Typed) has them; `None` when they are
    /// malformed, or when it would take more than `bytes_max` unpacked.
    pub fn parse(bytes: &'b [u8], bytes_max: usize) -> Option<Self> {
        let mut tokens = Tokens::new(bytes, bytes_max);
        let typed = read_value(&mut tokens, 0)?;
        tokens.is_at_end().then_some(typed)
    }

    /// The bytes, as [`ValueRef::Typed`](crate::value::ValueRef::Typed) takes them. The items must be as many as the
    /// token requires, and no deeper than [`DEPTH_MAX`]: the codec refuses bytes that are not.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.token.write(out);
        self.items.iter().for_each(|item| item.write(out));
    }
}

fn read_value<'b>(tokens: &mut Tokens<'b>, depth: usize) -> Option<Typed<'b>> {
    let token = tokens.read()?;
    let item_count = token.item_count();
    if item_count > 0 && depth >= DEPTH_MAX {
        return None;
    }
    let mut items = Vec::with_capacity(item_count.min(RESERVED_ITEMS_MAX));
    for index in 0..item_count {
        items.push(if token.is_name_at(index) {
            Typed::of(Token::Str(tokens.read_name()?))
        } else {
            read_value(tokens, depth + 1)?
        });
    }
    Some(Typed { token, items })
}
