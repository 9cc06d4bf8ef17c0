//! The scanner of a server's bytes: it finds the replies that report sizes of values, however the bytes arrive.

/// The longest line that is parsed: heads of values are shorter.
const LINE_BYTES_MAX: usize = 2048;

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplyEvent {
    /// `VALUE`: a key and the bytes of its value.
    Value(Vec<u8>, u64),
    /// `END`.
    End,
    /// `VA`: opaque and key as far as the reply has them, and the bytes of the value.
    MetaValue {
        /// The opaque.
        opaque: Option<Vec<u8>>,
        /// The key as sent.
        key: Option<Vec<u8>>,
        /// The bytes of the value.
        value_bytes: u64,
    },
    /// `EN`: a miss.
    MetaMiss,
    /// `MN`: the reply to a noop.
    Noop,
}

/// Cuts the bytes of a server into replies.
#[derive(Debug, Default)]
pub(super) struct ReplyScanner {
    /// The beginning of a line that is not complete.
    partial_line: Vec<u8>,
    /// Bytes of a value that are still to come.
    skip_bytes: u64,
    /// The line is longer than any that is parsed; the rest of it is skipped.
    is_too_long: bool,
}

impl ReplyScanner {
    /// Takes what the server sent next.
    pub(super) fn scan(&mut self, mut bytes: &[u8], emit: &mut dyn FnMut(ReplyEvent)) {
        loop {
            let skipped_bytes = self.skip_bytes.min(bytes.len() as u64);
            self.skip_bytes -= skipped_bytes;
            bytes = bytes.get(skipped_bytes as usize..).unwrap_or_default();
            let newline_index = bytes.iter().position(|&byte| byte == b'\n');
            let Some((line_tail, rest)) =
                newline_index.and_then(|newline_index| bytes.split_at_checked(newline_index + 1))
            else {
                self.append_to_line(bytes);
                return;
            };
            self.append_to_line(line_tail);
            bytes = rest;
            let line = std::mem::take(&mut self.partial_line);
            if !std::mem::take(&mut self.is_too_long) {
                self.parse_line(line.trim_ascii_end(), emit);
            }
        }
    }

    fn append_to_line(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.partial_line.len() + bytes.len() > LINE_BYTES_MAX;
        if self.is_too_long {
            self.partial_line.clear();
        } else {
            self.partial_line.extend_from_slice(bytes);
        }
    }

    fn parse_line(&mut self, line: &[u8], emit: &mut dyn FnMut(ReplyEvent)) {
        let mut tokens = line.split(|&byte| byte == b' ');
        let parse_number = |token: Option<&[u8]>| -> Option<u64> {
            std::str::from_utf8(token?).ok()?.parse().ok()
        };
        match tokens.next() {
            Some(b"VALUE") => {
                let key = tokens.next().unwrap_or_default();
                tokens.next();
                if let Some(value_bytes) = parse_number(tokens.next()) {
                    self.skip_bytes = value_bytes.saturating_add(2);
                    emit(ReplyEvent::Value(key.to_vec(), value_bytes));
                }
            }
            Some(b"VA") => {
                if let Some(value_bytes) = parse_number(tokens.next()) {
                    self.skip_bytes = value_bytes.saturating_add(2);
                    let flags: Vec<&[u8]> = tokens.collect();
                    let flag_argument = |letter: u8| {
                        let argument = flags.iter().find_map(|token| token.strip_prefix(&[letter]));
                        argument.map(<[u8]>::to_vec)
                    };
                    emit(ReplyEvent::MetaValue {
                        opaque: flag_argument(b'O'),
                        key: flag_argument(b'k'),
                        value_bytes,
                    });
                }
            }
            Some(b"END") => emit(ReplyEvent::End),
            Some(b"EN") => emit(ReplyEvent::MetaMiss),
            Some(b"MN") => emit(ReplyEvent::Noop),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[u8] = b"VALUE a 0 6 17\r\nEND\r\n \r\nEND\r\nSTORED\r\nVA 2 Oab t-1 kk\r\nMN\r\nVA 0\r\n\r\nEN\r\nMN\r\n";

    #[test]
    fn replies_are_found_however_their_bytes_arrive_and_values_are_passed_over() {
        let expected = [
            ReplyEvent::Value(b"a".to_vec(), 6),
            ReplyEvent::End,
            ReplyEvent::MetaValue {
                opaque: Some(b"ab".to_vec()),
                key: Some(b"k".to_vec()),
                value_bytes: 2,
            },
            ReplyEvent::MetaValue { opaque: None, key: None, value_bytes: 0 },
            ReplyEvent::MetaMiss,
            ReplyEvent::Noop,
        ];
        for length in 1..REPLIES.len() {
            let (mut scanner, mut events) = (ReplyScanner::default(), Vec::new());
            for piece in REPLIES.chunks(length) {
                scanner.scan(piece, &mut |event| events.push(event));
            }
            assert_eq!(events, expected, "pieces of {length}");
        }
    }

    #[test]
    fn long_lines_take_no_memory() {
        let mut scanner = ReplyScanner::default();
        let mut events = Vec::new();
        for _ in 0..100 {
            scanner.scan(&[b'x'; 4096], &mut |event| events.push(event));
            assert!(scanner.partial_line.len() <= LINE_BYTES_MAX);
        }
        scanner.scan(b"\r\nEND\r\n", &mut |event| events.push(event));
        assert_eq!(events, [ReplyEvent::End]);
    }
}
