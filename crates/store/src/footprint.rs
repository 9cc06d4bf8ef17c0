//! The cost of an item, for planning memory without a store: arithmetic over the layout in `item` and `index`.

use crate::item::{HEADER_BYTES_MAX, Header, padded_bytes};
use crate::request::{Expiry, Seconds};

/// Mean bytes of the index per item: 12.4 to 14.6 at every count (see `index`).
pub const INDEX_BYTES_MEAN: f64 = 13.5;

/// Bytes of an item's record in a segment, including header and padding, without the index.
///
/// For an item without client flags and expiry, whose unique is the one its address gives; flags add up to 4
/// bytes, an expiry 2. Not for values larger than a segment, whose pieces add about one part in a thousand.
pub fn record_bytes(key_bytes: usize, value_bytes: u32) -> usize {
    let header = Header {
        key_bytes,
        value_bytes,
        is_chained: false,
        flags: 0,
        expiry: Expiry::Never,
        unique: None,
    };
    let header_bytes = header.write(Seconds(0), &mut [0; HEADER_BYTES_MAX]);
    padded_bytes(header_bytes + key_bytes + value_bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::record_bytes;

    #[test]
    fn header_grows_with_the_length_of_the_value_and_records_are_even() {
        assert_eq!(record_bytes(10, 20), 36);
        assert_eq!(record_bytes(10, 256), 6 + 10 + 256);
        assert_eq!(record_bytes(11, 70_000), 8 + 11 + 70_000 + 1);
    }
}
