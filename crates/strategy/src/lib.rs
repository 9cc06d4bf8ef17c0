//! Near-cache policies, request scope and prefetch: what the client runs and the simulator replays.
