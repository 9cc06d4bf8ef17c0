"""Tests of other projects that cannot hold on a drop-in module, by pattern, and why."""

REASONS: dict[str, list[tuple[str, str]]] = {
    "pymemcache": [],
    "pylibmc": [
        ("test_no_autoconf", "asks the fixed address 127.0.0.1:11211, where nothing runs"),
        (
            "test_override_deserialize",
            "counts references to a key while errors are kept; their tracebacks hold the frame of our get, written in "
            "Python where pylibmc's is C",
        ),
    ],
}
