//! The machine: memory of the server in swap.

use crate::numbers::{format_bytes, format_count, format_percent};
use crate::{Figures, Finding};

/// Less of a process may be in swap without harm: pages that only its start needs.
const SWAPPED_BYTES_MIN: u64 = 1 << 20;

/// A part of the server's memory is in swap, so that a read waits for the disk.
pub(super) fn find_swap(figures: &Figures) -> Option<Finding> {
    let machine = figures.machine.filter(|machine| machine.swapped_bytes >= SWAPPED_BYTES_MIN)?;
    let total_bytes = machine.swapped_bytes + machine.resident_bytes;
    let share = machine.swapped_bytes as f64 / total_bytes as f64;
    let swapped_in = match machine.pages_swapped_in {
        0 => String::new(),
        pages => format!(", and the machine read {} pages back meanwhile", format_count(pages)),
    };
    Some(Finding {
        id: "swap",
        sentence: format!(
            "{} of the server's memory ({}) are in swap{swapped_in}: a get of these items waits for the disk.",
            format_bytes(machine.swapped_bytes),
            format_percent(Some(share)),
        ),
        value: machine.swapped_bytes as f64,
        setting: "-k, or a smaller -m; MemorySwapMax=0 in the service".to_owned(),
        gain: "gets take microseconds again instead of milliseconds".to_owned(),
    })
}
