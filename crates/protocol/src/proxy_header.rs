//! The header of the PROXY protocol, versions 1 and 2: what a proxy sends first on each connection, with the address
//! of its client.
//!
//! Written after `doc/proxy-protocol.txt` of haproxy. Version 1 is a line of text, version 2 a
//! signature, lengths and addresses in binary. Whoever may send a header may claim any address, so servers read
//! it from known proxies alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header of version 1 in bytes, its line end included.
const V1_LINE_BYTES_MAX: usize = 107;

/// What a header of version 2 begins with.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of a header of version 2 before its addresses.
const V2_HEAD_BYTES: usize = 16;

/// Longest header of version 2 in bytes: addresses, and extensions that are ignored. Proxies send a few hundred.
pub const HEADER_BYTES_MAX: usize = 1024;

/// The front of a connection that begins with a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The header has not arrived whole.
    Incomplete,
    /// A header of `used` bytes. `None`: the connection is the proxy's own, or its client has no address.
    Header {
        /// The client's address.
        client: Option<SocketAddr>,
        /// Length of the header in bytes.
        used: usize,
    },
    /// Not a header.
    Invalid,
}

/// Parses the header at the front of `input`.
pub fn parse(input: &[u8]) -> Parsed {
    let length = input.len().min(V2_SIGNATURE.len());
    if input.get(..length) == V2_SIGNATURE.get(..length) {
        return parse_v2_header(input).unwrap_or(Parsed::Incomplete);
    }
    match memchr::memchr(b'\n', input.get(..V1_LINE_BYTES_MAX).unwrap_or(input)) {
        Some(end) => {
            let line = input.get(..end).and_then(|line| line.strip_suffix(b"\r"));
            let header = line.and_then(|line| parse_v1_header(line, end + 1));
            header.unwrap_or(Parsed::Invalid)
        }
        None if input.len() >= V1_LINE_BYTES_MAX || !is_v1_prefix(input) => Parsed::Invalid,
        None => Parsed::Incomplete,
    }
}

/// Whether the input may be the beginning of a line of version 1.
fn is_v1_prefix(input: &[u8]) -> bool {
    const V1_PREFIX: &[u8] = b"PROXY ";
    let length = input.len().min(V1_PREFIX.len());
    input.get(..length) == V1_PREFIX.get(..length)
}

