//! A connection that passes to the next process with its unparsed input and its unsent output.
//!
//! Only copies are made, so that the connection continues if the next process does not take over. TLS, uploads,
//! watchers, dumps and logins that are being verified stay behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use glasscache_store::UncommittedBytes;

use super::Connection;
use super::input::ConnectionInput;
use super::watch_and_dump::Mode;
use crate::net::send::ConnectionOutput;
use crate::net::stream::Stream;
use crate::session::Session;
use crate::shared::Shared;
use crate::shared::config::Protocols;
use crate::shared::connection_info::ConnectionInfo;
use crate::shared::fields::{FieldReader, FieldWriter};
use crate::shared::peer_memory::PeerMemory;

/// What the next process received of a connection, beside its socket.
pub(crate) struct InheritedState {
    session: Session,
    input: Vec<u8>,
    output: Vec<u8>,
    is_closing: bool,
}

/// The fields of its [`ConnectionInfo`].
pub(crate) struct InheritedInfo {
    /// The index of the listener that accepted it, in the previous process.
    pub(crate) listener_index: usize,
    pub(crate) last_command_s: u32,
    pub(crate) has_proxy_header: bool,
    pub(crate) proxied_client: Option<std::net::SocketAddr>,
}

/// The settings that decide what an inherited session may do.
#[derive(Clone, Copy)]
pub(crate) struct LoginRules {
    /// This server requires a login.
    pub(crate) requires_login: bool,
    /// The previous one did.
    pub(crate) previous_required_login: bool,
    /// The protocols that this server allows.
    pub(crate) protocols: Protocols,
}

impl InheritedState {
    /// Whether it has to log in, or to send a proxy's header, before anything else.
    pub(crate) fn awaits_login(&self) -> bool {
        self.session.awaits_login()
    }

    /// Reads what [`Connection::hand_over`] wrote.
    pub(crate) fn read(
        reader: &mut FieldReader<'_>,
        rules: LoginRules,
    ) -> Option<(InheritedState, InheritedInfo)> {
        let info = InheritedInfo {
            listener_index: reader.u32()? as usize,
            last_command_s: reader.u32()?,
            has_proxy_header: reader.bool()?,
            proxied_client: reader.addresses()?.first().copied(),
        };
        let state = InheritedState {
            is_closing: reader.bool()?,
            input: reader.bytes()?.to_vec(),
            output: reader.bytes()?.to_vec(),
            session: Session::read_fields(
                reader,
                rules.requires_login,
                rules.previous_required_login,
                rules.protocols,
            )?,
        };
        Some((state, info))
    }
}

impl Connection {
    /// A connection of a previous process.
    pub(crate) fn inherit(
        stream: Stream,
        info: Arc<ConnectionInfo>,
        state: InheritedState,
        peer_memory: &Arc<PeerMemory>,
    ) -> Connection {
        let mut connection = Connection::new(stream, info, state.session);
        connection.input = ConnectionInput::inherit(&state.input, peer_memory);
        connection.output =
            ConnectionOutput::from_rendered(state.output, state.is_closing, peer_memory);
        connection
    }

    /// Appends what the next process needs to continue the connection; false, and nothing appended, if it stays behind.
    /// Its bytes are subtracted from `bytes_left`, and must not exceed them.
    pub(crate) fn hand_over(&self, writer: &mut FieldWriter, bytes_left: &mut usize) -> bool {
        let input = self.input.pending().bytes().unwrap_or_default();
        let handed_over_bytes = input.len() + self.output.unsent_bytes();
        let is_plain = !self.stream.is_tls() && matches!(self.mode, Mode::Serve);
        if !is_plain || !self.session.can_be_handed_over() || handed_over_bytes > *bytes_left {
            return false;
        }
        *bytes_left -= handed_over_bytes;
        writer.u32(self.info.listener_index as u32);
        writer.u32(self.info.last_command_s.load(Ordering::Relaxed));
        writer.bool(self.info.has_proxy_header);
        writer.address(self.info.proxied_client());
        writer.bool(self.output.is_closing());
        writer.bytes(input);
        writer.bytes(&self.output.copy_unsent());
        self.session.write_fields(writer);
        true
    }

    /// Prepares a connection that stays behind: its upload is noted, and of its output at most `copied_bytes_left`
    /// bytes are copied from the store, within the memory for peers. False if more would have to be copied.
    pub(crate) fn prepare_without_handover(
        &mut self,
        uncommitted_uploads: &mut UncommittedBytes,
        copied_bytes_left: &mut usize,
        peer_memory: &PeerMemory,
    ) -> bool {
        if let Some(reservation) = self.session.reservation() {
            uncommitted_uploads.add(reservation);
        }
        self.output.copy_held_values(copied_bytes_left, peer_memory);
        !self.output.has_held_values()
    }

    /// Makes the pending lines of a watcher its last output. One that did not take what it was sent loses them.
    pub(crate) fn queue_final_watch_lines(&mut self, shared: &Shared) {
        if !self.output.is_pending() {
            let lines = shared.watchers.take_final_lines(self.info.id.serial);
            self.output = ConnectionOutput::from_rendered(
                lines,
                self.output.is_closing(),
                &shared.peer_memory,
            );
        }
    }

    /// Forgets an upload without giving back its memory, which belongs to the next process.
    pub(crate) fn forget_upload(&mut self) {
        std::mem::forget(std::mem::take(&mut self.session));
    }
}
