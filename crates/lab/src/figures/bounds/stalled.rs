//! Clients that stop reading or writing: memory stays bounded, and other clients do not wait.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::super::scenario::Scenario;
use super::super::speed::measure_load;
use super::{Finding, MEMORY_MIB, bytes_to_mib, compute_budget_mib};
use crate::bench::memory::fill;
use crate::bench::{Error, ServerPair};
use crate::load::{Size, Values, format_key};

/// Clients that request megabytes and do not read them, uploads that stop half-way, and a normal reader at the same
/// time.
pub(super) fn check_stalled_clients(servers: &ServerPair) -> Result<Vec<Finding>, Error> {
    const STALLED_PAIRS: usize = 64;
    let server = servers.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let scenario = Scenario::parse(
        "[[scenario]]\nname = 'reader'\ntitle = 'reader'\nkeys = 10000\nvalue_bytes = 32\nconnections = 8\nrate = 20000.0\nseconds = 3.0",
    )
    .ok()
    .and_then(|scenarios| scenarios.into_iter().next());
    let Some(scenario) = scenario else {
        return Ok(Vec::new());
    };
    let values = Values::new(scenario.size(), 1);
    let reader_servers = ServerPair { layout: servers.layout.reader_layout(), ..servers.clone() };
    fill(servers, &server, &(scenario.first_id()..scenario.first_id() + scenario.keys), &values)?;
    let large_values = Values::new(Size::Fixed(1_000_000), 2);
    fill(servers, &server, &(0..8), &large_values)?;
    let baseline =
        measure_load(&reader_servers, &server, &scenario, &values, (scenario.protocol, 1))?;
    let load_error = |error: std::io::Error| Error::load(server.name)(error.into());
    let mut sockets = Vec::new();
    for pair_index in 0..STALLED_PAIRS {
        sockets.push(open_stalled_reader(server.address).map_err(load_error)?);
        sockets.push(open_stalled_upload(server.address, pair_index).map_err(load_error)?);
    }
    let (stop, resident_peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let measured_with_stalled = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                resident_peak.fetch_max(server.read_resident_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let measured_with_stalled =
            measure_load(&reader_servers, &server, &scenario, &values, (scenario.protocol, 2));
        stop.store(true, Ordering::Relaxed);
        measured_with_stalled
    })?;
    drop(sockets);
    let workload_name = "64 stalled readers of 1 MB and 64 stalled uploads";
    let note = format!(
        "p99 of the reader over that without them ({:.0} / {:.0} us)",
        measured_with_stalled.p99_us, baseline.p99_us
    );
    let resident_mib = bytes_to_mib(resident_peak.load(Ordering::Relaxed));
    Ok(vec![
        Finding::new(
            workload_name,
            compute_budget_mib(MEMORY_MIB),
            resident_mib,
            "MiB resident at -m 64, peak",
        ),
        Finding::new(workload_name, 2.0, measured_with_stalled.p99_us / baseline.p99_us, note),
    ])
}

fn open_stalled_reader(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    for id in 0..8_u64 {
        let mut request = b"get ".to_vec();
        request.extend_from_slice(&format_key(id));
        request.extend_from_slice(b"\r\n");
        socket.write_all(&request)?;
    }
    Ok(socket)
}

fn open_stalled_upload(address: SocketAddr, upload_index: usize) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nonblocking(true)?;
    let mut partial_request = format!("set upload{upload_index} 0 0 1000000\r\n").into_bytes();
    partial_request.resize(500_000, b'u');
    let mut sent_bytes = 0;
    while let Some(unsent) = partial_request.get(sent_bytes..).filter(|unsent| !unsent.is_empty()) {
        match socket.write(unsent) {
            Ok(written_bytes) => sent_bytes += written_bytes,
            // The server stops reading or closes the connection when its budget is full.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    Ok(socket)
}
