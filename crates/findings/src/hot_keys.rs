//! How often each key was requested, in bounded memory: the hottest keys of a stream.

use std::collections::HashMap;

use crate::HotKey;

/// Keys that are counted; of a stream with more, the first ones. A hot key comes early.
const KEYS_MAX: usize = 100_000;

/// Keys that are returned.
const HOTTEST: usize = 10;

/// Counts the requests for each key.
#[derive(Debug, Clone, Default)]
pub struct KeyCounts {
    requests_by_key: HashMap<Vec<u8>, u64>,
    requests: u64,
}

impl KeyCounts {
    /// Counts a request for `key`.
    pub fn push(&mut self, key: &[u8]) {
        self.requests += 1;
        if let Some(requests) = self.requests_by_key.get_mut(key) {
            *requests += 1;
        } else if self.requests_by_key.len() < KEYS_MAX {
            self.requests_by_key.insert(key.to_vec(), 1);
        }
    }

    /// The hottest keys, at most ten, the hottest first.
    pub fn hottest(&self) -> Vec<HotKey> {
        let mut keys: Vec<(&Vec<u8>, &u64)> = self.requests_by_key.iter().collect();
        keys.sort_unstable_by(|first, second| second.1.cmp(first.1).then(first.0.cmp(second.0)));
        let to_hot_key = |(key, &requests): (&Vec<u8>, &u64)| HotKey {
            key: key.escape_ascii().to_string(),
            requests,
            share: requests as f64 / self.requests as f64,
        };
        keys.into_iter().take(HOTTEST).map(to_hot_key).collect()
    }
}

/// Reads the rows of `stats hotkeys` of a glasscache, the hottest key first.
pub fn read_hot_keys<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str)>) -> Vec<HotKey> {
    let rows: HashMap<&str, &str> = rows.into_iter().collect();
    let to_hot_key = |index: usize| {
        let field = |name: &str| rows.get(format!("{index}:{name}").as_str()).copied();
        Some(HotKey {
            key: field("key")?.to_owned(),
            requests: field("requests")?.parse().ok()?,
            share: field("share")?.parse().ok()?,
        })
    };
    (0..HOTTEST).map_while(to_hot_key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_server_are_read_as_far_as_they_are_complete() {
        let rows = [
            ("0:key", "a"),
            ("0:requests", "7"),
            ("0:share", "0.5"),
            ("1:key", "b"),
            ("1:share", "0.1"),
        ];
        let expected = HotKey { key: "a".into(), requests: 7, share: 0.5 };
        assert_eq!(read_hot_keys(rows), [expected]);
    }

    #[test]
    fn the_hottest_is_first_and_memory_is_bounded() {
        let mut counts = KeyCounts::default();
        for index in 0..KEYS_MAX + 10 {
            counts.push(b"hot \xff");
            counts.push(index.to_string().as_bytes());
        }
        let hottest = counts.hottest();
        assert_eq!((hottest.len(), hottest[0].key.as_str()), (10, "hot \\xff"));
        assert!((hottest[0].share - 0.5).abs() < 1e-9);
        assert_eq!(counts.requests_by_key.len(), KEYS_MAX);
    }
}
