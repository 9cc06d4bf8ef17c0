//! Requests on their way from the application to the writer's thread: in columns, so that handing a request over copies
//! a few slices, and neither side allocates memory for each key.

use std::mem::size_of;

/// A request that takes more memory than this is dropped.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// What the application knows of the parent of a key that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent<'k> {
    /// The parent's key.
    pub key: &'k [u8],
    /// Whether it was named for this read, and not by a rule such as a function of the key. A named parent replaces one
    /// by a rule.
    pub is_named: bool,
}

/// The numbers of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestNumbers {
    pub(crate) number: u64,
    pub(crate) time_us: u64,
    pub(crate) base_us: u32,
    pub(crate) writes: u32,
    /// Microseconds that the request waited for calls, and of these, in which values were decoded.
    pub(crate) wait_us: u32,
    pub(crate) decode_us: u32,
}

/// One read: the bytes of its key, and of its value, 0 if unknown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadEntry {
    key_bytes: u32,
    pub(crate) value_bytes: u32,
}

/// The parent of a read, where the caller knows it.
#[derive(Debug, Clone, Copy)]
struct ReadParent {
    read_index: u32,
    key_bytes: u32,
    is_named: bool,
}

/// A request while it is recorded.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedRequest {
    pub(crate) numbers: RequestNumbers,
    pub(crate) page: Option<Box<[u8]>>,
    pub(crate) route: Option<Box<str>>,
    pub(crate) reads: Vec<ReadEntry>,
    /// Whether reads were left out.
    pub(crate) is_too_large: bool,
    /// The keys of each call that read.
    keys_of_calls: Vec<u32>,
    parents: Vec<ReadParent>,
    /// The keys of the reads, one after the other.
    key_text: Vec<u8>,
    parent_text: Vec<u8>,
    /// The keys that are changed in place, each after its length in two bytes.
    changed_text: Vec<u8>,
    /// The keys that are stored with a TTL, each after its TTL in four bytes and its length in two.
    ttl_text: Vec<u8>,
}

impl UnfinishedRequest {
    /// Appends the reads of one call and returns how many; beyond the bound of a request it marks it as too large instead.
    pub(crate) fn append_call<'p>(
        &mut self,
        keys: impl Iterator<Item = (impl AsRef<[u8]>, Option<Parent<'p>>)>,
    ) -> usize {
        let first_read = self.reads.len();
        let mut bytes_left = REQUEST_BYTES_MAX.saturating_sub(self.footprint_bytes());
        self.is_too_large |= bytes_left == 0;
        if self.is_too_large {
            return 0;
        }
        self.reads.reserve(keys.size_hint().0.min(bytes_left / size_of::<ReadEntry>()));
        for (key, parent) in keys {
            let key = key.as_ref();
            let parent_bytes =
                parent.map_or(0, |parent| parent.key.len() + size_of::<ReadParent>());
            let read_bytes = size_of::<ReadEntry>() + key.len() + parent_bytes;
            let Some(remaining_bytes) = bytes_left.checked_sub(read_bytes) else {
                self.is_too_large = true;
                break;
            };
            bytes_left = remaining_bytes;
            if let Some(parent) = parent {
                self.parents.push(ReadParent {
                    read_index: self.reads.len() as u32,
                    key_bytes: parent.key.len() as u32,
                    is_named: parent.is_named,
                });
                self.parent_text.extend_from_slice(parent.key);
            }
            self.reads.push(ReadEntry { key_bytes: key.len() as u32, value_bytes: 0 });
            self.key_text.extend_from_slice(key);
        }
        let read_count = self.reads.len() - first_read;
        self.keys_of_calls.push(read_count as u32);
        read_count
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

    /// Notes that a key is stored with a TTL; beyond the bound of a request it marks it as too large instead.
    pub(crate) fn append_ttl(&mut self, key: &[u8], ttl_s: u32) {
        let Ok(key_bytes) = u16::try_from(key.len()) else { return };
        if self.footprint_bytes() + key.len() > REQUEST_BYTES_MAX {
            self.is_too_large = true;
            return;
        }
        self.ttl_text.extend_from_slice(&ttl_s.to_le_bytes());
        self.ttl_text.extend_from_slice(&key_bytes.to_le_bytes());
        self.ttl_text.extend_from_slice(key);
    }

    /// About how much memory it takes until it is written.
    pub(crate) fn footprint_bytes(&self) -> usize {
        size_of::<BatchEntry>()
            + self.reads.len() * size_of::<ReadEntry>()
            + self.keys_of_calls.len() * size_of::<u32>()
            + self.parents.len() * size_of::<ReadParent>()
            + self.key_text.len()
            + self.parent_text.len()
            + self.changed_text.len()
            + self.ttl_text.len()
    }

    /// Empties it for another request, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.numbers = RequestNumbers::default();
        self.page = None;
        self.route = None;
        self.reads.clear();
        self.is_too_large = false;
        self.keys_of_calls.clear();
        self.parents.clear();
        self.key_text.clear();
        self.parent_text.clear();
        self.changed_text.clear();
        self.ttl_text.clear();
    }
}

