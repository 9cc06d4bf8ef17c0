//! `-vv`: commands and replies on stderr, in memcached's form.
//!
//! `<24 get a` was received on descriptor 24, `>24 sending key a` and `>24 END` were sent. Values are never logged.

use glasscache_protocol::ascii;

use glasscache_protocol::binary::{self, Header};

use crate::session::context::Context;
use crate::session::output::{Output, Part};
use crate::shared::info::Info;

/// Maximum number of bytes of a command or reply that are logged.
const TRACE_BYTES_MAX: usize = 1024;

/// Logs a command; `input` begins with it.
pub(crate) fn command(context: &Context<'_>, input: &[u8]) {
    let line = input
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let descriptor = context.connection.id.descriptor;
    context
        .shared
        .log
        .line(format!("<{descriptor} {}", loggable(line)));
}

/// Logs a request of the binary protocol; `input` begins with it.
pub(crate) fn request(context: &Context<'_>, input: &[u8]) {
    let Some(header) = Header::read(input) else {
        return;
    };
    let key = loggable(binary::likely_key(input).unwrap_or_default());
    let (descriptor, opcode, opaque) = (
        context.connection.id.descriptor,
        header.opcode,
        header.opaque,
    );
    context.shared.log.line(format!(
        "<{descriptor} binary opcode {opcode:#04x} opaque {opaque:#x} key {key}"
    ));
}

/// Logs the headers of responses of the binary protocol.
fn responses(context: &Context<'_>, out: &Output<'_>) {
    let descriptor = context.connection.id.descriptor;
    // Bytes of a body that are still to come.
    let mut skip = 0;
    for part in out.parts() {
        let mut bytes = match part {
            Part::Bytes(bytes) => bytes,
            Part::Value(item) => {
                skip -= (item.value_bytes() as usize).min(skip);
                continue;
            }
        };
        loop {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some(header) = Header::read(bytes) else {
                break;
            };
            skip = binary::HEADER_BYTES + header.body_bytes as usize;
            let (opcode, status, opaque) = (header.opcode, header.status, header.opaque);
            context.shared.log.line(format!(
                ">{descriptor} binary opcode {opcode:#04x} status {status:#04x} opaque {opaque:#x}"
            ));
        }
    }
}

/// Logs the lines of a reply, or the headers of packets, without the values in it.
pub(crate) fn replies(context: &Context<'_>, out: &Output<'_>, is_binary: bool) {
    if is_binary {
        return responses(context, out);
    }
    let descriptor = context.connection.id.descriptor;
    // Bytes of a value and its line ending that are still to be skipped.
    let mut skip = 0;
    for part in out.parts() {
        let mut bytes = match part {
            Part::Bytes(bytes) => bytes,
            Part::Value(item) => {
                skip -= (item.value_bytes() as usize).min(skip);
                continue;
            }
        };
        loop {
            let skipped = skip.min(bytes.len());
            skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                break;
            };
            let line = bytes.get(..end).unwrap_or_default();
            bytes = bytes.get(end + 1..).unwrap_or_default();
            let (text, value_bytes) = reply(line);
            skip = value_bytes.map_or(0, |value_bytes| value_bytes + 2);
            context.shared.log.line(format!(">{descriptor} {text}"));
        }
    }
}

/// A line of a reply as it is logged, and the length of the value that follows it.
fn reply(line: &[u8]) -> (String, Option<usize>) {
    let mut tokens = ascii::tokens(line.trim_ascii_end());
    let number = |token: Option<&[u8]>| token.and_then(ascii::unsigned32).map(|n| n as usize);
    match tokens.next() {
        Some(b"VALUE") => {
            let key = tokens.next().unwrap_or_default();
            let value_bytes = number(tokens.nth(1));
            (format!("sending key {}", loggable(key)), value_bytes)
        }
        Some(b"VA") => (loggable(line), number(tokens.next())),
        _ => (loggable(line), None),
    }
}

/// A connection was opened or closed.
pub(crate) fn connection(info: &Info, is_open: bool) -> String {
    let descriptor = info.id.descriptor;
    if is_open {
        format!("<{descriptor} new auto-negotiating client connection")
    } else {
        format!("<{descriptor} connection closed.")
    }
}

/// Text without characters that could disturb a terminal or a log.
pub(crate) fn loggable(bytes: &[u8]) -> String {
    let end = bytes.len().min(TRACE_BYTES_MAX);
    let text = bytes.get(..end).unwrap_or_default().trim_ascii_end();
    text.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_logged_without_its_value() {
        assert_eq!(
            reply(b"VALUE a 0 10\r"),
            ("sending key a".to_owned(), Some(10))
        );
        assert_eq!(reply(b"VA 3 c7\r"), ("VA 3 c7".to_owned(), Some(3)));
        assert_eq!(reply(b"STORED\r"), ("STORED".to_owned(), None));
        assert_eq!(loggable(b"a\x1b[31m\xff\r"), "a\\x1b[31m\\xff");
    }
}
