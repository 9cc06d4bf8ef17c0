//! HTTP responses: one for each connection, which is closed after it.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::request::{Refusal, Request};

/// A body is compressed from this length on; a shorter one fits into a packet anyway.
const GZIP_BYTES_MIN: usize = 1024;

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";
pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const EVENT_STREAM: &str = "text/event-stream";
/// The text format of Prometheus, which every version reads.
pub(crate) const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A response.
pub(crate) struct Response {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
    /// Further fields of the head, each with its line end.
    fields: String,
    /// Whether the body goes on without end.
    pub(crate) is_stream: bool,
}

impl Response {
    pub(crate) fn new(content_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response {
            status: 200,
            content_type,
            body: body.into(),
            fields: String::new(),
            is_stream: false,
        }
    }

    /// A body that events are appended to.
    pub(crate) fn stream() -> Response {
        Response { is_stream: true, ..Response::new(EVENT_STREAM, "") }
    }

    pub(crate) fn with_status(self, status: u16) -> Response {
        Response { status, ..self }
    }

    pub(crate) fn with_field(mut self, name: &str, value: &str) -> Response {
        // Writing to a string cannot fail.
        let _ = write!(self.fields, "{name}: {value}\r\n");
        self
    }

    /// The same body with the status and the fields of a refusal.
    pub(crate) fn with_refusal(self, refusal: &Refusal) -> Response {
        let response = self.with_status(refusal.status);
        match refusal.status {
            401 => response.with_field("WWW-Authenticate", "Bearer"),
            405 => response.with_field("Allow", "GET, HEAD"),
            _ => response,
        }
    }

    /// One sentence about why it is refused.
    pub(crate) fn refusal(refusal: &Refusal) -> Response {
        Response::new(TEXT, format!("{}\n", refusal.sentence)).with_refusal(refusal)
    }

    /// The bytes to send: head and body.
    pub(crate) fn to_bytes(&self, request: Option<&Request>) -> Vec<u8> {
        let may_compress = request.is_some_and(|request| request.accepts_gzip)
            && self.body.len() >= GZIP_BYTES_MIN
            && !self.is_stream;
        let compressed = may_compress.then(|| compress(&self.body));
        let body = compressed.as_deref().unwrap_or(&self.body);
        let mut bytes = self.format_head(body.len(), compressed.is_some()).into_bytes();
        if !request.is_some_and(|request| request.is_head) {
            bytes.extend_from_slice(body);
        }
        bytes
    }

    fn format_head(&self, body_bytes: usize, is_compressed: bool) -> String {
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}Cache-Control: no-store\r\nVary: Accept-Encoding\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.fields,
        );
        if is_compressed {
            head.push_str("Content-Encoding: gzip\r\n");
        }
        if !self.is_stream {
            let _ = write!(head, "Content-Length: {body_bytes}\r\n");
        }
        head.push_str("\r\n");
        head
    }
}

fn compress(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a vector cannot fail.
    let _ = encoder.write_all(body);
    encoder.finish().unwrap_or_default()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_the_length_of_its_body_also_for_head() {
        let response = Response::new(TEXT, "four");
        let get = String::from_utf8(response.to_bytes(None)).unwrap();
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\nfour"), "{get}");
        let request = Request { is_head: true, ..Request::default() };
        let head = String::from_utf8(response.to_bytes(Some(&request))).unwrap();
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn long_bodies_are_compressed_if_that_is_accepted() {
        let response = Response::new(TEXT, "x".repeat(5000));
        let request = Request { accepts_gzip: true, ..Request::default() };
        let compressed = response.to_bytes(Some(&request));
        assert!(compressed.len() < 1000);
        assert!(String::from_utf8_lossy(&compressed).contains("Content-Encoding: gzip\r\n"));
        assert!(response.to_bytes(Some(&Request::default())).len() > 5000);
    }
}
