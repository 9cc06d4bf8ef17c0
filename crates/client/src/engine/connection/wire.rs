//! The bytes of a connection: written requests with the replies that they expect, and received bytes.
//!
//! INVARIANT: the pipeline expects replies in the order in which requests are written here, and opaques ascend.

use glasscache_protocol::binary::opcode;

use super::output::Output;
use crate::engine::pending_writes::PendingWrites;
use crate::login::Login;
use crate::pipeline::{ExpectedBinaryReply, ExpectedReply, Pipeline};
use crate::request::{CommandSet, RequestWriter, write_binary_noop};

/// The bytes that a driver moves between a connection and its socket.
#[derive(Debug)]
pub struct Wire {
    pipeline: Pipeline,
    output: Output,
    /// The opaque of the next request that has one.
    next_opaque: u32,
}

/// The range of a connection's output that some requests take.
#[derive(Debug, Clone, Copy)]
pub(super) struct ByteRange {
    pub(super) begin_offset: u64,
    pub(super) end_offset: u64,
}

/// How much of a connection's requests was sent and answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireProgress {
    /// The bytes sent since the connection was made.
    pub(super) sent_bytes: u64,
    /// Nothing was received for the requests in flight.
    pub(super) has_no_reply_bytes: bool,
    /// The reply to a login is the next.
    pub(super) awaits_login: bool,
}

impl Wire {
    /// Nothing written yet. `command_set` is that of the server, if it is known.
    pub(super) fn new(
        command_set: Option<CommandSet>,
        value_bytes_max: u64,
        first_opaque: u32,
    ) -> Self {
        let body_end: &[u8] = match command_set {
            Some(CommandSet::Binary) => b"",
            _ => b"\r\n",
        };
        Self {
            pipeline: Pipeline::new(value_bytes_max),
            output: Output::new(body_end),
            next_opaque: first_opaque,
        }
    }

    /// What is to be sent, before a body that was left to the driver.
    pub fn output(&self) -> &[u8] {
        self.output.unsent()
    }

    /// What follows a body that was left to the driver: a line end, in binary nothing.
    pub fn body_end(&self) -> &'static [u8] {
        self.output.body_end()
    }

    /// How many bytes of a body that was left to the driver, and of its end, are sent.
    pub fn sent_external_body_bytes(&self) -> usize {
        self.output.sent_external_body_bytes()
    }

    /// Whether nothing is left to send, the body that was left to the driver included.
    pub fn is_all_sent(&self) -> bool {
        self.output.is_all_sent()
    }

    /// Notes that this many more bytes were sent, or given to the transport.
    pub fn mark_sent(&mut self, byte_count: usize) {
        self.output.mark_sent(byte_count);
    }

    /// The bytes written since the connection was made.
    pub fn appended_bytes(&self) -> u64 {
        self.output.appended_bytes()
    }

    /// The bytes sent since the connection was made.
    pub fn sent_bytes(&self) -> u64 {
        self.output.sent_bytes()
    }

    /// The replies; it holds the values of a returned one until
    /// [`Connection::release`](super::Connection::release).
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The same, to receive a large value directly ([`Pipeline::move_partial_value`]).
    pub fn pipeline_mut(&mut self) -> &mut Pipeline {
        &mut self.pipeline
    }

    /// Room for at least `byte_count_min` more received bytes; [`Self::mark_received`] notes how many came.
    pub fn receive_space(&mut self, byte_count_min: usize) -> &mut [u8] {
        self.pipeline.receive_space(byte_count_min)
    }

    /// Notes that `byte_count` bytes were written into [`Self::receive_space`].
    pub fn mark_received(&mut self, byte_count: usize) {
        self.pipeline.mark_received(byte_count);
    }

    /// Copies received bytes into the pipeline.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pipeline.feed(bytes);
    }

    /// The bytes that were written from this offset on.
    pub(super) fn range_since(&self, begin_offset: u64) -> ByteRange {
        ByteRange { begin_offset, end_offset: self.output.appended_bytes() }
    }

    /// How much of the requests was sent and answered.
    pub(super) fn progress(&self) -> WireProgress {
        WireProgress {
            sent_bytes: self.output.sent_bytes(),
            has_no_reply_bytes: self.pipeline.has_no_reply_bytes(),
            awaits_login: self.pipeline.oldest_request().is_some_and(ExpectedReply::is_login),
        }
    }

    /// Sends nothing more; what was written and sent is still counted.
    pub(super) fn stop_sending(&mut self) {
        self.output.stop();
    }

    /// Prepares for more requests: output that is all sent is dropped.
    pub(super) fn discard_sent(&mut self) {
        self.output.discard_sent();
    }

    pub(super) fn next_opaque(&self) -> u32 {
        self.next_opaque
    }

    fn take_opaque(&mut self) -> u32 {
        let opaque = self.next_opaque;
        self.next_opaque = opaque.wrapping_add(1);
        opaque
    }

    /// The writer to which requests are written one after the other.
    pub(super) fn request_writer(&mut self, command_set: CommandSet) -> RequestWriter<'_> {
        RequestWriter {
            command_set,
            pipeline: &mut self.pipeline,
            out: self.output.bytes_mut(),
            next_opaque: &mut self.next_opaque,
        }
    }

    /// Writes the body of the last request after it.
    pub(super) fn push_body(&mut self, body: &[u8]) {
        self.output.push_body(body);
    }

    /// Leaves the body of the last request to the driver.
    pub(super) fn leave_body_to_driver(&mut self, body: &[u8]) {
        self.output.leave_body_to_driver(body);
    }

    /// Writes quiet requests that were encoded before; those of a write buffer have opaques of their own.
    pub(super) fn push_encoded(&mut self, encoded_requests: &[u8]) {
        self.output.bytes_mut().extend_from_slice(encoded_requests);
    }

    /// Writes a login; fails if its password cannot be obtained.
    pub(super) fn write_login(
        &mut self,
        login: &Login,
        command_set: Option<CommandSet>,
    ) -> Result<(), String> {
        if command_set == Some(CommandSet::Binary) {
            let opaque = self.take_opaque();
            let opcode = opcode::SASL_AUTH;
            let expected = ExpectedBinaryReply::Status { opaque, opcode };
            self.pipeline.expect(ExpectedReply::Binary(expected));
            login.write_binary(self.output.bytes_mut(), opaque)
        } else {
            self.pipeline.expect(ExpectedReply::Login);
            login.write(self.output.bytes_mut())
        }
    }

    /// Writes the request whose reply shows the server's command set.
    pub(super) fn write_probe(&mut self) {
        self.output.bytes_mut().extend_from_slice(b"mn\r\n");
        self.pipeline.expect(ExpectedReply::Probe);
    }

    /// Writes a request for the acknowledgement of quiet writes; returns its bytes, with theirs if they begin at
    /// `begin_offset`.
    pub(super) fn write_acknowledgement_request(
        &mut self,
        command_set: CommandSet,
        pending_writes: &PendingWrites,
        begin_offset: u64,
    ) -> ByteRange {
        let (first_opaque, count) = (pending_writes.first_opaque, pending_writes.opaque_count);
        if command_set == CommandSet::Binary {
            let opaque = self.take_opaque();
            write_binary_noop(self.output.bytes_mut(), opaque);
            let expected = ExpectedBinaryReply::Quiet { first_opaque, count, noop_opaque: opaque };
            self.pipeline.expect(ExpectedReply::Binary(expected));
        } else {
            self.output.bytes_mut().extend_from_slice(b"mn\r\n");
            self.pipeline.expect(ExpectedReply::Quiet { first_opaque, count });
        }
        self.range_since(begin_offset)
    }
}
