//! `stats conns`: each socket, its state, and the seconds since its last command.

use std::sync::atomic::Ordering;

use crate::session::context::Context;
use crate::session::rows::Rows;
use crate::shared::address::Address;
use crate::shared::connection_info::{ConnectionInfo, Peer};

/// Connections in one slice, of four lines each.
const SLICE_CONNECTIONS: usize = 256;

/// Appends a slice of the rows: first the listening sockets, then the connections after the serial number
/// `resume_after`, at last END; true when it is complete.
pub(super) fn write_rows(resume_after: &mut u64, context: &Context<'_>, out: &mut Vec<u8>) -> bool {
    if *resume_after == 0 {
        write_listeners(context, &mut Rows::new(out));
    }
    let connections = context.shared.connections.list_after(*resume_after, SLICE_CONNECTIONS);
    context.counters.examined.add(connections.len() as u64);
    let mut rows = Rows::new(out);
    for info in &connections {
        write_connection(info, context, &mut rows);
        *resume_after = info.id.serial;
    }
    let is_done = connections.len() < SLICE_CONNECTIONS;
    if is_done {
        rows.end();
    }
    is_done
}

fn write_listeners(context: &Context<'_>, rows: &mut Rows<'_>) {
    for (descriptor, address) in &context.shared.addresses {
        rows.write_row(format_args!("{descriptor}:addr"), format_address(address));
        rows.write_row(format_args!("{descriptor}:state"), "conn_listening");
        let uptime_s = context.shared.clock.uptime_s(context.now);
        rows.write_row(format_args!("{descriptor}:secs_since_last_cmd"), uptime_s);
    }
    for (index, address) in context.shared.config.display.udp.iter().enumerate() {
        // The caller holds these; they have a number that none of our sockets can have.
        let udp_descriptor = 1_000_000 + index;
        rows.write_row(format_args!("{udp_descriptor}:addr"), format_args!("udp:{address}"));
        rows.write_row(format_args!("{udp_descriptor}:state"), "conn_read");
        rows.write_row(format_args!("{udp_descriptor}:secs_since_last_cmd"), 0);
    }
}

fn write_connection(info: &ConnectionInfo, context: &Context<'_>, rows: &mut Rows<'_>) {
    let descriptor = info.id.descriptor;
    let address = match &info.client() {
        Peer::Tcp(peer) => format_address(&Address::Tcp(*peer)),
        Peer::Unix => "unix:".to_owned(),
    };
    let is_requester = info.id == context.connection.id;
    rows.write_row(format_args!("{descriptor}:addr"), address);
    if let Some((_, listener_address)) = context.shared.addresses.get(info.listener_index) {
        rows.write_row(format_args!("{descriptor}:listen_addr"), format_address(listener_address));
    }
    let state = if is_requester { "conn_parse_cmd" } else { info.state_name() };
    rows.write_row(format_args!("{descriptor}:state"), state);
    let idle_s = context.now.0.saturating_sub(info.last_command_s.load(Ordering::Relaxed));
    rows.write_row(format_args!("{descriptor}:secs_since_last_cmd"), idle_s);
}

/// An address in memcached's form.
fn format_address(address: &Address) -> String {
    match address {
        Address::Tcp(address) if address.is_ipv6() => format!("tcp6:{address}"),
        Address::Tcp(address) => format!("tcp:{address}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}
