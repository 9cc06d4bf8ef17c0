//! `-vv`: commands and replies on stderr, in memcached's form.
//!
//! `<24 get a` was received on descriptor 24, `>24 sending key a` and `>24 END` were sent. Values are never logged.

use glasscache_protocol::ascii;

use glasscache_protocol::binary::{self, Header};

use crate::session::context::Context;
use crate::session::output::{Output, OutputPart};
use crate::shared::connection_info::ConnectionInfo;
use crate::shared::log_output::LogLevel;

/// Maximum number of bytes of a command or reply that are logged.
const LOGGED_BYTES_MAX: usize = 1024;

/// Logs a command; `input` begins with it.
pub(crate) fn log_command(context: &Context<'_>, input: &[u8]) {
    let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let descriptor = context.connection.id.descriptor;
    context
        .shared
        .log
        .queue_line(LogLevel::Debug, format!("<{descriptor} {}", escape_for_log(line)));
}

/// Logs a request of the binary protocol; `input` begins with it.
pub(crate) fn log_request(context: &Context<'_>, input: &[u8]) {
    let Some(header) = Header::read(input) else {
        return;
    };
    let key = escape_for_log(binary::likely_key(input).unwrap_or_default());
    let (descriptor, opcode, opaque) =
        (context.connection.id.descriptor, header.opcode, header.opaque);
    context.shared.log.queue_line(
        LogLevel::Debug,
        format!("<{descriptor} binary opcode {opcode:#04x} opaque {opaque:#x} key {key}"),
    );
}

/// Logs the lines of a reply, or the headers of packets, without the values in it.
pub(crate) fn log_replies(context: &Context<'_>, out: &Output<'_>, is_binary: bool) {
    let next_logged_part = if is_binary { next_header } else { next_line };
    let descriptor = context.connection.id.descriptor;
    // Bytes of a value that are still to be skipped.
    let mut bytes_to_skip = 0;
    for part in out.parts() {
        let mut bytes = match part {
            OutputPart::Bytes(bytes) => bytes,
            OutputPart::Value(item) => {
                bytes_to_skip -= (item.value_bytes() as usize).min(bytes_to_skip);
                continue;
            }
        };
        loop {
            let skipped_bytes = bytes_to_skip.min(bytes.len());
            bytes = bytes.get(skipped_bytes..).unwrap_or_default();
            bytes_to_skip -= skipped_bytes;
            let Some(logged_part) = next_logged_part(bytes) else {
                break;
            };
            bytes = bytes.get(logged_part.part_bytes..).unwrap_or_default();
            bytes_to_skip = logged_part.value_bytes;
            context
                .shared
                .log
                .queue_line(LogLevel::Debug, format!(">{descriptor} {}", logged_part.text));
        }
    }
}

/// The part of a reply that is logged.
struct LoggedPart {
    text: String,
    /// Its length in the output.
    part_bytes: usize,
    /// Bytes of the value that follows it, with its line ending.
    value_bytes: usize,
}

/// The header of a response of the binary protocol.
fn next_header(bytes: &[u8]) -> Option<LoggedPart> {
    let header = Header::read(bytes)?;
    let (opcode, status, opaque) = (header.opcode, header.status, header.opaque);
    Some(LoggedPart {
        text: format!("binary opcode {opcode:#04x} status {status:#04x} opaque {opaque:#x}"),
        part_bytes: binary::HEADER_BYTES,
        value_bytes: header.body_bytes as usize,
    })
}

/// A line of a reply in text.
fn next_line(bytes: &[u8]) -> Option<LoggedPart> {
    let end = memchr::memchr(b'\n', bytes)?;
    let (text, value_bytes) = describe_reply_line(bytes.get(..end).unwrap_or_default());
    Some(LoggedPart {
        text,
        part_bytes: end + 1,
        value_bytes: value_bytes.map_or(0, |value_bytes| value_bytes + 2),
    })
}

/// A line of a reply as it is logged, and the length of the value that follows it.
fn describe_reply_line(line: &[u8]) -> (String, Option<usize>) {
    let mut tokens = ascii::tokens(line.trim_ascii_end());
    let parse_number = |token: Option<&[u8]>| token.and_then(ascii::parse_u32).map(|n| n as usize);
    match tokens.next() {
        Some(b"VALUE") => {
            let key = tokens.next().unwrap_or_default();
            let value_bytes = parse_number(tokens.nth(1));
            (format!("sending key {}", escape_for_log(key)), value_bytes)
        }
        Some(b"VA") => (escape_for_log(line), parse_number(tokens.next())),
        _ => (escape_for_log(line), None),
    }
}

/// The line that reports that a connection was opened or closed.
pub(crate) fn describe_connection(info: &ConnectionInfo, was_opened: bool) -> String {
    let descriptor = info.id.descriptor;
    if was_opened {
        format!("<{descriptor} new auto-negotiating client connection")
    } else {
        format!("<{descriptor} connection closed.")
    }
}

/// Text without characters that could disturb a terminal or a log.
pub(crate) fn escape_for_log(bytes: &[u8]) -> String {
    let end = bytes.len().min(LOGGED_BYTES_MAX);
    let text = bytes.get(..end).unwrap_or_default().trim_ascii_end();
    text.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_logged_without_its_value() {
        assert_eq!(describe_reply_line(b"VALUE a 0 10\r"), ("sending key a".to_owned(), Some(10)));
        assert_eq!(describe_reply_line(b"VA 3 c7\r"), ("VA 3 c7".to_owned(), Some(3)));
        assert_eq!(describe_reply_line(b"STORED\r"), ("STORED".to_owned(), None));
        assert_eq!(escape_for_log(b"a\x1b[31m\xff\r"), "a\\x1b[31m\\xff");
    }
}
