//! A minimal server: a port and a number of workers, for profiles and experiments.
//!
//! `cargo run --release -p glasscache-server --example serve -- 11311 2 1024`

use std::net::SocketAddr;

use glasscache_server::{Config, Error, Listen, start};

fn main() -> Result<(), Error> {
    let mut numbers = std::env::args().skip(1).map_while(|argument| argument.parse::<u32>().ok());
    let port = numbers.next().unwrap_or(11311) as u16;
    let workers = numbers.next().unwrap_or(2) as usize;
    let megabytes = u64::from(numbers.next().unwrap_or(64));
    let server = start(Config {
        listeners: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))],
        memory_bytes: megabytes << 20,
        workers,
        pin_workers: true,
        connections_max: 8192,
        ..Config::default()
    })?;
    server.join();
    Ok(())
}
