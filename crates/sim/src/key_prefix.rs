//! The prefix of a key, by which the tables of all commands group keys.

use std::collections::HashMap;

use glasscache_strategy::key_prefixes::after_django_version;

/// The delimiters of commands that take none.
pub const DELIMITERS: &[u8] = b":/";

/// The row of a table for keys that have no prefix.
pub const NO_PREFIX: &str = "(no prefix)";

/// The key up to its first delimiter, with it; `None` for a key without one.
pub fn key_prefix<'k>(key: &'k [u8], delimiters: &[u8]) -> Option<&'k [u8]> {
    let end = key.iter().position(|byte| delimiters.contains(byte))?;
    key.get(..=end)
}

/// The same of a key that is text.
pub fn text_key_prefix<'k>(key: &'k str, delimiters: &[u8]) -> Option<&'k str> {
    let prefix = key_prefix(key.as_bytes(), delimiters)?;
    key.get(..prefix.len())
}

/// How the keys of a log are grouped by prefix: after the `KEY_PREFIX:VERSION:` that all of a Django cache's keys begin with.
#[derive(Debug, Clone, Copy)]
pub struct PrefixGroups<'k> {
    common: &'k str,
}

impl<'k> PrefixGroups<'k> {
    /// Those of these keys: what a key begins with is part of each prefix if nine tenths of the keys have it.
    pub fn of_keys(keys: impl Iterator<Item = &'k str>) -> Self {
        let (mut key_count, mut count_by_beginning) = (0_usize, HashMap::new());
        for key in keys {
            key_count += 1;
            if let Some(rest) = after_django_version(key.as_bytes()) {
                let beginning = key.get(..key.len() - rest.len()).unwrap_or_default();
                *count_by_beginning.entry(beginning).or_insert(0_usize) += 1;
            }
        }
        let is_common = |&(_, &count): &(&&str, &usize)| count * 10 >= key_count * 9;
        let common =
            count_by_beginning.iter().find(is_common).map_or("", |(beginning, _)| *beginning);
        Self { common }
    }

    /// The prefix of a key up to the first delimiter of commands that take none; `None` if it has no prefix.
    pub fn prefix_of(&self, key: &'k str) -> Option<&'k str> {
        let rest = key.strip_prefix(self.common).filter(|_| !self.common.is_empty());
        let Some(rest) = rest else { return text_key_prefix(key, DELIMITERS) };
        let prefix = text_key_prefix(rest, DELIMITERS).unwrap_or_default();
        key.get(..self.common.len() + prefix.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_keys_of_a_django_cache_begin_with_does_not_group_them() {
        let keys =
            ["shop:1:card:5", "shop:1:card:6", "shop:1:card:7", "shop:1:user:5", "shop:1:nav"];
        let keys = [keys, keys].concat();
        let groups = PrefixGroups::of_keys(keys.iter().copied());
        let prefixes = ["shop:1:card:5", "shop:1:nav", "card:5"].map(|key| groups.prefix_of(key));
        assert_eq!(prefixes, [Some("shop:1:card:"), Some("shop:1:"), Some("card:")]);
        // Numbers that differ are no version.
        let users = ["user:1:name", "user:2:name", "user:2:mail"];
        let groups = PrefixGroups::of_keys(users.iter().copied());
        assert_eq!(groups.prefix_of("user:2:mail"), Some("user:"));
        assert_eq!(PrefixGroups::of_keys(std::iter::empty()).prefix_of("a"), None);
    }

    #[test]
    fn a_prefix_ends_at_the_first_delimiter() {
        let prefix_of = |key| text_key_prefix(key, DELIMITERS);
        assert_eq!(prefix_of("user:17/name"), Some("user:"));
        assert_eq!(prefix_of("topics/7:x"), Some("topics/"));
        assert_eq!(prefix_of("\u{e9}t\u{e9}:1"), Some("\u{e9}t\u{e9}:"));
        assert_eq!(prefix_of(":"), Some(":"));
        assert_eq!(prefix_of("navigation"), None);
        assert_eq!(key_prefix(b"\xff-1", b"-"), Some(&b"\xff-"[..]));
    }
}
