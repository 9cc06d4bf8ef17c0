//! Items with a thousand different TTLs: memory stays within its budget, and each item expires in the right second.

use super::client::Client;
use super::{Finding, MEMORY_MIB, bytes_to_mib, compute_budget_mib};
use crate::bench::{Error, ServerPair};
use crate::load::{
    self, Batch, KeyResult, LoadPlan, NextStep, Rng, Size, Values, Workload, format_key,
};
use crate::server_process::ServerProcess;

/// Fills the memory with items of 1,000 different TTLs; then checks the expiry of one key of each.
pub(super) fn check_ttls(servers: &ServerPair) -> Result<Vec<Finding>, Error> {
    let mut server_command = servers.ours(MEMORY_MIB);
    server_command.environment.push(("MEMCACHED_DEBUG".to_owned(), "1".to_owned()));
    let server = server_command.start().map_err(Error::Start)?;
    let mut rng = Rng::new(11);
    let mut ttls_s: Vec<u32> = (0..1000).map(|_| 1 + rng.below(30 * 86_400) as u32).collect();
    let values = Values::new(Size::Fixed(230), 1);
    let key_count = 3 * (MEMORY_MIB << 20) / 250;
    let plan = LoadPlan {
        connections: 8,
        depth: 64,
        stop: servers.stop.clone(),
        ..LoadPlan::new(server.address)
    };
    let workload =
        ExpiringSets { next_id: 0, key_count, ttls_s: ttls_s.clone(), values, refused: 0 };
    let (_, workloads) =
        load::run(&plan, vec![workload], &server.meter()).map_err(Error::load(server.name))?;
    let refused: u64 = workloads.iter().map(|workload| workload.refused).sum();
    let resident_full_mib = bytes_to_mib(server.read_resident_bytes());
    ttls_s.sort_unstable();
    let wrong_expiries = count_wrong_expiries(&server, &ttls_s)
        .map_err(|error| Error::load(server.name)(error.into()))?;
    let workload_name = "1,000 TTLs, 1 s to 30 d";
    let resident_after_mib = bytes_to_mib(server.read_resident_bytes());
    Ok(vec![
        Finding::new(
            workload_name,
            0.0,
            wrong_expiries as f64,
            "of 1,000 keys expired too early or more than a second late",
        ),
        Finding::new(workload_name, 0.0, refused as f64, "sets refused while memory is full"),
        Finding::new(
            workload_name,
            compute_budget_mib(MEMORY_MIB),
            resident_full_mib.max(resident_after_mib),
            "MiB resident at -m 64",
        ),
    ])
}

struct ExpiringSets {
    next_id: u64,
    key_count: u64,
    ttls_s: Vec<u32>,
    values: Values,
    refused: u64,
}

impl Workload for ExpiringSets {
    fn next(&mut self, _connection: usize, batch: &mut Batch<'_>) -> NextStep {
        if self.next_id == self.key_count {
            return NextStep::Finished;
        }
        let ttl_s = self.ttls_s.get(self.next_id as usize % self.ttls_s.len().max(1)).copied();
        batch.set(self, self.next_id, ttl_s.unwrap_or(1));
        self.next_id += 1;
        NextStep::Sent
    }

    fn write_key(&self, id: u64, text: &mut Vec<u8>) {
        text.extend_from_slice(&format_key(id));
    }

    fn value(&self, id: u64) -> &[u8] {
        self.values.of(id)
    }

    fn on_result(&mut self, _connection: usize, _id: u64, result: KeyResult) {
        self.refused += u64::from(result != KeyResult::Stored);
    }
}

/// Sets one key for each TTL, moves the server's clock to the last second of each and one further.
///
/// Returns how many expired too early or too late. The server's clock also advances by itself, hence the tolerance
/// for a key with `t0`; see `read_remaining_ttl_s`.
fn count_wrong_expiries(server: &ServerProcess, ttls_s: &[u32]) -> std::io::Result<u64> {
    let mut client = Client::connect(server.address)?;
    for (ttl_index, ttl_s) in ttls_s.iter().enumerate() {
        client.call(&format!("set ttl{ttl_index} 0 {ttl_s} 2\r\nhi"))?;
    }
    let mut wrong_expiries = 0;
    for (ttl_index, _) in ttls_s.iter().enumerate() {
        let key = format!("ttl{ttl_index}");
        // Whether the key expired in the right second; `None` if it had expired before the check.
        let check_expiry = |client: &mut Client| -> std::io::Result<Option<bool>> {
            let Some(remaining_s) = read_remaining_ttl_s(client, &key)? else {
                return Ok(None);
            };
            if remaining_s > 1 {
                client.call(&format!("debugtime {}", remaining_s - 1))?;
            }
            let remaining_at_last_second_s = read_remaining_ttl_s(client, &key)?;
            client.call("debugtime 1")?;
            let is_gone = read_remaining_ttl_s(client, &key)?.is_none();
            Ok(Some(
                is_gone
                    && remaining_at_last_second_s.is_none_or(|last_second_s| last_second_s <= 1),
            ))
        };
        match check_expiry(&mut client)? {
            Some(true) => {}
            Some(false) => wrong_expiries += 1,
            // Expired before the check: correct only if an earlier key with nearly the same TTL moved the clock this
            // far.
            None => {
                let previous_ttl_s = ttl_index
                    .checked_sub(1)
                    .and_then(|previous_ttl_index| ttls_s.get(previous_ttl_index))
                    .copied()
                    .unwrap_or(0);
                let ttl_s = ttls_s.get(ttl_index).copied().unwrap_or(0);
                wrong_expiries += u64::from(ttl_s > previous_ttl_s + 2);
            }
        }
    }
    Ok(wrong_expiries)
}

/// The remaining TTL from `mg <key> t`; `None` for a miss.
fn read_remaining_ttl_s(client: &mut Client, key: &str) -> std::io::Result<Option<i64>> {
    let reply = client.call(&format!("mg {key} t"))?;
    Ok(reply.strip_prefix("HD t").and_then(|digits| digits.parse().ok()))
}
