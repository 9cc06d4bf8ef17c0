//! The Rust client: store, read back, and read many with one request.
//!
//! `cargo run -p glasscache-client --example look_aside [HOST:PORT]` expects a server, such as `glasscache serve`.

use std::io::Write;
use std::time::Duration;

use glasscache_client::request::Item;
use glasscache_client::{Address, Budget, Client, Options, Placement, StoreMode, WireKey};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1);
    let servers = Address::parse_list(server.as_deref().unwrap_or("127.0.0.1:11211"))?;
    let client = Client::new(&servers, Placement::Ketama, Options::default())?;
    let budget = || Budget::new(Duration::from_millis(250));
    let key = WireKey { bytes: b"example:greeting", is_base64: false };
    if client.get(key, false, &budget())?.is_none() {
        let item = Item { key, flags: 0, body: b"hello" };
        client.store(StoreMode::Set, item, 60, false, &budget())?;
    }
    let found_value = client.get(key, false, &budget())?;
    let found_text = found_value.map(|value| String::from_utf8_lossy(&value.bytes).into_owned());
    let printed_text = found_text.as_deref().unwrap_or("(evicted already)");
    writeln!(std::io::stdout(), "{printed_text}")?;
    client.delete(key, false, &budget())?;
    Ok(())
}