/// Finished requests, one after the other in each column.
#[derive(Debug, Default)]
pub(crate) struct RequestBatch {
    entries: Vec<BatchEntry>,
    reads: Vec<ReadEntry>,
    keys_of_calls: Vec<u32>,
    parents: Vec<ReadParent>,
    /// Of each request the page, the route, the keys, those of parents, those that are changed in place, and those that are
    /// stored with a TTL.
    text: Vec<u8>,
    footprint_bytes: usize,
}

/// The numbers of a request in a batch, and how much of each column is its own.
#[derive(Debug, Clone, Copy)]
struct BatchEntry {
    numbers: RequestNumbers,
    read_count: u32,
    call_count: u32,
    parent_count: u32,
    /// `None` where none was named.
    page_bytes: Option<u32>,
    route_bytes: Option<u32>,
    key_bytes: u32,
    parent_bytes: u32,
    changed_bytes: u32,
    ttl_bytes: u32,
    footprint_bytes: usize,
}

impl RequestBatch {
    /// Whether it has no requests.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of its requests.
    pub(crate) fn footprint_bytes(&self) -> usize {
        self.footprint_bytes
    }

    /// Appends a finished request.
    pub(crate) fn push(&mut self, record: &UnfinishedRequest) {
        let footprint_bytes = record.footprint_bytes();
        let (page, route) = (record.page.as_deref(), record.route.as_deref().map(str::as_bytes));
        self.entries.push(BatchEntry {
            numbers: record.numbers,
            read_count: record.reads.len() as u32,
            call_count: record.keys_of_calls.len() as u32,
            parent_count: record.parents.len() as u32,
            page_bytes: page.map(|page| page.len() as u32),
            route_bytes: route.map(|route| route.len() as u32),
            key_bytes: record.key_text.len() as u32,
            parent_bytes: record.parent_text.len() as u32,
            changed_bytes: record.changed_text.len() as u32,
            ttl_bytes: record.ttl_text.len() as u32,
            footprint_bytes,
        });
        self.reads.extend_from_slice(&record.reads);
        self.keys_of_calls.extend_from_slice(&record.keys_of_calls);
        self.parents.extend_from_slice(&record.parents);
        for text in [page, route].into_iter().flatten() {
            self.text.extend_from_slice(text);
        }
        self.text.extend_from_slice(&record.key_text);
        self.text.extend_from_slice(&record.parent_text);
        self.text.extend_from_slice(&record.changed_text);
        self.text.extend_from_slice(&record.ttl_text);
        self.footprint_bytes += footprint_bytes;
    }

    /// Hands out the requests in order.
    pub(crate) fn for_each(&self, mut handle: impl FnMut(&FinishedRequest<'_>)) {
        let (mut reads, mut parents) = (self.reads.as_slice(), self.parents.as_slice());
        let (mut keys_of_calls, mut text) = (self.keys_of_calls.as_slice(), self.text.as_slice());
        for entry in &self.entries {
            let mut text_of = |length: u32| split_off_front(&mut text, length);
            handle(&FinishedRequest {
                numbers: entry.numbers,
                footprint_bytes: entry.footprint_bytes,
                page: entry.page_bytes.map(&mut text_of),
                route: entry.route_bytes.map(&mut text_of),
                key_text: text_of(entry.key_bytes),
                parent_text: text_of(entry.parent_bytes),
                changed_text: text_of(entry.changed_bytes),
                ttl_text: text_of(entry.ttl_bytes),
                reads: split_off_front(&mut reads, entry.read_count),
                parents: split_off_front(&mut parents, entry.parent_count),
                keys_of_calls: split_off_front(&mut keys_of_calls, entry.call_count),
            });
        }
    }

    /// Empties it for further requests, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.reads.clear();
        self.keys_of_calls.clear();
        self.parents.clear();
        self.text.clear();
        self.footprint_bytes = 0;
    }
}

fn split_off_front<'b, T>(column: &mut &'b [T], count: u32) -> &'b [T] {
    column.split_off(..count as usize).unwrap_or_default()
}

/// A key after its length.
fn split_off_key<'b>(text: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, tail) = text.split_first_chunk()?;
    let (key, tail) = tail.split_at_checked(u16::from_le_bytes(*length).into())?;
    *text = tail;
    Some(key)
}

/// A finished request, as the writer takes it from a batch.
#[derive(Debug)]
pub(crate) struct FinishedRequest<'b> {
    pub(crate) numbers: RequestNumbers,
    pub(crate) page: Option<&'b [u8]>,
    pub(crate) route: Option<&'b [u8]>,
    pub(crate) keys_of_calls: &'b [u32],
    footprint_bytes: usize,
    reads: &'b [ReadEntry],
    parents: &'b [ReadParent],
    key_text: &'b [u8],
    parent_text: &'b [u8],
    changed_text: &'b [u8],
    ttl_text: &'b [u8],
}

