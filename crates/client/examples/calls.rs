//! Repeats one call: `calls SERVER get|set|get-many|none COUNT`; `make instructions` counts what it costs.

use std::time::Duration;

use glasscache_client::call::receive_first_replies;
use glasscache_client::engine::operation::{Get, Store};
use glasscache_client::request::Item;
use glasscache_client::{Address, Budget, Client, Error, Options, Placement, StoreMode, WireKey};

const TIMEOUT: Duration = Duration::from_mins(1);
const VALUE: [u8; 32] = [b'v'; 32];
const KEYS_PER_GET: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, operation, count] = &arguments[..] else {
        return Err("usage: calls SERVER get|set|get-many|none COUNT".into());
    };
    let options = Options { timeout: TIMEOUT, ..Options::default() };
    let client = Client::new(&Address::parse_list(server)?, Placement::Ketama, options)?;
    let keys: Vec<String> = (0..KEYS_PER_GET).map(|number| format!("key-{number:04}")).collect();
    for key in &keys {
        store(&client, key)?;
    }
    let key_bytes: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    for _ in 0..count.parse()? {
        match operation.as_str() {
            "get" => {
                let get = Get { key: wire_key(&keys[0]), cas: false };
                client.run(&get, &Budget::new(TIMEOUT))?.ok_or("a miss")?;
            }
            "set" => store(&client, &keys[0])?,
            "get-many" => {
                let (budget, mut value_count) = (Budget::new(TIMEOUT), 0);
                client.read_many(
                    &key_bytes,
                    false,
                    &budget,
                    |calls| {
                        while !receive_first_replies(calls) {}
                        Ok(())
                    },
                    |_, _, _| value_count += 1,
                )?;
                assert_eq!(value_count, KEYS_PER_GET, "every key has a value");
            }
            "none" => {}
            _ => return Err(format!("unknown operation {operation:?}").into()),
        }
    }
    Ok(())
}

fn store(client: &Client, key: &str) -> Result<(), Error> {
    let set = Store {
        mode: StoreMode::Set,
        item: Item { key: wire_key(key), flags: 0, body: &VALUE },
        exptime: 0,
        noreply: false,
    };
    client.run(&set, &Budget::new(TIMEOUT)).map(drop)
}

fn wire_key(key: &str) -> WireKey<'_> {
    WireKey { bytes: key.as_bytes(), is_base64: false }
}
