//! The program's own file in memory: releases pages of code and constants that only the start needed.
//!
//! Reading flags and building tables touches megabytes of code that a server never runs again, and the
//! kernel maps sixteen pages around each that is touched. They count in the resident size from which the
//! target of the memory budget (items per resident byte) is measured: 3 MB of 67 at `-m 64`. What is still needed
//! comes back by minor faults from the page cache. The one file this pure crate reads is the process's
//! own map, because the soundness of what follows rests on it.

#![expect(
    clippy::disallowed_types,
    reason = "only what the kernel reports of this very process may be released"
)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ptr;

/// Releases the resident pages of the program's code and constants; pages that are used again are mapped again.
///
/// Returns the bytes of address space covered, 0 where the system has no map of the process.
pub fn release_startup_pages() -> usize {
    let Ok(map) = File::open("/proc/self/smaps") else {
        return 0;
    };
    let mut covered_bytes = 0;
    for (start, end) in clean_file_mappings(BufReader::new(map)) {
        release_pages(start, end);
        covered_bytes += end - start;
    }
    covered_bytes
}

/// The ranges of a map that belong to a file, cannot be written, and have no page of their own: relocated ranges
/// have some.
fn clean_file_mappings(map: impl BufRead) -> Vec<(usize, usize)> {
    let mut clean_ranges = Vec::new();
    let mut current_range = None;
    for line in map.lines().map_while(Result::ok) {
        if let Some(kib) = line.strip_prefix("Anonymous:") {
            let is_clean = kib.trim() == "0 kB";
            clean_ranges.extend(current_range.take().filter(|_| is_clean));
        } else if let Some((range, is_read_only_file)) = parse_mapping(&line) {
            current_range = is_read_only_file.then_some(range);
        }
    }
    clean_ranges
}

/// The range that a line of the map begins, and whether it is a file's and can never be written.
fn parse_mapping(line: &str) -> Option<((usize, usize), bool)> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let parse_address = |text| usize::from_str_radix(text, 16).ok();
    let range = (parse_address(start)?, parse_address(end)?);
    let is_unwritable = matches!(fields.next()?, "r-xp" | "r--p");
    let is_file_backed =
        fields.nth(2)? != "0" && fields.next().is_some_and(|file| file.starts_with('/'));
    Some((range, is_file_backed && is_unwritable))
}

fn release_pages(start: usize, end: usize) {
    let pages = ptr::with_exposed_provenance_mut::<core::ffi::c_void>(start);
    // SAFETY: by the kernel's own map this range is private, file-backed, not writable, and has no
    // anonymous page: its pages are clean copies of the file, so a page that is released is read again unchanged. It
    // stays so, for only the loader makes such ranges writable, and it is done with them.
    let _ = unsafe { rustix::mm::madvise(pages, end - start, rustix::mm::Advice::LinuxDontNeed) };
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn only_clean_mappings_of_files_are_listed() {
        let smaps_entry = |mapping_line: &str, kib: usize| {
            format!("{mapping_line}\nRss:  8 kB\nAnonymous:  {kib} kB\nVmFlags: rd ex\n")
        };
        let code = "55a1a8b8e000-55a1a9133000 r-xp 0012a000 fe:00 9978222   /usr/bin/glasscache";
        let constants =
            "55a1a9133000-55a1a914f000 r--p 006ce000 fe:00 9978222   /usr/bin/glasscache";
        let unclean_mappings = [
            (constants, 4),
            ("55a1a914f000-55a1a9150000 rw-p 006ce000 fe:00 9978222   /usr/bin/glasscache", 0),
            ("7ffd2a9f2000-7ffd2a9f4000 r-xp 00000000 00:00 0         [vdso]", 0),
            ("7fc05b4e6000-7fc05b50c000 r-xp 00000000 00:00 0", 0),
            ("", 0),
        ];
        for (mapping_line, kib) in unclean_mappings {
            let map = smaps_entry(mapping_line, kib);
            assert_eq!(clean_file_mappings(map.as_bytes()), [], "{mapping_line}");
        }
        let map = smaps_entry(constants, 4) + &smaps_entry(code, 0) + &smaps_entry(constants, 0);
        assert_eq!(
            clean_file_mappings(map.as_bytes()),
            [(0x55a1_a8b8_e000, 0x55a1_a913_3000), (0x55a1_a913_3000, 0x55a1_a914_f000)]
        );
    }

    #[test]
    fn the_program_continues_after_its_code_was_released() {
        assert!(release_startup_pages() > 0);
        let doubled: Vec<u32> = (0..1000).map(|n| n * 2).collect();
        assert_eq!(doubled.iter().sum::<u32>(), 999_000);
        assert!(format!("{doubled:?}").ends_with("1998]"));
    }
}
