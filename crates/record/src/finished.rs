//! A finished request, as it goes from the application to the writer.

/// A request that takes more memory than this is dropped.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// Bytes that are reserved for the text of a key before its length is known.
const USUAL_KEY_BYTES: usize = 24;

/// The length of the parent's key where the caller knows no parent.
const NO_PARENT: u32 = u32::MAX;

/// A finished request, as the writer takes it.
#[derive(Debug, Default)]
pub(crate) struct FinishedRequest {
    pub(crate) number: u64,
    pub(crate) time_us: u64,
    pub(crate) base_us: u32,
    pub(crate) page: Option<Box<[u8]>>,
    pub(crate) route: Option<Box<str>>,
    pub(crate) reads: Vec<ReadEntry>,
    /// The keys and parents of the reads, one after the other.
    pub(crate) key_text: Vec<u8>,
    /// The keys that are changed in place, each after its length in two bytes.
    pub(crate) changed_text: Vec<u8>,
    pub(crate) writes: u32,
    /// The keys of each call that read.
    pub(crate) keys_of_calls: Vec<u32>,
    /// Microseconds that the request waited for calls, and of these, in which values were decoded.
    pub(crate) wait_us: u32,
    pub(crate) decode_us: u32,
    /// Whether reads were left out.
    pub(crate) is_too_large: bool,
}

/// What the application knows of the parent of a key that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent<'k> {
    /// The parent's key.
    pub key: &'k [u8],
    /// Whether it was named for this read, and not by a rule such as a function of the key. A named parent replaces one
    /// by a rule.
    pub is_named: bool,
}

/// One read: where its key and its parent's key lie in the text, and the bytes of its value, 0 if unknown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadEntry {
    pub(crate) text_offset: u32,
    pub(crate) key_bytes: u32,
    /// [`NO_PARENT`] if the caller knows none.
    pub(crate) parent_bytes: u32,
    pub(crate) is_parent_named: bool,
    pub(crate) value_bytes: u32,
}

impl FinishedRequest {
    /// Appends the reads of one call and returns how many; beyond the bound of a request it marks it as too large instead.
    pub(crate) fn append_reads<'p>(
        &mut self,
        keys: impl Iterator<Item = (impl AsRef<[u8]>, Option<Parent<'p>>)>,
    ) -> usize {
        let first_read = self.reads.len();
        let mut bytes_left = REQUEST_BYTES_MAX.saturating_sub(self.footprint_bytes());
        let expected_count =
            keys.size_hint().0.min(bytes_left / (size_of::<ReadEntry>() + USUAL_KEY_BYTES));
        self.reads.reserve(expected_count);
        self.key_text.reserve(expected_count * USUAL_KEY_BYTES);
        for (key, parent) in keys {
            let (key, parent_key) = (key.as_ref(), parent.map_or(&[][..], |parent| parent.key));
            let Some(remaining_bytes) = bytes_left.checked_sub(key.len() + parent_key.len()) else {
                self.is_too_large = true;
                continue;
            };
            bytes_left = remaining_bytes.saturating_sub(size_of::<ReadEntry>());
            self.reads.push(ReadEntry {
                text_offset: self.key_text.len() as u32,
                key_bytes: key.len() as u32,
                parent_bytes: parent.map_or(NO_PARENT, |parent| parent.key.len() as u32),
                is_parent_named: parent.is_some_and(|parent| parent.is_named),
                value_bytes: 0,
            });
            self.key_text.extend_from_slice(key);
            self.key_text.extend_from_slice(parent_key);
        }
        self.reads.len() - first_read
    }

    /// Notes that a key is changed in place; beyond the bound of a request it marks it as too large instead.
    pub(crate) fn append_changed_key(&mut self, key: &[u8]) {
        let Ok(key_bytes) = u16::try_from(key.len()) else { return };
        if self.footprint_bytes() + key.len() > REQUEST_BYTES_MAX {
            self.is_too_large = true;
            return;
        }
        self.changed_text.extend_from_slice(&key_bytes.to_le_bytes());
        self.changed_text.extend_from_slice(key);
    }

    /// The keys that are changed in place.
    pub(crate) fn changed_keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut remaining = self.changed_text.as_slice();
        std::iter::from_fn(move || {
            let (length, tail) = remaining.split_first_chunk()?;
            let (key, tail) = tail.split_at_checked(u16::from_le_bytes(*length).into())?;
            remaining = tail;
            Some(key)
        })
    }

    /// The key of a read.
    pub(crate) fn key(&self, read: ReadEntry) -> &[u8] {
        let start = read.text_offset as usize;
        &self.key_text[start..start + read.key_bytes as usize]
    }

    /// The parent of the key of a read, if the caller knows one.
    pub(crate) fn parent(&self, read: ReadEntry) -> Option<Parent<'_>> {
        let start = (read.text_offset + read.key_bytes) as usize;
        (read.parent_bytes != NO_PARENT).then(|| Parent {
            key: &self.key_text[start..start + read.parent_bytes as usize],
            is_named: read.is_parent_named,
        })
    }

    /// About how much memory it takes.
    pub(crate) fn footprint_bytes(&self) -> usize {
        size_of::<Self>()
            + self.reads.len() * size_of::<ReadEntry>()
            + self.keys_of_calls.len() * size_of::<u32>()
            + self.key_text.len()
            + self.changed_text.len()
    }
}
