//! The header of a packet, the same in both directions.

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 24;

/// The first byte of every request; no line of text begins with it.
pub const MAGIC_REQUEST: u8 = 0x80;

/// The first byte of every response.
pub const MAGIC_RESPONSE: u8 = 0x81;

/// A header, its numbers in the order of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// [`MAGIC_REQUEST`] or [`MAGIC_RESPONSE`].
    pub magic: u8,
    /// See [`super::opcode`].
    pub opcode: u8,
    /// Length of the key in bytes.
    pub key_bytes: u16,
    /// Length of the extras in bytes.
    pub extras_bytes: u8,
    /// Always 0 (raw bytes), and ignored.
    pub data_type: u8,
    /// The status of a response; reserved in a request.
    pub status: u16,
    /// Length of extras, key and value together, in bytes.
    pub body_bytes: u32,
    /// Repeated in the responses to a request.
    pub opaque: u32,
    /// A CAS unique; 0 is none.
    pub cas: u64,
}

impl Header {
    /// The header at the front of `input`; `None` while it has not arrived whole.
    #[inline]
    pub fn read(input: &[u8]) -> Option<Header> {
        let (magic_to_status, remaining_bytes) = input.split_first_chunk::<8>()?;
        let (body_bytes_and_opaque, remaining_bytes) = remaining_bytes.split_first_chunk::<8>()?;
        let cas = remaining_bytes.first_chunk::<8>()?;
        let magic_to_status = u64::from_be_bytes(*magic_to_status);
        let body_bytes_and_opaque = u64::from_be_bytes(*body_bytes_and_opaque);
        Some(Header {
            magic: (magic_to_status >> 56) as u8,
            opcode: (magic_to_status >> 48) as u8,
            key_bytes: (magic_to_status >> 32) as u16,
            extras_bytes: (magic_to_status >> 24) as u8,
            data_type: (magic_to_status >> 16) as u8,
            status: magic_to_status as u16,
            body_bytes: (body_bytes_and_opaque >> 32) as u32,
            opaque: body_bytes_and_opaque as u32,
            cas: u64::from_be_bytes(*cas),
        })
    }

    /// The header as it goes on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let magic_to_status = (u64::from(self.magic) << 56)
            | (u64::from(self.opcode) << 48)
            | (u64::from(self.key_bytes) << 32)
            | (u64::from(self.extras_bytes) << 24)
            | (u64::from(self.data_type) << 16)
            | u64::from(self.status);
        let body_bytes_and_opaque = (u64::from(self.body_bytes) << 32) | u64::from(self.opaque);
        let mut bytes = [0; HEADER_BYTES];
        for (target, word) in
            bytes.chunks_exact_mut(8).zip([magic_to_status, body_bytes_and_opaque, self.cas])
        {
            target.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Length of the value in bytes; `None` if extras and key do not fit into the body.
    #[inline]
    pub fn value_bytes(&self) -> Option<u32> {
        let value_offset = u32::from(self.key_bytes) + u32::from(self.extras_bytes);
        self.body_bytes.checked_sub(value_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_offset() {
        let bytes: [u8; HEADER_BYTES] = std::array::from_fn(|index| index as u8 + 1);
        let header = Header::read(&bytes).unwrap();
        let expected = Header {
            magic: 1,
            opcode: 2,
            key_bytes: 0x0304,
            extras_bytes: 5,
            data_type: 6,
            status: 0x0708,
            body_bytes: 0x090a_0b0c,
            opaque: 0x0d0e_0f10,
            cas: 0x1112_1314_1516_1718,
        };
        assert_eq!(header, expected);
        assert_eq!(header.to_bytes(), bytes);
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::read(&bytes[..length]), None);
        }
    }

    #[test]
    fn a_body_shorter_than_extras_and_key_has_no_value() {
        let header = Header {
            key_bytes: u16::MAX,
            extras_bytes: u8::MAX,
            body_bytes: 65_789,
            ..Header::default()
        };
        assert_eq!(header.value_bytes(), None);
        let fitting = Header { body_bytes: 65_790, ..header };
        assert_eq!(fitting.value_bytes(), Some(0));
    }
}
