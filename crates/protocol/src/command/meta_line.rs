//! A parsed meta line: its key and its flags.

use super::meta_flags::MetaFlags;
use crate::base64;
use crate::replies;

/// Key and flags of a meta command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaLine<'b> {
    /// The key as sent: base64 under the flag `b`.
    pub key: &'b [u8],
    /// The flags.
    pub flags: MetaFlags<'b>,
}

impl<'b> MetaLine<'b> {
    /// The item's key: as sent, or decoded into `scratch`.
    ///
    /// # Errors
    /// The reply, when the base64 does not decode; a parsed line always decodes.
    #[inline]
    pub fn item_key<'k>(&self, scratch: &'k mut Vec<u8>) -> Result<&'k [u8], &'static [u8]>
    where
        'b: 'k,
    {
        if !self.flags.has(b'b') {
            return Ok(self.key);
        }
        scratch.clear();
        base64::decode(self.key, scratch).ok_or(replies::BAD_KEY)?;
        Ok(scratch)
    }
}
