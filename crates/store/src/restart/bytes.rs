//! The encoding of numbers as bytes, least significant first, with a checksum at the end.

use rapidhash::v3::rapidhash_v3;

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 8;

/// The checksum of some bytes. It finds damage, not intent.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    rapidhash_v3(bytes)
}

/// Appends the checksum of some bytes to them.
#[cfg(any(test, feature = "strict"))]
pub(super) fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes(bytes);
    writer.finish()
}

/// Writes numbers as bytes.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn bytes(&mut self, source: &[u8]) {
        self.0.extend_from_slice(source);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// Writes a list, after its length.
    pub(super) fn list<T>(&mut self, list: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.u64(list.len() as u64);
        for element in list {
            write(self, element);
        }
    }

    /// All bytes written, with their checksum.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.u64(checksum(&self.0));
        self.0
    }
}

/// Reads numbers from bytes; each method returns `None` at the end.
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// The bytes before their checksum, if that is right.
    pub(super) fn new(bytes: &'b [u8]) -> Option<Self> {
        let (body, end) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        (end == checksum(body).to_le_bytes()).then_some(Reader(body))
    }

    pub(super) fn skip(&mut self, byte_count: usize) -> Option<()> {
        self.0 = self.0.get(byte_count..)?;
        Some(())
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let (number, remaining_bytes) = self.0.split_first_chunk()?;
        self.0 = remaining_bytes;
        Some(u32::from_le_bytes(*number))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let (number, remaining_bytes) = self.0.split_first_chunk()?;
        self.0 = remaining_bytes;
        Some(u64::from_le_bytes(*number))
    }

    /// Reads a list, after its length. Each element takes at least one byte, so the length is bounded by the input.
    pub(super) fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.u64()?;
        let mut list = Vec::new();
        for _ in 0..length {
            list.push(read(self)?);
        }
        Some(list)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}
