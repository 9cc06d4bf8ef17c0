//! The output of a connection: bytes to be sent, and how many of them were sent.

/// Room that an idle connection keeps for requests.
const RETAINED_CAPACITY_MAX: usize = 1 << 20;

/// The bytes of requests, of which the last may have a body that is sent from its own buffer.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    /// What follows a body: a line end, in binary nothing.
    pub(super) body_end: &'static [u8],
    /// Length of that body and what follows it.
    external_body_bytes: usize,
    /// Bytes of both that are sent.
    pub(super) current_sent_bytes: usize,
    /// Bytes that were sent before these.
    earlier_sent_bytes: u64,
}

impl Output {
    /// No output yet.
    pub(super) fn new(body_end: &'static [u8]) -> Self {
        Self {
            bytes: Vec::new(),
            body_end,
            external_body_bytes: 0,
            current_sent_bytes: 0,
            earlier_sent_bytes: 0,
        }
    }

    /// Prepares for more requests: output that is all sent is dropped.
    pub(super) fn discard_sent(&mut self) {
        if self.current_sent_bytes == 0 || !self.is_all_sent() {
            return;
        }
        self.earlier_sent_bytes += self.current_sent_bytes as u64;
        self.current_sent_bytes = 0;
        self.external_body_bytes = 0;
        if self.bytes.capacity() > RETAINED_CAPACITY_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
    }

    /// Appends the body of the last request.
    pub(super) fn push_body(&mut self, body: &[u8]) {
        self.bytes.extend_from_slice(body);
        self.bytes.extend_from_slice(self.body_end);
    }

    /// Leaves the body of the last request to the driver.
    pub(super) fn leave_body_to_driver(&mut self, body: &[u8]) {
        self.external_body_bytes = body.len() + self.body_end.len();
    }

    pub(super) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.current_sent_bytes..).unwrap_or_default()
    }

    pub(super) fn sent_external_body_bytes(&self) -> usize {
        self.current_sent_bytes.saturating_sub(self.bytes.len())
    }

    pub(super) fn is_all_sent(&self) -> bool {
        self.current_sent_bytes >= self.bytes.len() + self.external_body_bytes
    }

    pub(super) fn appended_bytes(&self) -> u64 {
        self.earlier_sent_bytes + (self.bytes.len() + self.external_body_bytes) as u64
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.earlier_sent_bytes + self.current_sent_bytes as u64
    }
}
