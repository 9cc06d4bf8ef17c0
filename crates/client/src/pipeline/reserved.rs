//! How the body of a reservation is known: what this client's pipeline reads as a miss.

/// The mark before the token: no other value has it there by chance.
pub(crate) const RESERVATION_MARK: &[u8; 16] = b"\0reserved\x9c\xe1\x5b\x07\xd4\x3a\x86";

/// Length of a token.
pub const TOKEN_BYTES: usize = 16;

/// Longest form of a None.
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
    const LENGTH_MIN: usize = RESERVATION_MARK.len() + TOKEN_BYTES;
    (LENGTH_MIN..=LENGTH_MIN + NONE_BYTES_MAX).contains(&value_bytes)
}
