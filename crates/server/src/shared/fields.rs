//! Fields of the messages between a server and its successor: numbers least significant byte first, bytes after their
//! length.

use std::net::SocketAddr;

/// Writes fields.
#[derive(Debug, Default)]
pub(crate) struct FieldWriter(pub(crate) Vec<u8>);

impl FieldWriter {
    pub(crate) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(crate) fn bool(&mut self, is_true: bool) {
        self.u8(u8::from(is_true));
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, number: i64) {
        self.u64(number.cast_unsigned());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    /// Writes an address, or that there is none.
    pub(crate) fn address(&mut self, address: Option<SocketAddr>) {
        let text = address.map_or_else(String::new, |address| address.to_string());
        self.bytes(text.as_bytes());
    }
}

/// Reads fields; each method returns `None` at the end, or if the field is malformed.
#[derive(Debug)]
pub(crate) struct FieldReader<'b>(pub(crate) &'b [u8]);

impl<'b> FieldReader<'b> {
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (number, remaining_bytes) = self.0.split_first()?;
        self.0 = remaining_bytes;
        Some(*number)
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (number, remaining_bytes) = self.0.split_first_chunk()?;
        self.0 = remaining_bytes;
        Some(u32::from_le_bytes(*number))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (number, remaining_bytes) = self.0.split_first_chunk()?;
        self.0 = remaining_bytes;
        Some(u64::from_le_bytes(*number))
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.u64().map(u64::cast_signed)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = self.u32()? as usize;
        let (bytes, remaining_bytes) = self.0.split_at_checked(length)?;
        self.0 = remaining_bytes;
        Some(bytes)
    }

    /// Reads what [`FieldWriter::address`] wrote: a list of one address, or of none.
    pub(crate) fn addresses(&mut self) -> Option<Vec<SocketAddr>> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        let addresses = text.split_terminator(' ').map(|text| text.parse().ok());
        addresses.collect()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_fields_read_the_same_and_end_where_they_are_cut() {
        let address: SocketAddr = "[::1]:11211".parse().unwrap();
        let mut writer = FieldWriter::default();
        writer.u8(7);
        writer.bool(true);
        writer.u32(u32::MAX);
        writer.i64(-2);
        writer.bytes(b"bytes");
        writer.address(Some(address));
        writer.address(None);
        let read = |bytes: &[u8]| {
            let mut reader = FieldReader(bytes);
            let fields = (
                reader.u8()?,
                reader.bool()?,
                reader.u32()?,
                reader.i64()?,
                reader.bytes()?.to_vec(),
                reader.addresses()?,
                reader.addresses()?,
            );
            reader.is_at_end().then_some(fields)
        };
        let expected = (7, true, u32::MAX, -2, b"bytes".to_vec(), vec![address], vec![]);
        assert_eq!(read(&writer.0), Some(expected));
        for end in 0..writer.0.len() {
            assert_eq!(read(&writer.0[..end]), None);
        }
    }
}
