//! Our slab classes compared with those that a real memcached prints at start.
//!
//! Runs the program named by `MEMCACHED`, else `memcached` of the path; where there is none it prints
//! that and compares nothing (`make oracle-slabs` fails in that case).

#![expect(clippy::disallowed_methods, reason = "the peer is a process of its own")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use glasscache_sim::slabs::classes::{SlabClasses, SlabConfig};

/// The `slab class` lines that memcached prints with these options, or `None` without a memcached.
fn lines_of_memcached(options: &[String]) -> Option<String> {
    let program = std::env::var("MEMCACHED").unwrap_or_else(|_| "memcached".into());
    let socket = std::env::temp_dir().join(format!("slab-classes-{}.sock", std::process::id()));
    let mut memcached = Command::new(program)
        .args(["-u", "nobody", "-p", "0", "-vv", "-m", "64", "-s"])
        .arg(&socket)
        .args(options)
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let reader = BufReader::new(memcached.stderr.take().expect("stderr is piped"));
    let lines: Vec<String> = reader
        .lines()
        .map_while(Result::ok)
        .skip_while(|line| !line.starts_with("slab"))
        .take_while(|line| line.starts_with("slab"))
        .collect();
    memcached.kill().expect("memcached can be stopped");
    memcached.wait().expect("memcached can be waited for");
    Some(lines.join("\n") + "\n")
}

/// Bytes of the unit of `-o slab_chunk_max`: kibibytes according to the help, or bytes in versions about 1.6.18.
fn chunk_max_unit_bytes() -> u32 {
    let lines = lines_of_memcached(&["-o".into(), "slab_chunk_max=16".into()]).unwrap_or_default();
    if lines.trim_end().ends_with("chunk size     16384 perslab      64") { 1024 } else { 1 }
}

#[test]
fn classes_equal_those_of_memcached() {
    let mut compared_count = 0;
    let unit_bytes = chunk_max_unit_bytes();
    for factor in [1.05, 1.08, 1.1, 1.25, 1.37, 2.0] {
        for chunk_bytes_min in [48, 49, 72, 200] {
            for (item_bytes_max, item_option) in [(1u32 << 20, "1m"), (8 << 20, "8m")] {
                for chunk_max_kib in [None, Some(16u32), Some(256), Some(1024)] {
                    let mut options: Vec<String> = vec![
                        format!("-f{factor}"),
                        format!("-n{chunk_bytes_min}"),
                        format!("-I{item_option}"),
                    ];
                    let mut config = SlabConfig {
                        factor,
                        chunk_bytes_min,
                        item_bytes_max,
                        ..SlabConfig::default()
                    };
                    if let Some(kib) = chunk_max_kib {
                        options.extend([
                            "-o".into(),
                            format!("slab_chunk_max={}", (kib << 10) / unit_bytes),
                        ]);
                        config.slab_chunk_bytes_max = kib << 10;
                    }
                    config.check().unwrap();
                    let Some(memcached_lines) = lines_of_memcached(&options) else {
                        assert!(std::env::var_os("MEMCACHED").is_none(), "MEMCACHED does not run");
                        eprintln!("no memcached here: nothing compared");
                        return;
                    };
                    assert_eq!(
                        memcached_lines,
                        SlabClasses::new(&config).to_string(),
                        "{options:?}"
                    );
                    compared_count += 1;
                }
            }
        }
    }
    eprintln!("{compared_count} configurations equal");
}
