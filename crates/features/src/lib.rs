//! No code: the manifest gives the command and the Python module the same features of their common dependencies, so that
//! a build of both compiles each of them once.

use {
    digest as _, flate2 as _, glasscache_sim as _, hashbrown as _, libc as _, num_traits as _,
    once_cell as _, serde_core as _, subtle as _, zstd as _,
};
