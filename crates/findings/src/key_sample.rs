//! A sample of a server's keys, from the lines of `lru_crawler metadump`: sizes, TTLs, and whether they were read.

/// Most keys of a sample.
pub const SAMPLE_KEYS_MAX: usize = 10_000;

/// What a sample has of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampledItem {
    /// Unix time at which it expires, in seconds; `None` without a TTL.
    pub(crate) expires_unix_s: Option<u64>,
    /// Key, value and header, in bytes.
    pub(crate) bytes: u64,
    pub(crate) was_read: bool,
}

/// The first keys of a dump, at most [`SAMPLE_KEYS_MAX`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySample {
    pub(crate) items: Vec<SampledItem>,
}

impl KeySample {
    /// Adds the fields of a line, `key=... exp=... fetch=... size=...`; false when the sample has all the keys that it takes.
    pub fn push_line(&mut self, fields: &str) -> bool {
        let mut item = SampledItem { expires_unix_s: None, bytes: 0, was_read: false };
        for (name, value) in fields.split_whitespace().filter_map(|field| field.split_once('=')) {
            match name {
                "exp" => item.expires_unix_s = value.parse().ok().filter(|&time: &u64| time > 0),
                "size" => item.bytes = value.parse().unwrap_or(0),
                "fetch" => item.was_read = value == "yes",
                _ => {}
            }
        }
        self.items.push(item);
        self.items.len() < SAMPLE_KEYS_MAX
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The share of the items for which `condition` holds, 0 to 1; `None` of fewer than `items_min`.
    pub(crate) fn share_of(
        &self,
        items_min: usize,
        condition: impl Fn(&SampledItem) -> bool,
    ) -> Option<f64> {
        let matching = self.items.iter().filter(|item| condition(item)).count();
        (self.len() >= items_min.max(1)).then(|| matching as f64 / self.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_servers_are_read() {
        let mut sample = KeySample::default();
        assert!(sample.push_line("a exp=-1 la=1760000000 cas=3 fetch=no cls=1 size=64"));
        assert!(
            sample.push_line(
                "key=b exp=1760000100 la=1760000000 cas=4 fetch=yes cls=1 size=70 flags=0"
            )
        );
        let expected = [
            SampledItem { expires_unix_s: None, bytes: 64, was_read: false },
            SampledItem { expires_unix_s: Some(1_760_000_100), bytes: 70, was_read: true },
        ];
        assert_eq!(sample.items, expected);
    }

    #[test]
    fn a_sample_ends_and_a_line_of_anything_adds_an_item_at_most() {
        let mut sample = KeySample::default();
        let taken = (0..SAMPLE_KEYS_MAX).filter(|_| sample.push_line("=\u{0} exp= size=x")).count();
        assert_eq!((taken, sample.len()), (SAMPLE_KEYS_MAX - 1, SAMPLE_KEYS_MAX));
    }
}
