//! What a warm-up did, and why it ended early.

use std::io;

use serde::Serialize;

/// What was copied so far, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    /// Items that the old server listed.
    pub listed_items: u64,
    /// Their bytes, as the old server counts them.
    pub listed_bytes: u64,
    /// Items that the old server counts (`curr_items`) and did not list: they have expired, or were missed because they
    /// moved in its memory while it listed them. 0 where the server can list each item once.
    pub possibly_missing: u64,
    /// Items stored at the new server.
    pub copied_items: u64,
    /// Bytes of their values.
    pub copied_bytes: u64,
    /// Items that the new server had already; its own were kept.
    pub already_present: u64,
    /// Items that expired or were removed at the old server before they were read.
    pub gone: u64,
    /// Items that are stale or that a client is about to refresh: their value is not worth keeping.
    pub stale: u64,
    /// Items that changed at the old server while they were copied, and were removed again at the new one.
    pub changed: u64,
    /// Items that the new server refused.
    pub refused: u64,
    /// The first refusal, as the server worded it.
    pub refusal: Option<String>,
    /// Keys with spaces or control bytes that are too long for a meta command.
    pub unnameable_keys: u64,
    /// Items that were examined: copied, or counted above.
    pub examined_items: u64,
    /// Seconds from the first batch to the end.
    pub seconds: f64,
    /// Why the copying ended.
    pub end: End,
}

/// Why the copying ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// Every listed item was examined.
    Complete,
    /// The new server evicts: each further item would cost it another.
    TargetFull,
    /// The new server refuses one item after the other.
    TargetRefuses,
    /// The caller stopped it.
    Stopped,
    /// A server failed.
    #[default]
    Failed,
}

/// Why a warm-up failed. Names the server by its address.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// A server cannot be reached, or the connection to it failed.
    #[error("{server}: {reason}")]
    Connection {
        /// The server.
        server: String,
        /// The reason.
        reason: io::Error,
    },
    /// Both addresses lead to one server.
    #[error(
        "{source_name} and {target_name} are the same server: a key that was stored at the second was found at the first; \
         name two servers"
    )]
    SameServer {
        /// The address of the old server.
        source_name: String,
        /// The address of the new server.
        target_name: String,
    },
    /// A server does not take a command that is needed.
    #[error("{server} does not take `{command}`: its reply was \"{reply}\"")]
    Refused {
        /// The server.
        server: String,
        /// The command.
        command: &'static str,
        /// Its reply.
        reply: String,
    },
    /// A reply does not match its request.
    #[error("{server}: unexpected reply to `{command}`: \"{reply}\"")]
    Unexpected {
        /// The server.
        server: String,
        /// The command.
        command: &'static str,
        /// The reply.
        reply: String,
    },
}
