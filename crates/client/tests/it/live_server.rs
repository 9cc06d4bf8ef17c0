//! A server of ours in this process.

use std::path::Path;

use glasscache_server::{Address, Config, Listen, RunningServer, UsersFile};

/// A server on a free port; it stops when dropped.
pub(crate) struct Server {
    running_server: Option<RunningServer>,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::launch(None, None)
    }

    /// A server at which clients have to log in.
    pub(crate) fn with_users(users: UsersFile) -> Self {
        Self::launch(Some(users), None)
    }

    /// A server that also listens on a unix socket.
    pub(crate) fn on_unix_socket(path: &Path) -> Self {
        Self::launch(None, Some(Listen::Unix { path: path.to_owned(), mode: 0o700, group: None }))
    }

    fn launch(users: Option<UsersFile>, unix_socket: Option<Listen>) -> Self {
        let tcp_port = Listen::Tcp(([127, 0, 0, 1], 0).into());
        let config = Config {
            users,
            listeners: [tcp_port].into_iter().chain(unix_socket).collect(),
            memory_bytes: 64 << 20,
            workers: 1,
            ..Config::default()
        };
        let running_server = glasscache_server::start(config).unwrap();
        let tcp_address = running_server.addresses().iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.to_string()),
            Address::Unix(_) => None,
        });
        Self { address: tcp_address.unwrap(), running_server: Some(running_server) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running_server) = self.running_server.take() {
            running_server.stop();
            running_server.join();
        }
    }
}
