//! The statuses of responses and the texts that memcached sends with them.

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Success = 0x00,
    /// No item has this key.
    NotFound = 0x01,
    /// The item exists, or its CAS unique is another.
    Exists = 0x02,
    /// The value is larger than the server takes.
    TooLarge = 0x03,
    /// The request does not have the form that its opcode requires.
    InvalidArguments = 0x04,
    /// The condition of an append or prepend did not hold.
    NotStored = 0x05,
    /// The value to increment is not a number.
    NotANumber = 0x06,
    /// Not authenticated, or not allowed.
    AuthFailure = 0x20,
    /// Authentication goes on.
    AuthContinue = 0x21,
    /// The opcode is not known.
    UnknownCommand = 0x81,
    /// No memory for the value.
    OutOfMemory = 0x82,
}

impl Status {
    /// Every status.
    pub const ALL: [Status; 11] = [
        Status::Success,
        Status::NotFound,
        Status::Exists,
        Status::TooLarge,
        Status::InvalidArguments,
        Status::NotStored,
        Status::NotANumber,
        Status::AuthFailure,
        Status::AuthContinue,
        Status::UnknownCommand,
        Status::OutOfMemory,
    ];

    /// The number on the wire.
    #[inline]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The status with this number; `None` if memcached has no such status.
    pub fn from_code(code: u16) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.code() == code)
    }

    /// The text that memcached sends as the value of a response with this status.
    pub const fn text(self) -> &'static [u8] {
        match self {
            Status::Success | Status::AuthContinue => b"",
            Status::NotFound => b"Not found",
            Status::Exists => b"Data exists for key.",
            Status::TooLarge => b"Too large.",
            Status::InvalidArguments => b"Invalid arguments",
            Status::NotStored => b"Not stored.",
            Status::NotANumber => b"Non-numeric server-side value for incr or decr",
            Status::AuthFailure => b"Auth failure.",
            Status::UnknownCommand => b"Unknown command",
            Status::OutOfMemory => b"Out of memory",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_found_by_its_number() {
        for status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), Some(status));
        }
        assert_eq!(Status::from_code(0x07), None);
    }
}
