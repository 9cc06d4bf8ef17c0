//! Clients that stop reading or writing: memory stays bounded, and other clients do not wait.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::super::memory::fill;
use super::super::scenario::Scenario;
use super::super::speed::measure_load;
use super::super::{Error, Sides};
use super::{Finding, MEMORY_MIB, budget_mib, mib};
use crate::load::{Size, Values, key_text};

/// Clients that request megabytes and do not read them, uploads that stop half-way, and a normal reader at the same
/// time.
pub(super) fn stalled(sides: &Sides) -> Result<Vec<Finding>, Error> {
    const STALLED: usize = 64;
    let server = sides.ours(MEMORY_MIB).start().map_err(Error::Start)?;
    let scenario = Scenario::parse(
        "[[scenario]]\nname = 'reader'\ntitle = 'reader'\nkeys = 10000\nvalue_bytes = 32\nconnections = 8\nrate = 20000.0\nseconds = 3.0",
    )
    .ok()
    .and_then(|scenarios| scenarios.into_iter().next());
    let Some(scenario) = scenario else {
        return Ok(Vec::new());
    };
    let values = Values::new(scenario.size(), 1);
    let reader_sides = Sides {
        layout: sides.layout.reader(),
        ..sides.clone()
    };
    fill(
        sides,
        &server,
        &(scenario.first_id()..scenario.first_id() + scenario.keys),
        &values,
    )?;
    let big = Values::new(Size::Fixed(1_000_000), 2);
    fill(sides, &server, &(0..8), &big)?;
    let baseline = measure_load(
        &reader_sides,
        &server,
        &scenario,
        &values,
        (scenario.dialect, 1),
    )?;
    let io = |error: std::io::Error| Error::load(server.name)(error.into());
    let mut sockets = Vec::new();
    for at in 0..STALLED {
        sockets.push(stalled_reader(server.address).map_err(io)?);
        sockets.push(stalled_upload(server.address, at).map_err(io)?);
    }
    let (stop, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let loaded = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(server.resident_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let loaded = measure_load(
            &reader_sides,
            &server,
            &scenario,
            &values,
            (scenario.dialect, 2),
        );
        stop.store(true, Ordering::Relaxed);
        loaded
    })?;
    drop(sockets);
    let what = "64 stalled readers of 1 MB and 64 stalled uploads";
    let note = format!(
        "p99 of the reader over that without them ({:.0} / {:.0} us)",
        loaded.p99_us, baseline.p99_us
    );
    let resident = mib(peak.load(Ordering::Relaxed));
    Ok(vec![
        Finding::new(
            what,
            budget_mib(MEMORY_MIB),
            resident,
            "MiB resident at -m 64, peak",
        ),
        Finding::new(what, 2.0, loaded.p99_us / baseline.p99_us, note),
    ])
}

fn stalled_reader(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    for id in 0..8_u64 {
        let mut request = b"get ".to_vec();
        request.extend_from_slice(&key_text(id));
        request.extend_from_slice(b"\r\n");
        socket.write_all(&request)?;
    }
    Ok(socket)
}

fn stalled_upload(address: SocketAddr, at: usize) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nonblocking(true)?;
    let mut request = format!("set upload{at} 0 0 1000000\r\n").into_bytes();
    request.resize(500_000, b'u');
    let mut sent = 0;
    while let Some(rest) = request.get(sent..).filter(|rest| !rest.is_empty()) {
        match socket.write(rest) {
            Ok(bytes) => sent += bytes,
            // The server stops reading or closes the connection when its budget is full.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    Ok(socket)
}
