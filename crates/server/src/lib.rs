//! The memcached-compatible server: listeners, epoll workers and command execution.
