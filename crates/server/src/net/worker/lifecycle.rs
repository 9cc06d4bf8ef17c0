//! The lifecycle of connections: new ones, closed ones, those that hold memory or are idle for too long.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use glasscache_store::Seconds;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::Shutdown;

use super::{ServeReason, Worker};
use crate::net::accept_queue::AcceptedConnection;
use crate::net::connection::{Connection, InheritedState};
use crate::net::stream::Stream;
use crate::session::command_log;
use crate::session::{Access, Session};
use crate::shared::Shared;
use crate::shared::connection_info::{CloseReason, ConnectionInfo};
use crate::shared::counters::Counters;
use crate::shared::events;
use crate::shared::lock::lock;
use crate::shared::log::LogKind;
use crate::shared::log_output::LogLevel;
use crate::shared::stalled;

impl Worker {
    pub(super) fn close(&mut self, slot_key: u64, reason: CloseReason) {
        self.unpark(slot_key);
        let Some(mut connection) = self.connections.remove(slot_key) else {
            return;
        };
        let info = Arc::clone(&connection.info);
        let limit = self.shared.slow_commands.limit();
        if let Some(slow) = connection.command_timer.finish_wait(&info, limit, self.now) {
            self.shared.record_slow(slow);
        }
        connection.memory_wait.end(&self.shared.peer_memory);
        self.shared.marked_for_close.record_close(&info.held_memory);
        if connection.mode.is_watching() {
            self.watching.remove(slot_key);
            self.shared.watchers.remove(info.id.serial);
            self.shared.update_is_observed();
        }
        events::publish_connection(&self.shared, &info, Some(reason.name()));
        log_close(&self.shared, &self.counters, self.now, (&info, reason));
        self.shared.connections.remove(info.id.serial);
        let was_uploading = connection.session.upload_mut().is_some();
        // Closing the socket removes it from epoll, unless a successor that failed still has it too.
        if self.may_share_sockets {
            let socket = connection.stream.socket();
            let _ = epoll::delete(&self.epoll_fd, socket);
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        drop(connection);
        if was_uploading {
            stalled::record_upload_release(&self.shared);
        }
    }

    pub(super) fn add_accepted_connections(&mut self) {
        let accepted = std::mem::take(&mut *lock(&self.accept_queue));
        for AcceptedConnection { stream, info, inherited_state } in accepted {
            self.add(stream, info, inherited_state);
        }
    }

    fn add(
        &mut self,
        stream: Stream,
        info: Arc<ConnectionInfo>,
        inherited_state: Option<Box<InheritedState>>,
    ) {
        let serial = info.id.serial;
        let is_tls = stream.is_tls();
        // With TLS the header came before the handshake.
        let has_proxy_header = info.has_proxy_header && !is_tls;
        let must_continue = inherited_state.is_some();
        let connection = if let Some(state) = inherited_state {
            Connection::inherit(stream, info, *state, &self.shared.peer_memory)
        } else {
            let session = Session::new(Access::of(&info, &self.shared.logins), has_proxy_header);
            Connection::new(stream, info, session)
        };
        let slot_key = self.connections.insert(connection);
        let data = EventData::new_u64(slot_key);
        let Some(connection) = self.connections.get_mut(slot_key) else {
            return;
        };
        if epoll::add(&self.epoll_fd, connection.stream.socket(), data, EventFlags::IN).is_err() {
            self.connections.remove(slot_key);
            self.shared.connections.remove(serial);
            return;
        }
        if connection.session.awaits_login() {
            self.logins.add_unauthenticated(slot_key, connection, Instant::now());
        }
        if must_continue {
            // What the predecessor had received or not yet sent causes no event.
            self.serve_or_queue(slot_key, ServeReason::Resume);
        }
        if is_tls {
            // The first request may have come with the end of the handshake.
            self.serve_or_queue(slot_key, ServeReason::Input);
        }
    }

    /// Closes own connections that are marked because they held memory for too long.
    pub(super) fn close_marked(&mut self) {
        if self.shared.marked_for_close.is_empty() {
            return;
        }
        for slot_key in self
            .connections
            .keys_where(|connection| connection.info.held_memory.is_marked_for_close())
        {
            self.counters.stalled_closed.bump();
            self.close(slot_key, CloseReason::Stalled);
        }
    }

    /// Once a second: closes connections that were idle for too long.
    pub(super) fn close_idle(&mut self) {
        let now_s = self.now.0;
        let idle_max_s = self.shared.config.idle_timeout_s;
        if idle_max_s == 0 || now_s == self.last_idle_check_s {
            return;
        }
        self.last_idle_check_s = now_s;
        let is_idle_for_too_long = |connection: &Connection| {
            let last_command_s = connection.info.last_command_s.load(Ordering::Relaxed);
            !connection.mode.is_watching() && now_s.saturating_sub(last_command_s) > idle_max_s
        };
        for slot_key in self.connections.keys_where(is_idle_for_too_long) {
            self.counters.idle_kicks.bump();
            self.close(slot_key, CloseReason::IdleTimeout);
        }
    }
}

/// Logs and counts why a connection was closed, where that is of interest.
fn log_close(
    shared: &Shared,
    counters: &Counters,
    now: Seconds,
    (info, reason): (&ConnectionInfo, CloseReason),
) {
    let format_line = |message| {
        let (client, descriptor) = (info.client(), info.id.descriptor);
        format!("glasscache: closed {client} (descriptor {descriptor}): {message}")
    };
    if reason == CloseReason::BinaryProtocol {
        counters.binary_refused.bump();
    }
    if reason == CloseReason::MalformedTlsRecord
        && let Some(tls) = &shared.tls
    {
        tls.counters.protocol_errors.fetch_add(1, Ordering::Relaxed);
    }
    match reason.log_message() {
        Some(message) if shared.logs_at(1) => {
            shared.log.queue_line(LogLevel::Info, format_line(message));
        }
        // At any verbosity: the user sees only a timeout.
        Some(message) => {
            let kind = match reason {
                CloseReason::BinaryProtocol => LogKind::BinaryProtocol,
                CloseReason::NoProxyHeader => LogKind::NoProxyHeader,
                _ => return,
            };
            shared.log.queue_line_rate_limited(kind, now.0, || format_line(message));
        }
        None => {}
    }
    if shared.logs_at(2) {
        shared.log.queue_line(LogLevel::Debug, command_log::describe_connection(info, false));
    }
}
