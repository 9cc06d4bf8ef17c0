//! One of the two servers: its address, a connection, and the commands whose replies are lines.

use std::collections::HashMap;
use std::io;

use glasscache_protocol::ascii;
use glasscache_protocol::meta::reply::{Line, MetaCode, MetaReplyFlags, parse};
use glasscache_protocol::text;

use super::connection::Connection;
use super::report::WarmError;
use crate::access::Access;

/// Characters of a reply that an error message quotes.
const QUOTED_CHARACTERS_MAX: usize = 100;

/// The source or the target of a warm-up, with an open connection.
pub(super) struct CopyEndpoint {
    name: String,
    connection: Connection,
}

/// A reply to one of several meta commands.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) code: MetaCode,
    /// The position of its command in the batch.
    pub(super) position: usize,
    pub(super) value_bytes: usize,
    pub(super) client_flags: u32,
    pub(super) unique: u64,
    pub(super) ttl_s: Option<i64>,
    /// Whether reading has given this connection the right to refresh the item.
    pub(super) has_won: bool,
    /// Whether the item is stale, or a client is about to refresh it.
    pub(super) is_stale_or_leased: bool,
}

/// What comes next from a server that executes a batch.
#[derive(Debug)]
pub(super) enum BatchReply {
    /// A reply to one of its commands.
    Reply(Reply),
    /// A command was refused; an error line does not name it.
    Refused(String),
    /// The batch was executed.
    End,
}

impl CopyEndpoint {
    /// Connects, and verifies that the server takes meta commands.
    pub(super) fn open(access: &Access) -> Result<Self, WarmError> {
        let name = access.endpoint.to_string();
        let open_result = Connection::open(access);
        let connection =
            open_result.map_err(|reason| WarmError::Connection { server: name.clone(), reason })?;
        let mut server = Self { name, connection };
        // Of a server that wants a login, the longer line gets a reply; at one as short as `mn` it closes.
        for (command, reply_start) in [("version", "VERSION "), ("mn", "MN")] {
            let reply_line = server.request_reply_line(command)?;
            if !reply_line.starts_with(reply_start) {
                return Err(server.refused_error(command, reply_line));
            }
        }
        Ok(server)
    }

    /// Its address.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes bytes of requests.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), WarmError> {
        let write_result = self.connection.write(bytes);
        write_result.map_err(|reason| self.connection_error(reason))
    }

    /// Sends what was written.
    pub(super) fn flush(&mut self) -> Result<(), WarmError> {
        let flush_result = self.connection.flush();
        flush_result.map_err(|reason| self.connection_error(reason))
    }

    /// Reads the next reply to meta commands `command`, which an `mn` ends.
    pub(super) fn read_next_reply(
        &mut self,
        command: &'static str,
    ) -> Result<BatchReply, WarmError> {
        let name = &self.name;
        let line = self.connection.read_line();
        let line = line.map_err(|reason| WarmError::Connection { server: name.clone(), reason })?;
        match parse(line) {
            Ok(Line::Reply { code: MetaCode::Noop, .. }) => Ok(BatchReply::End),
            Ok(Line::Error(_)) => Ok(BatchReply::Refused(truncate_for_message(line))),
            Ok(Line::Reply { code, value_bytes, flags })
                if let Some(reply) = to_reply(code, value_bytes, &flags) =>
            {
                Ok(BatchReply::Reply(reply))
            }
            _ => Err(WarmError::Unexpected {
                server: name.clone(),
                command,
                reply: truncate_for_message(line),
            }),
        }
    }

    /// Reads the value behind a reply.
    pub(super) fn read_value(
        &mut self,
        reply: &Reply,
        values: &mut Vec<u8>,
    ) -> Result<(), WarmError> {
        let read_result = self.connection.read_value(reply.value_bytes, values);
        read_result.map_err(|reason| self.connection_error(reason))
    }

    /// Sends a command and returns the line that is its reply.
    pub(super) fn request_reply_line(&mut self, command: &str) -> Result<String, WarmError> {
        self.write(command.as_bytes())?;
        self.write(b"\r\n")?;
        self.flush()?;
        let line = self.connection.read_line().map(truncate_for_message);
        line.map_err(|reason| self.connection_error(reason))
    }

    /// Reads a line of a listing.
    pub(super) fn read_line(&mut self) -> Result<&[u8], WarmError> {
        let name = &self.name;
        let line = self.connection.read_line();
        line.map_err(|reason| WarmError::Connection { server: name.clone(), reason })
    }

    /// The numbers of its general statistics.
    pub(super) fn read_stats(&mut self) -> Result<HashMap<String, u64>, WarmError> {
        self.write(b"stats\r\n")?;
        self.flush()?;
        let mut numbers = HashMap::new();
        loop {
            let line = self.read_line()?;
            match text::reply::parse(line) {
                Ok(text::reply::Line::End) => return Ok(numbers),
                Ok(text::reply::Line::Stat(statistic, value)) => {
                    if let Some(number) = ascii::parse_u64(value) {
                        numbers.insert(String::from_utf8_lossy(statistic).into_owned(), number);
                    }
                }
                _ => {
                    let truncated_line = truncate_for_message(line);
                    return Err(self.unexpected_error("stats", truncated_line));
                }
            }
        }
    }

    /// The error of a reply that does not match its request.
    pub(super) fn unexpected_error(&self, command: &'static str, reply: String) -> WarmError {
        WarmError::Unexpected { server: self.name.clone(), command, reply }
    }

    /// The error of a command that the server does not take.
    pub(super) fn refused_error(&self, command: &'static str, reply: String) -> WarmError {
        WarmError::Refused { server: self.name.clone(), command, reply }
    }

    fn connection_error(&self, reason: io::Error) -> WarmError {
        WarmError::Connection { server: self.name.clone(), reason }
    }
}

/// The start of a line, for an error message.
pub(super) fn truncate_for_message(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars().take(QUOTED_CHARACTERS_MAX).collect()
}

/// The fields of a reply; `None` without an opaque, which all commands of a batch have.
fn to_reply(code: MetaCode, value_bytes: u64, flags: &MetaReplyFlags<'_>) -> Option<Reply> {
    Some(Reply {
        code,
        position: flags.opaque? as usize,
        value_bytes: usize::try_from(value_bytes).ok()?,
        client_flags: flags.client_flags,
        unique: flags.cas.unwrap_or(0),
        ttl_s: flags.ttl_s,
        has_won: flags.won,
        is_stale_or_leased: flags.won || flags.is_stale || flags.already_won,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_to(line: &[u8]) -> Option<Reply> {
        match parse(line).unwrap() {
            Line::Reply { code, value_bytes, flags } => to_reply(code, value_bytes, &flags),
            Line::Error(_) => None,
        }
    }

    #[test]
    fn a_reply_names_its_command_by_the_opaque() {
        let hit = reply_to(b"VA 3 kfoo f7 c9 t-1 O12").unwrap();
        assert_eq!((hit.code, hit.position, hit.value_bytes), (MetaCode::Value, 12, 3));
        assert_eq!((hit.client_flags, hit.unique, hit.ttl_s), (7, 9, Some(-1)));
        assert!(!hit.is_stale_or_leased);
        assert!(reply_to(b"VA 3 f7").is_none());
    }

    #[test]
    fn items_in_a_lease_are_stale() {
        for (line, won) in [("VA 0 O1 W", true), ("VA 0 O1 Z", false), ("VA 0 O1 X Z", false)] {
            let reply = reply_to(line.as_bytes()).unwrap();
            assert!(reply.is_stale_or_leased, "{line}");
            assert_eq!(reply.has_won, won, "{line}");
        }
    }
}