impl<'b> FinishedRequest<'b> {
    /// About how much memory it took until now.
    pub(crate) fn footprint_bytes(&self) -> usize {
        self.footprint_bytes
    }

    /// How many keys it read.
    pub(crate) fn read_count(&self) -> usize {
        self.reads.len()
    }

    /// The key of each read, its parent if the caller knows one, and the bytes of its value, 0 if unknown.
    #[inline]
    pub(crate) fn reads(&self) -> impl Iterator<Item = (&'b [u8], Option<Parent<'b>>, u32)> {
        let (mut key_text, mut parent_text) = (self.key_text, self.parent_text);
        let mut parents = self.parents;
        self.reads.iter().zip(0_u32..).map(move |(read, read_index)| {
            let key = split_off_front(&mut key_text, read.key_bytes);
            let parent = match parents.split_first() {
                Some((parent, later_parents)) if parent.read_index == read_index => {
                    parents = later_parents;
                    let key = split_off_front(&mut parent_text, parent.key_bytes);
                    Some(Parent { key, is_named: parent.is_named })
                }
                _ => None,
            };
            (key, parent, read.value_bytes)
        })
    }

    /// The keys that are changed in place.
    pub(crate) fn changed_keys(&self) -> impl Iterator<Item = &'b [u8]> {
        let mut remaining = self.changed_text;
        std::iter::from_fn(move || split_off_key(&mut remaining))
    }

    /// The keys that are stored with a TTL, and the TTL in seconds.
    pub(crate) fn ttls(&self) -> impl Iterator<Item = (&'b [u8], u32)> {
        let mut remaining = self.ttl_text;
        std::iter::from_fn(move || {
            let (ttl_s, tail) = remaining.split_first_chunk()?;
            remaining = tail;
            Some((split_off_key(&mut remaining)?, u32::from_le_bytes(*ttl_s)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_out_of_a_batch_as_they_were_recorded() {
        let parent = |key: &'static str, is_named| Parent { key: key.as_bytes(), is_named };
        let calls_of_requests = [
            vec![vec![("a", None), ("bc", Some(parent("p", true))), ("", None)], vec![]],
            vec![],
            vec![vec![("d", Some(parent("", false)))], vec![("e", Some(parent("qr", true)))]],
        ];
        let mut batch = RequestBatch::default();
        for _ in 0..2 {
            let mut record = UnfinishedRequest::default();
            for (number, calls) in calls_of_requests.iter().enumerate() {
                record.clear();
                record.numbers.number = number as u64;
                record.page = (number == 1).then(|| b"page".as_slice().into());
                record.route = (number != 1).then(|| "route".into());
                for call in calls {
                    record.append_call(call.iter().copied());
                }
                record.append_changed_key(b"changed");
                record.append_changed_key(b"");
                record.append_ttl(b"stored", 60);
                record.append_ttl(b"", number as u32);
                if let Some(read) = record.reads.last_mut() {
                    read.value_bytes = 7;
                }
                batch.push(&record);
            }
            let mut number = 0;
            batch.for_each(|request| {
                let calls = &calls_of_requests[number];
                assert_eq!(request.numbers.number, number as u64);
                assert_eq!(request.page, (number == 1).then_some(b"page".as_slice()));
                assert_eq!(request.route, (number != 1).then_some(b"route".as_slice()));
                let expected: Vec<_> = calls.iter().flatten().copied().collect();
                let reads: Vec<_> = request.reads().collect();
                let keys_and_parents =
                    reads.iter().map(|(key, parent, _)| (str::from_utf8(key).unwrap(), *parent));
                assert_eq!(keys_and_parents.collect::<Vec<_>>(), expected);
                assert!(reads.is_empty() || reads.last().unwrap().2 == 7);
                let keys_of_calls: Vec<u32> = calls.iter().map(|call| call.len() as u32).collect();
                assert_eq!(request.keys_of_calls, keys_of_calls);
                let changed_keys: Vec<_> = request.changed_keys().collect();
                assert_eq!(changed_keys, [b"changed".as_slice(), b""]);
                let ttls: Vec<_> = request.ttls().collect();
                assert_eq!(ttls, [(b"stored".as_slice(), 60), (b"".as_slice(), number as u32)]);
                number += 1;
            });
            assert_eq!(number, 3);
            batch.clear();
            assert!(batch.is_empty() && batch.footprint_bytes() == 0);
        }
    }

    #[test]
    fn the_reads_of_a_request_are_bounded() {
        let mut record = UnfinishedRequest::default();
        let key = [b'k'; 250];
        let endless_keys = std::iter::repeat((key, Some(Parent { key: &key, is_named: true })));
        let read_count = record.append_call(endless_keys);
        assert!(record.is_too_large && read_count == record.reads.len());
        assert!((REQUEST_BYTES_MAX - 600..=REQUEST_BYTES_MAX).contains(&record.footprint_bytes()));
        assert_eq!(record.append_call([(key, None)].into_iter()), 0);
    }
}
