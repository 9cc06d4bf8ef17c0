//! Keys: checked once, where they enter, and converted to their wire form.

use std::borrow::Cow;

pub use glasscache_protocol::KEY_BYTES_MAX;
use glasscache_protocol::base64;
use glasscache_protocol::meta::request::WireKey;
pub use glasscache_strategy::session_keys::is_session_key;

use crate::error::Error;

/// How a key is sent that the text protocol cannot carry (spaces, control characters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyEncoding {
    /// Refuse it with an error message.
    #[default]
    Refuse,
    /// Send it as base64 in meta commands.
    Base64,
}

/// Converts keys to wire keys by a namespace and an encoding.
#[derive(Debug, Clone, Copy)]
pub struct KeyEncoder<'n> {
    /// The prefix of each key.
    pub namespace: &'n [u8],
    /// What is done with keys that are not plain.
    pub encoding: KeyEncoding,
}

/// Whether each byte is allowed in a text command: no space and no control byte.
pub fn is_text_safe(key: &[u8]) -> bool {
    if let Some(last_chunk) = key.last_chunk() {
        let (chunks, _) = key.as_chunks();
        let mut all_chunks = chunks.iter().chain([last_chunk]).copied();
        return all_chunks.all(|chunk| is_text_safe_word(u64::from_le_bytes(chunk)));
    }
    if let (Some(first_chunk), Some(last_chunk)) = (key.first_chunk(), key.last_chunk()) {
        let [first_word, last_word] =
            [*first_chunk, *last_chunk].map(u32::from_le_bytes).map(u64::from);
        return is_text_safe_word(first_word << 32 | last_word);
    }
    key.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// Whether eight bytes are plain ("Bit Twiddling Hacks": a word with a byte less than n, or with a zero byte).
fn is_text_safe_word(word: u64) -> bool {
    const LOW_BIT_OF_EACH_BYTE: u64 = u64::MAX / 255;
    let without_delete_byte = word ^ (LOW_BIT_OF_EACH_BYTE * 0x7f);
    let space_or_control = word.wrapping_sub(LOW_BIT_OF_EACH_BYTE * 0x21) & !word;
    let delete_byte = without_delete_byte.wrapping_sub(LOW_BIT_OF_EACH_BYTE) & !without_delete_byte;
    (space_or_control | delete_byte) & (LOW_BIT_OF_EACH_BYTE * 0x80) == 0
}

impl KeyEncoder<'_> {
    /// The key as it goes on the wire; `scratch` takes it if it is not `key` itself.
    #[inline]
    pub fn wire_key<'a>(
        &self,
        key: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<WireKey<'a>, Error> {
        let length = self.namespace.len() + key.len();
        if key.is_empty() {
            return Err(bad_key(key, "it is empty"));
        }
        if length > KEY_BYTES_MAX {
            return Err(bad_key(key, "it is longer than 250 bytes, namespace included"));
        }
        if is_text_safe(key) {
            if self.namespace.is_empty() {
                return Ok(WireKey { bytes: key, is_base64: false });
            }
            if is_text_safe(self.namespace) {
                scratch.clear();
                scratch.extend_from_slice(self.namespace);
                scratch.extend_from_slice(key);
                return Ok(WireKey { bytes: scratch, is_base64: false });
            }
        }
        if self.encoding == KeyEncoding::Refuse {
            return Err(bad_key(
                key,
                "it has a space or control character (keys=\"base64\" sends it)",
            ));
        }
        scratch.clear();
        base64::encode(&[self.namespace, key].concat(), scratch);
        if scratch.len() > KEY_BYTES_MAX {
            return Err(bad_key(key, "its base64 form is longer than 250 bytes"));
        }
        Ok(WireKey { bytes: scratch, is_base64: true })
    }
}

impl<'n> KeyEncoder<'n> {
    /// The key that a wire key was made of.
    pub fn decode<'k>(&self, wire_key: WireKey<'k>) -> Cow<'k, [u8]> {
        let mut decoded = Vec::new();
        if wire_key.is_base64 && base64::decode(wire_key.bytes, &mut decoded).is_some() {
            let key = decoded.strip_prefix(self.namespace).map(<[u8]>::to_vec);
            return Cow::Owned(key.unwrap_or(decoded));
        }
        let key = wire_key.bytes.strip_prefix(self.namespace);
        Cow::Borrowed(key.unwrap_or(wire_key.bytes))
    }

    /// The namespace as it goes on the wire; `scratch` takes it if it is not plain.
    pub fn wire_namespace<'a>(&self, scratch: &'a mut Vec<u8>) -> Result<WireKey<'a>, Error>
    where
        'n: 'a,
    {
        let is_base64 = !is_text_safe(self.namespace);
        if self.namespace.is_empty() {
            let message = "clear failed: the client has no namespace; give it one, or use flush to remove everything";
            return Err(Error::BadSetting(message.to_owned()));
        }
        if is_base64 {
            scratch.clear();
            base64::encode(self.namespace, scratch);
        }
        let bytes = if is_base64 { scratch } else { self.namespace };
        if bytes.len() > KEY_BYTES_MAX {
            return Err(bad_key(bytes, "its base64 form is longer than 250 bytes"));
        }
        Ok(WireKey { bytes, is_base64 })
    }
}

/// Keys as they go on the wire, one after the other in one buffer.
#[derive(Debug, Default)]
pub struct WireKeys {
    key_bytes: Vec<u8>,
    /// The end of each key in the buffer, and whether it is in base64.
    key_ends: Vec<(usize, bool)>,
    scratch: Vec<u8>,
}

