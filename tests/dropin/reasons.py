"""Tests of other projects that cannot hold on a drop-in module, with the reason for each."""

from __future__ import annotations

_NEEDS_SOCKET_OBJECT = "looks at a socket object and its options; our sockets are opened in Rust"
_NEEDS_RAISING_SOCKET = "makes the mocked socket raise what no socket raises"
_NEEDS_SHARED_CONNECTION = (
    "looks for a raw command on the connection of the calls; ours has a connection of its own"
)
_NEEDS_CLIENT_POOL = "looks into the pool of client objects; connections are pooled in Rust"
_EXPECTS_EARLY_CONNECTION = "expects a connection before any call; ours connects at the first call"
_EXPECTS_RETURN_OF_REMOVED_SERVER = (
    "expects a server that the program removed to come back by itself"
)

REASONS: dict[str, dict[str, str]] = {
    "pymemcache": {
        "TestClient::test_cache_memlimit": _NEEDS_SHARED_CONNECTION,
        "TestClient::test_stats_cachedump": _NEEDS_SHARED_CONNECTION,
        "TestClient::test_raw_command_empty_end_tokens": "expects the mocked socket's IndexError",
        "TestClient::test_raw_command_missing_end_tokens": "expects the mocked socket's IndexError",
        "TestClient::test_serialization": (
            "expects `noreply` on the wire by default: our call waits unless it or its client sets noreply"
        ),
        **{
            f"TestClientSocketConnect::test_{name}": _NEEDS_SOCKET_OBJECT
            for name in (
                "linux_socket_keepalive", "osx_socket_keepalive", "windows_socket_keepalive",
                "socket_close", "socket_close_exception", "socket_connect_closes_on_failure",
                "socket_connect_ipv4", "socket_connect_ipv6", "socket_connect_unix",
            )
        },
        "TestPooledClientIdleTimeout::test_free_idle": _NEEDS_CLIENT_POOL,
        "TestRetryOnEINTR::test_recv": _NEEDS_RAISING_SOCKET,
        "TestHashClient::test_close": _EXPECTS_EARLY_CONNECTION,
        "TestHashClient::test_quit": _EXPECTS_EARLY_CONNECTION,
        "TestHashClient::test_legacy_add_remove_server_signature": _EXPECTS_RETURN_OF_REMOVED_SERVER,
        "TestHashClient::test_ignore_exec_set_many": (
            "expects a write that failed to be reported as successful, with ignore_exc"
        ),
    },
    "pylibmc": {
        "SerializationTests::test_override_deserialize": (
            "counts references to a key while errors are kept; their tracebacks hold the frame of "
            "our get, written in Python where pylibmc's is C"
        ),
    },
}  # fmt: skip
