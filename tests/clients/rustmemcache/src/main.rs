//! Every operation of rust-memcache in both of its protocols: rustmemcache PORT, with the authority of the server,
//! which encrypts, in `TLS_AUTHORITY`.

use std::collections::HashMap;

/// Notes whether operations did as the client promises.
#[derive(Default)]
struct Checks {
    check_count: usize,
    failure_count: usize,
}

impl Checks {
    fn check(&mut self, operation: &str, is_met: bool) {
        self.check_count += 1;
        if !is_met {
            self.failure_count += 1;
            println!("  FAIL {operation}");
        }
    }
}

fn run_all_operations(
    client: &memcache::Client,
    protocol: &str,
    checks: &mut Checks,
) -> Result<(), memcache::MemcacheError> {
    let mut check =
        |operation: &str, is_met| checks.check(&format!("{protocol} {operation}"), is_met);
    client.flush()?;
    client.set("a", "text", 0)?;
    check("get", client.get::<String>("a")?.as_deref() == Some("text"));
    check("get of nothing", client.get::<String>("none")?.is_none());
    let large = "x".repeat(900_000);
    client.set("large", large.as_str(), 100)?;
    check("large value", client.get::<String>("large")? == Some(large));
    client.set("b", "two", 0)?;
    let values: HashMap<String, String> = client.gets(&["a", "b", "none"])?;
    check("gets", values.len() == 2 && values["b"] == "two");
    // In the text protocol a condition that does not hold is no error of this client.
    let _ = client.add("a", "other", 0);
    check(
        "add again",
        client.get::<String>("a")?.as_deref() == Some("text"),
    );
    client.add("c", "1", 0)?;
    client.replace("c", "2", 0)?;
    let _ = client.replace("none", "2", 0);
    check(
        "replace of nothing",
        client.get::<String>("none")?.is_none(),
    );
    client.append("c", "3")?;
    client.prepend("c", "1")?;
    check(
        "append and prepend",
        client.get::<String>("c")?.as_deref() == Some("123"),
    );
    let found_items: HashMap<String, (Vec<u8>, u32, Option<u64>)> = client.gets(&["c"])?;
    let (_, _, unique) = &found_items["c"];
    let unique = unique.unwrap_or_default();
    check("cas", client.cas("c", "4", 0, unique)?);
    check("cas again", !client.cas("c", "5", 0, unique)?);
    client.set("n", 5, 0)?;
    check("increment", client.increment("n", 3)? == 8);
    check("decrement", client.decrement("n", 1)? == 7);
    check("touch", client.touch("n", 100)?);
    check("touch of nothing", !client.touch("none", 100)?);
    check("delete", client.delete("n")?);
    check("delete of nothing", !client.delete("n")?);
    check("version", client.version()?.len() == 1);
    // 0.21 stops at the first line of the statistics in the text protocol.
    check(
        "stats",
        protocol == "ascii" || client.stats()?[0].1.contains_key("pid"),
    );
    Ok(())
}

fn main() {
    let port = std::env::args().nth(1).expect("a port");
    let authority = std::env::var("TLS_AUTHORITY").expect("an authority");
    let mut checks = Checks::default();
    for protocol in ["ascii", "binary"] {
        let server = format!(
            "memcache+tls://localhost:{port}?verify_mode=peer&ca_path={authority}&protocol={protocol}"
        );
        let outcome =
            memcache::connect(server).and_then(|client| run_all_operations(&client, protocol, &mut checks));
        if let Err(error) = outcome {
            println!("{protocol}: {error}");
            checks.check("all operations", false);
        }
    }
    println!(
        "{} of {} operations",
        checks.check_count - checks.failure_count,
        checks.check_count
    );
    std::process::exit(i32::from(checks.failure_count > 0));
}
