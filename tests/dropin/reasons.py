"""Tests of other projects that cannot hold on a drop-in module, by pattern, and why."""

REASONS: dict[str, list[tuple[str, str]]] = {
    "pymemcache": [
        (
            "noreply",
            "a call waits for its reply unless it says noreply itself: a difference on purpose",
        ),
        (
            "TestHashClient",
            "looks into HashClient.clients, one object a server; ours is one client of all",
        ),
        (
            "TestClientSocketConnect|socket|quit|idle",
            "looks at socket objects and their options, which are Rust's here",
        ),
        (
            "raw_command|end_token|memlimit|version",
            "reads canned bytes past a reply; a raw command has its own connection",
        ),
        ("TestRetryingClient|unexpected_closed", "raises from inside the mocked socket"),
        ("get_found|custom_client", "overrides a private method, which parses replies in Python"),
        ("gets_many", "is canned for one command; ours asks key by key"),
        ("serialization|explicit_flags|stats", "compares the request's bytes at the socket object"),
        (
            "_exception",
            "expects garbage to be read as a reply before the socket object is asked whether it closed",
        ),
    ],
    "pylibmc": [
        ("test_no_autoconf", "asks the fixed address 127.0.0.1:11211, where nothing runs"),
        (
            "test_override_deserialize",
            (
                "counts references to a key while errors are kept; their tracebacks hold the frame of "
                "our get, written in Python where pylibmc's is C"
            ),
        ),
    ],
}
