//! A dump for a client of the binary protocol: each slice of its text is the value of one packet.

use glasscache_protocol::binary::{self, OpcodeAndOpaque};

use super::Dump;
use crate::session::context::Context;
use crate::session::output::Output;

/// The name that memcached gives the dump of prefixes. A dump of several slices has several rows of this
/// name, whose values are its text when joined.
const ROW_NAME: &[u8] = b"detailed";

/// A dump and the request that it belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FramedDump {
    request: OpcodeAndOpaque,
    dump: Box<Dump>,
}

impl FramedDump {
    pub(crate) fn new(request: OpcodeAndOpaque, dump: Dump) -> FramedDump {
        FramedDump { request, dump: Box::new(dump) }
    }

    /// Appends a slice as a packet; true when the reply is complete.
    pub(super) fn append_slice(&mut self, context: &Context<'_>, out: &mut Output<'_>) -> bool {
        let mut slice = Output::from_rendered(Vec::new());
        let is_done = self.dump.append_slice(context, &mut slice);
        let has_rows = matches!(*self.dump, Dump::Prefixes { .. }) && !slice.bytes.is_empty();
        if has_rows {
            binary::write_stat(&mut out.bytes, self.request, ROW_NAME, &slice.bytes);
        }
        if is_done {
            binary::write_stat(&mut out.bytes, self.request, b"", b"");
        }
        is_done
    }

    /// Bytes of memory that the next slice may take: its text and the packet made of it.
    pub(super) fn needed_bytes(&self, context: &Context<'_>) -> usize {
        2 * self.dump.needed_bytes(context)
    }
}
