//! Prints the server index of each key on standard input: `server_of ketama 10.0.0.1:11211*2 10.0.0.2:11212 < keys`.
//!
//! `make placement` compares these lines with the output of the other clients.

use std::io::{BufRead, BufWriter, Write};

use glasscache_client::ring::{Placement, Ring, RingServer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let placement: Placement = arguments.next().ok_or("which placement?")?.parse()?;
    let servers =
        arguments.map(|argument| parse_server(&argument)).collect::<Result<Vec<_>, _>>()?;
    let ring = Ring::new(&servers, placement)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for key in std::io::stdin().lock().split(b'\n') {
        writeln!(out, "{}", ring.server_of(&key?))?;
    }
    Ok(out.flush()?)
}

fn parse_server(address_and_weight: &str) -> Result<RingServer, Box<dyn std::error::Error>> {
    let (address, weight) = address_and_weight.split_once('*').unwrap_or((address_and_weight, "1"));
    let (host, port) = address.rsplit_once(':').ok_or("host:port*weight")?;
    Ok(RingServer::tcp(host, port.parse()?).with_weight(weight.parse()?))
}
