//! Cargo gives the features of build dependencies only to a crate with a build script.

use syn as _;
use syn_2 as _;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
