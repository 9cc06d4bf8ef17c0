//! Traces, cache policies, miss-ratio curves, slab plans and request simulation, all pure.