/// A line of `used` bytes, without its end: `PROXY TCP4 192.0.2.1 192.0.2.2 50000 11211`; `None` is invalid.
fn parse_v1_header(line: &[u8], used: usize) -> Option<Parsed> {
    let text = std::str::from_utf8(line).ok()?;
    let mut fields = text.split(' ');
    if fields.next()? != "PROXY" {
        return None;
    }
    let family = fields.next()?;
    if family == "UNKNOWN" {
        return Some(Parsed::Header { client: None, used });
    }
    let (source, _destination): (IpAddr, IpAddr) =
        (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let (port, _) = (parse_port(fields.next()?)?, parse_port(fields.next()?)?);
    let matches_family = match family {
        "TCP4" => source.is_ipv4(),
        "TCP6" => source.is_ipv6(),
        _ => false,
    };
    let client = Some(SocketAddr::new(source, port));
    (matches_family && fields.next().is_none()).then_some(Parsed::Header { client, used })
}

/// A port in decimal, without a sign or leading zeros.
fn parse_port(text: &str) -> Option<u16> {
    let is_canonical =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    is_canonical.then(|| text.parse().ok()).flatten()
}

/// A header whose signature, as far as it has arrived, is that of version 2; `None` is incomplete.
fn parse_v2_header(input: &[u8]) -> Option<Parsed> {
    let (head, _) = input.split_first_chunk::<V2_HEAD_BYTES>()?;
    let [.., version_and_command, family, length_high, length_low] = *head;
    let used = V2_HEAD_BYTES + usize::from(u16::from_be_bytes([length_high, length_low]));
    let (version, command) = (version_and_command >> 4, version_and_command & 0xf);
    if version != 2 || command > 1 || used > HEADER_BYTES_MAX {
        return Some(Parsed::Invalid);
    }
    let addresses = input.get(V2_HEAD_BYTES..used)?;
    if command == 0 {
        // LOCAL: a check of the proxy itself.
        return Some(Parsed::Header { client: None, used });
    }
    let client = match family {
        0x11 => addresses.split_first_chunk::<12>().map(|(address_bytes, _)| {
            let [a, b, c, d, _, _, _, _, port_high, port_low, _, _] = *address_bytes;
            SocketAddr::new(
                Ipv4Addr::new(a, b, c, d).into(),
                u16::from_be_bytes([port_high, port_low]),
            )
        }),
        0x21 => addresses.split_first_chunk::<36>().and_then(|(address_bytes, _)| {
            let (octets, after_address) = address_bytes.split_first_chunk::<16>()?;
            let port_bytes = after_address.get(16..18)?.try_into().ok()?;
            let address = Ipv6Addr::from_octets(*octets);
            Some(SocketAddr::new(address.into(), u16::from_be_bytes(port_bytes)))
        }),
        // Unspecified, datagrams and unix sockets: the connection is served, its client is not known.
        _ => return Some(Parsed::Header { client: None, used }),
    };
    Some(match client {
        Some(client) => Parsed::Header { client: Some(client), used },
        None => Parsed::Invalid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of_client(address: &str, used: usize) -> Parsed {
        let client = Some(address.parse().unwrap());
        Parsed::Header { client, used }
    }

    fn v2_header(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let mut bytes = V2_SIGNATURE.to_vec();
        bytes.extend_from_slice(&[0x20 | command, family]);
        bytes.extend_from_slice(&(addresses.len() as u16).to_be_bytes());
        bytes.extend_from_slice(addresses);
        bytes
    }

    #[test]
    fn both_versions_give_the_clients_address_and_every_part_of_them_is_incomplete() {
        let v1_ipv4 = b"PROXY TCP4 192.0.2.1 192.0.2.2 50000 11211\r\n";
        let v1_ipv6 = b"PROXY TCP6 2001:db8::1 2001:db8::2 50000 11211\r\n";
        let v2_ipv4 = v2_header(1, 0x11, &[192, 0, 2, 1, 192, 0, 2, 2, 0xc3, 0x50, 0x2b, 0xcb]);
        let mut addresses = [0; 40];
        addresses[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        addresses[15] = 1;
        addresses[32..34].copy_from_slice(&[0xc3, 0x50]);
        let v2_ipv6 = v2_header(1, 0x21, &addresses);
        for (bytes, client) in [
            (&v1_ipv4[..], "192.0.2.1:50000"),
            (v1_ipv6, "[2001:db8::1]:50000"),
            (&v2_ipv4, "192.0.2.1:50000"),
            (&v2_ipv6, "[2001:db8::1]:50000"),
        ] {
            for length in 0..bytes.len() {
                assert_eq!(parse(&bytes[..length]), Parsed::Incomplete, "{length}");
            }
            let with_request = [bytes, b"get a\r\n"].concat();
            assert_eq!(parse(&with_request), header_of_client(client, bytes.len()));
        }
    }

    #[test]
    fn a_header_of_the_proxy_itself_has_no_client() {
        for bytes in [
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY UNKNOWN ffff:f::1 x 1 2\r\n".to_vec(),
            v2_header(0, 0x00, b""),
            v2_header(0, 0x11, &[0; 12]),
            v2_header(1, 0x00, b""),
            v2_header(1, 0x31, &[0; 216]),
        ] {
            let used = bytes.len();
            assert_eq!(parse(&bytes), Parsed::Header { client: None, used });
        }
    }

    #[test]
    fn anything_else_is_invalid_as_soon_as_it_is_seen() {
        for bytes in [
            &b"get a\r\n"[..],
            b"PROXIES",
            b"\r\n\r\n\0\r\nQUIX",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 50000 11211\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 50000\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 050000 11211\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 11211\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            b"PROXY TCP4 ::1 ::2 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            &v2_header(2, 0x11, &[0; 12]),
            &v2_header(1, 0x11, &[0; 11]),
            &v2_header(1, 0x21, &[0; 35]),
            &v2_header(1, 0x11, &[0; HEADER_BYTES_MAX]),
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(parse(bytes), Parsed::Invalid, "{text:?}");
        }
        let endless = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
        assert_eq!(parse(&endless), Parsed::Invalid);
    }
}
