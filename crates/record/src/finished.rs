//! A finished request, as it goes from the application to the writer.

/// A request that takes more memory than this is dropped.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// A finished request, as the writer takes it.
#[derive(Debug, Default)]
pub(crate) struct FinishedRequest {
    pub(crate) number: u64,
    pub(crate) time_us: u64,
    pub(crate) base_us: u32,
    pub(crate) page: Option<Box<[u8]>>,
    pub(crate) route: Option<Box<str>>,
    pub(crate) items: Vec<Item>,
    /// The keys and parents of the items, one after the other.
    pub(crate) key_text: Vec<u8>,
    pub(crate) writes: u32,
    /// Whether reads were left out.
    pub(crate) is_too_large: bool,
}

/// One read: where its key and its parent's key lie in the text, and the bytes of its value, 0 if unknown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) text_offset: u32,
    pub(crate) key_bytes: u32,
    /// `u32::MAX` if the caller named none.
    pub(crate) parent_bytes: u32,
    pub(crate) value_bytes: u32,
}

impl FinishedRequest {
    /// Appends a read; beyond the bound of a request it marks it as too large instead.
    pub(crate) fn append_read(&mut self, key: &[u8], parent: Option<&[u8]>) {
        let parent_key = parent.unwrap_or_default();
        if self.footprint_bytes() + key.len() + parent_key.len() > REQUEST_BYTES_MAX {
            self.is_too_large = true;
            return;
        }
        self.items.push(Item {
            text_offset: self.key_text.len() as u32,
            key_bytes: key.len() as u32,
            parent_bytes: parent.map_or(u32::MAX, |parent| parent.len() as u32),
            value_bytes: 0,
        });
        self.key_text.extend_from_slice(key);
        self.key_text.extend_from_slice(parent_key);
    }

    /// An item's key.
    pub(crate) fn key(&self, item: Item) -> &[u8] {
        let start = item.text_offset as usize;
        &self.key_text[start..start + item.key_bytes as usize]
    }

    /// The key of an item's parent, if the caller named one.
    pub(crate) fn parent(&self, item: Item) -> Option<&[u8]> {
        let start = (item.text_offset + item.key_bytes) as usize;
        (item.parent_bytes != u32::MAX)
            .then(|| &self.key_text[start..start + item.parent_bytes as usize])
    }

    /// About how much memory it takes.
    pub(crate) fn footprint_bytes(&self) -> usize {
        size_of::<Self>() + self.items.len() * size_of::<Item>() + self.key_text.len()
    }
}