impl WireKeys {
    /// Adds a key without its namespace, made into a wire key by `encoder`.
    pub fn push(&mut self, encoder: KeyEncoder<'_>, key: &[u8]) -> Result<(), Error> {
        let wire_key = encoder.wire_key(key, &mut self.scratch)?;
        self.key_bytes.extend_from_slice(wire_key.bytes);
        self.key_ends.push((self.key_bytes.len(), wire_key.is_base64));
        Ok(())
    }

    /// The key at an index.
    pub fn get(&self, index: usize) -> Option<WireKey<'_>> {
        let &(end, is_base64) = self.key_ends.get(index)?;
        let previous = index.checked_sub(1).and_then(|index| self.key_ends.get(index));
        let begin = previous.map_or(0, |&(previous_end, _)| previous_end);
        let bytes = self.key_bytes.get(begin..end)?;
        Some(WireKey { bytes, is_base64 })
    }

    /// All keys.
    pub fn all(&self) -> Vec<WireKey<'_>> {
        let indices = 0..self.key_ends.len();
        indices.filter_map(|index| self.get(index)).collect()
    }
}

fn bad_key(key: &[u8], reason: &'static str) -> Error {
    const DISPLAYED_BYTES: usize = 60;
    let displayed_key =
        String::from_utf8_lossy(key.get(..DISPLAYED_BYTES).unwrap_or(key)).into_owned();
    Error::BadKey { key: displayed_key, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire_key(
        namespace: &[u8],
        encoding: KeyEncoding,
        key: &[u8],
    ) -> Result<(Vec<u8>, bool), Error> {
        let mut scratch = Vec::new();
        let encoded = KeyEncoder { namespace, encoding }.wire_key(key, &mut scratch)?;
        Ok((encoded.bytes.to_vec(), encoded.is_base64))
    }

    #[test]
    fn a_plain_key_is_sent_unchanged_after_its_namespace() {
        assert_eq!(wire_key(b"", KeyEncoding::Refuse, b"k"), Ok((b"k".to_vec(), false)));
        assert_eq!(wire_key(b"n:", KeyEncoding::Refuse, "ü".as_bytes()), Ok(("n:ü".into(), false)));
    }

    #[test]
    fn a_key_that_is_not_plain_is_refused_or_sent_as_base64() {
        assert!(matches!(wire_key(b"", KeyEncoding::Refuse, b"a b"), Err(Error::BadKey { .. })));
        assert_eq!(wire_key(b"", KeyEncoding::Base64, b"a b"), Ok((b"YSBi".to_vec(), true)));
        let (key_on_wire, is_base64) = wire_key(b"n:", KeyEncoding::Base64, b"a b").unwrap();
        let encoder = KeyEncoder { namespace: b"n:", encoding: KeyEncoding::Base64 };
        let bytes = &key_on_wire;
        assert_eq!(*encoder.decode(WireKey { bytes, is_base64 }), *b"a b");
        assert_eq!(wire_key(b"", KeyEncoding::Base64, b"a b\n"), Ok((b"YSBiCg==".to_vec(), true)));
        assert_eq!(wire_key(b"", KeyEncoding::Base64, b"a b\n1"), Ok((b"YSBiCjE=".to_vec(), true)));
    }

    #[test]
    fn a_namespace_that_is_not_plain_makes_every_key_base64() {
        assert!(wire_key(b"n s:", KeyEncoding::Refuse, b"k").is_err());
        assert_eq!(wire_key(b"n s:", KeyEncoding::Base64, b"k"), Ok((b"biBzOms=".to_vec(), true)));
    }

    #[test]
    fn a_key_that_is_too_long_or_empty_is_refused() {
        assert!(wire_key(b"", KeyEncoding::Refuse, &[b'x'; 250]).is_ok());
        assert!(matches!(
            wire_key(b"", KeyEncoding::Refuse, &[b'x'; 251]),
            Err(Error::BadKey { .. })
        ));
        assert!(matches!(
            wire_key(b"n", KeyEncoding::Refuse, &[b'x'; 250]),
            Err(Error::BadKey { .. })
        ));
        assert!(matches!(
            wire_key(b"", KeyEncoding::Base64, &[b' '; 200]),
            Err(Error::BadKey { .. })
        ));
        assert!(wire_key(b"", KeyEncoding::Refuse, b"").is_err());
    }

    #[test]
    fn every_byte_is_checked_at_every_position() {
        for length in 1..20 {
            for position in 0..length {
                for byte in 0..=255u8 {
                    for filler in [b'!', b'~', 0x80, 0xff] {
                        let mut key = vec![filler; length];
                        key[position] = byte;
                        assert_eq!(is_text_safe(&key), byte > b' ' && byte != 0x7f, "{key:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_namespace_is_encoded_as_its_keys_are_and_a_missing_one_is_refused() {
        let mut scratch = Vec::new();
        let mut encode_namespace = |namespace: &'static [u8]| {
            let encoding = KeyEncoding::Base64;
            let encoder = KeyEncoder { namespace, encoding };
            let wire_key = encoder.wire_namespace(&mut scratch)?;
            Ok::<_, Error>((wire_key.bytes.to_vec(), wire_key.is_base64))
        };
        assert_eq!(encode_namespace(b"shop:"), Ok((b"shop:".to_vec(), false)));
        assert_eq!(encode_namespace(b"a "), Ok((b"YSA=".to_vec(), true)));
        assert!(matches!(encode_namespace(b""), Err(Error::BadSetting(_))));
    }
}
