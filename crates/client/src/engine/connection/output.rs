//! The output of a connection: bytes to be sent, and how many of them were sent.

/// Room that an idle connection keeps for requests.
const RETAINED_CAPACITY_MAX: usize = 1 << 20;

/// The bytes of requests, of which the last may have a body that is sent from its own buffer.
#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// What follows a body: a line end, in binary nothing.
    body_end: &'static [u8],
    /// Length of that body and what follows it.
    external_body_bytes: usize,
    /// Bytes of both that are sent.
    current_sent_bytes: usize,
    /// Bytes that were sent before these.
    earlier_sent_bytes: u64,
    /// Sending has stopped.
    is_stopped: bool,
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
            is_stopped: false,
        }
    }

    /// Prepares for more requests: output that is all sent is dropped.
    pub(super) fn discard_sent(&mut self) {
        if self.current_sent_bytes == 0 || !self.has_sent_everything() {
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

    /// The buffer to which requests are appended.
    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
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

    /// Stops sending; appended bytes that are not sent yet are dropped.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    pub(super) fn mark_sent(&mut self, byte_count: usize) {
        self.current_sent_bytes += byte_count;
    }

    pub(super) fn unsent(&self) -> &[u8] {
        if self.is_stopped {
            return &[];
        }
        self.bytes.get(self.current_sent_bytes..).unwrap_or_default()
    }

    pub(super) fn body_end(&self) -> &'static [u8] {
        self.body_end
    }

    pub(super) fn sent_external_body_bytes(&self) -> usize {
        self.current_sent_bytes.saturating_sub(self.bytes.len())
    }

    /// Whether nothing is left to send.
    pub(super) fn is_all_sent(&self) -> bool {
        self.is_stopped || self.has_sent_everything()
    }

    fn has_sent_everything(&self) -> bool {
        self.current_sent_bytes >= self.bytes.len() + self.external_body_bytes
    }

    pub(super) fn appended_bytes(&self) -> u64 {
        self.earlier_sent_bytes + (self.bytes.len() + self.external_body_bytes) as u64
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.earlier_sent_bytes + self.current_sent_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_what_was_sent_before_and_what_the_driver_sends_itself() {
        let mut output = Output::new(b"\r\n");
        output.bytes_mut().extend_from_slice(b"get a\r\n");
        output.mark_sent(7);
        output.discard_sent();
        output.bytes_mut().extend_from_slice(b"set a 0 0 3\r\n");
        output.leave_body_to_driver(b"abc");
        assert_eq!((output.sent_bytes(), output.appended_bytes()), (7, 7 + 13 + 5));
        output.mark_sent(14);
        assert_eq!((output.unsent(), output.sent_external_body_bytes()), (&b""[..], 1));
        assert!(!output.is_all_sent());
        output.mark_sent(4);
        assert!(output.is_all_sent());
    }

    #[test]
    fn a_stopped_output_sends_nothing_more_and_keeps_its_offsets() {
        let mut output = Output::new(b"\r\n");
        output.push_body(b"abc");
        output.mark_sent(1);
        output.stop();
        assert!(output.unsent().is_empty() && output.is_all_sent());
        output.discard_sent();
        assert_eq!((output.sent_bytes(), output.appended_bytes()), (1, 5));
    }
}
