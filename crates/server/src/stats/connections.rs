//! `stats conns`: each socket, what it is doing, and how long ago it did it.

use std::sync::atomic::Ordering;

use super::rows::Rows;
use crate::address::Address;
use crate::info::{Info, Peer};
use crate::turn::Turn;

/// Connections in one slice, of four lines each.
const SLICE_CONNECTIONS: usize = 256;

/// Appends a slice of the rows: first the listening sockets, then the connections behind the serial number `after`,
/// at last END; true when it is complete.
pub(crate) fn write(after: &mut u64, turn: &Turn<'_>, out: &mut Vec<u8>) -> bool {
    if *after == 0 {
        listeners(turn, &mut Rows::new(out));
    }
    let connections = turn
        .shared
        .connections
        .list_after(*after, SLICE_CONNECTIONS);
    turn.counters.examined.add(connections.len() as u64);
    let mut rows = Rows::new(out);
    for info in &connections {
        connection(info, turn, &mut rows);
        *after = info.id.serial;
    }
    let is_done = connections.len() < SLICE_CONNECTIONS;
    if is_done {
        rows.end();
    }
    is_done
}

fn listeners(turn: &Turn<'_>, rows: &mut Rows<'_>) {
    for (descriptor, address) in &turn.shared.addresses {
        rows.row(format_args!("{descriptor}:addr"), shown(address));
        rows.row(format_args!("{descriptor}:state"), "conn_listening");
        let uptime = turn.now.0.saturating_sub(2);
        rows.row(format_args!("{descriptor}:secs_since_last_cmd"), uptime);
    }
    for (index, address) in turn.shared.config.shown.udp.iter().enumerate() {
        // The caller holds these; they have a number that no socket of ours can have.
        let number = 1_000_000 + index;
        rows.row(format_args!("{number}:addr"), format_args!("udp:{address}"));
        rows.row(format_args!("{number}:state"), "conn_read");
        rows.row(format_args!("{number}:secs_since_last_cmd"), 0);
    }
}

fn connection(info: &Info, turn: &Turn<'_>, rows: &mut Rows<'_>) {
    let descriptor = info.id.descriptor;
    let address = match &info.peer {
        Peer::Tcp(peer) => shown(&Address::Tcp(*peer)),
        Peer::Unix => "unix:".to_owned(),
    };
    let is_asking = info.id == turn.connection.id;
    rows.row(format_args!("{descriptor}:addr"), address);
    if let Some((_, listener)) = turn.shared.addresses.get(info.listener) {
        rows.row(format_args!("{descriptor}:listen_addr"), shown(listener));
    }
    let state = if is_asking {
        "conn_parse_cmd"
    } else {
        info.state()
    };
    rows.row(format_args!("{descriptor}:state"), state);
    let idle = turn
        .now
        .0
        .saturating_sub(info.last_command.load(Ordering::Relaxed));
    rows.row(format_args!("{descriptor}:secs_since_last_cmd"), idle);
}

/// An address in memcached's form.
fn shown(address: &Address) -> String {
    match address {
        Address::Tcp(address) if address.is_ipv6() => format!("tcp6:{address}"),
        Address::Tcp(address) => format!("tcp:{address}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}
