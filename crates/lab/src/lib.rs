//! Everything that measures something alive: load generator, profiles, reports.
