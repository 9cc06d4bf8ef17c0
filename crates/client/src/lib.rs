//! The cache client: placement, pipelines, deadlines, values and their costs.
