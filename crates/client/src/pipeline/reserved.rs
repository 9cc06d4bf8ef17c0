//! The body of a reservation, an item that holds a key while one client computes its value; the pipeline reads it as a
//! miss.

/// The mark before the token: no other value has it there by chance.
pub(crate) const RESERVATION_MARK: &[u8; 16] = b"\0reserved\x9c\xe1\x5b\x07\xd4\x3a\x86";

/// Length of the token that ends a reservation, in bytes.
pub const TOKEN_BYTES: usize = 16;

/// Longest encoded `None`, which may precede the mark, in bytes.
pub(crate) const NONE_BYTES_MAX: usize = 8;

/// The token of a body that is a reservation.
pub(crate) fn token_of(body: &[u8]) -> Option<&[u8]> {
    if !may_be_reservation(body.len()) {
        return None;
    }
    let (head, token) = body.split_at_checked(body.len() - TOKEN_BYTES)?;
    head.ends_with(RESERVATION_MARK).then_some(token)
}

/// Whether a value of this length may be a reservation.
#[inline]
pub(crate) fn may_be_reservation(value_bytes: usize) -> bool {
    const RESERVATION_BYTES_MIN: usize = RESERVATION_MARK.len() + TOKEN_BYTES;
    (RESERVATION_BYTES_MIN..=RESERVATION_BYTES_MIN + NONE_BYTES_MAX).contains(&value_bytes)
}
