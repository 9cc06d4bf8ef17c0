//! The connections of a server, from the rows of `stats conns`.

/// How long each client connection has sent no command, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connections {
    idle_s: Vec<u64>,
}

impl Connections {
    /// Reads the rows of `stats conns`: the connections of clients, without the sockets that listen.
    ///
    /// Rows of one connection follow each other: its address, its state, the time since its last command.
    pub fn of<'r>(rows: impl IntoIterator<Item = (&'r str, &'r str)>) -> Connections {
        let mut connections = Connections::default();
        let mut is_client = false;
        for (name, value) in rows {
            match name.split_once(':').map_or(name, |(_, field)| field) {
                "addr" => is_client = !value.starts_with("udp"),
                "state" => is_client &= value != "conn_listening",
                "secs_since_last_cmd" if is_client => {
                    connections.idle_s.extend(value.parse::<u64>());
                }
                _ => {}
            }
        }
        connections
    }

    /// How many have sent no command for this long.
    pub(crate) fn count_idle(&self, seconds: u64) -> u64 {
        self.idle_s.iter().filter(|&&idle_s| idle_s >= seconds).count() as u64
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> u64 {
        self.idle_s.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_no_connections() {
        let connections = Connections::of([
            ("6:addr", "tcp:127.0.0.1:11211"),
            ("6:state", "conn_listening"),
            ("6:secs_since_last_cmd", "90"),
            ("9:addr", "tcp:127.0.0.1:50000"),
            ("9:listen_addr", "tcp:127.0.0.1:11211"),
            ("9:state", "conn_parse_cmd"),
            ("9:secs_since_last_cmd", "0"),
            ("10:addr", "unix:"),
            ("10:state", "conn_read"),
            ("10:secs_since_last_cmd", "80"),
            ("11:addr", "udp:127.0.0.1:11211"),
            ("11:state", "conn_read"),
            ("11:secs_since_last_cmd", "0"),
        ]);
        assert_eq!((connections.count(), connections.count_idle(60)), (2, 1));
    }
}
