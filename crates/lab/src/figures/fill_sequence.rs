//! The fill sequence: several value sizes that fill one server one after the other, and what is left of each at the end.

use std::ops::Range;

use serde::Serialize;

use crate::bench::memory::{FillResult, FillSize, fill, read_back};
use crate::bench::{Error, ServerPair};
use crate::load::{Size, Values};
use crate::server_process::ServerCommand;

/// One fill of a sequence.
#[derive(Debug, Clone, Serialize)]
pub(super) struct SequenceFill {
    /// The name of its value size.
    pub(super) name: &'static str,
    /// Sets refused.
    pub(super) refused: u64,
    /// `VmRSS` and huge pages after it.
    pub(super) resident_bytes: u64,
    /// User bytes of this fill that are resident after it.
    #[serde(rename = "own_user_bytes")]
    pub(super) user_bytes_after_fill: u64,
    /// User bytes of this fill that are resident at the end of the sequence.
    #[serde(rename = "last_user_bytes")]
    pub(super) user_bytes_at_end: u64,
}

/// One server through fills of shifting sizes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FillSequence {
    /// The fills, in order.
    #[serde(rename = "links")]
    pub(super) fills: Vec<SequenceFill>,
    /// The contents of the server at the end, from all fills.
    #[serde(rename = "held")]
    pub(super) final_contents: FillResult,
}

/// Fills one server with 100 B, 1 KB, 10 KB, 10 B, 100 KB and the mix, each once `-m` in user bytes.
pub(super) fn measure_fill_sequence(
    servers: &ServerPair,
    server_command: &ServerCommand,
) -> Result<FillSequence, Error> {
    let server = server_command.start().map_err(Error::Start)?;
    let limit_bytes = server_command.memory_mib << 20;
    let fill_sizes = [
        FillSize::fixed("100", 100, "", None),
        FillSize::fixed("1000", 1000, "", None),
        FillSize::fixed("10000", 10_000, "", None),
        FillSize::fixed("10", 10, "", None),
        FillSize::fixed("100000", 100_000, "", None),
        FillSize {
            name: "mix",
            size: Size::MIX,
            limit_multiple: 1.0,
            best_factor: "",
            required_ratio: None,
        },
    ];
    let ranges_and_values: Vec<(Range<u64>, Values)> = (1_u64..)
        .zip(&fill_sizes)
        .map(|(fill_index, fill_size)| {
            let first_id = fill_index << 40;
            (
                first_id..first_id + fill_size.keys_for(limit_bytes),
                Values::new(fill_size.size.clone(), fill_index),
            )
        })
        .collect();
    let mut sequence_fills = Vec::with_capacity(fill_sizes.len());
    for (fill_size, (range, values)) in fill_sizes.iter().zip(&ranges_and_values) {
        let refused = fill(servers, &server, range, values)?;
        let (_, user_bytes_after_fill) = read_back(servers, &server, range, values)?;
        let resident_bytes = server.read_resident_bytes();
        sequence_fills.push(SequenceFill {
            name: fill_size.name,
            refused,
            resident_bytes,
            user_bytes_after_fill,
            user_bytes_at_end: 0,
        });
    }
    let (mut items, mut user_bytes) = (0, 0);
    for (sequence_fill, (range, values)) in sequence_fills.iter_mut().zip(&ranges_and_values) {
        let (found_items, found_user_bytes) = read_back(servers, &server, range, values)?;
        sequence_fill.user_bytes_at_end = found_user_bytes;
        items += found_items;
        user_bytes += found_user_bytes;
    }
    let final_contents = FillResult {
        sent: ranges_and_values.iter().map(|(range, _)| range.end - range.start).sum(),
        refused: sequence_fills.iter().map(|sequence_fill| sequence_fill.refused).sum(),
        items,
        user_bytes,
        resident_bytes: server.read_resident_bytes(),
        limit_bytes,
    };
    Ok(FillSequence { fills: sequence_fills, final_contents })
}
