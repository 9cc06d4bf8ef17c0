//! The exact optimum: the best `k` classes for given sizes.
//!
//! Let the candidates be chunk sizes `s_1 < s_2 < ...`, `N_b` the needed chunks that fit into `s_b`, and `c_b` the
//! memory of one chunk of `s_b` including its share of the page's tail. The least memory for the chunks up to `s_b`
//! with `j` classes, the last of them `s_b`, is
//!
//! ```text
//! D[j][b] = min over a of  D[j-1][a] + c_b (N_b - N_a),    s_a <= s_b - 16
//! ```
//!
//! For a fixed `j` the right side is the least of straight lines in `c_b` with slopes `-N_a`. Both `c_b`
//! and `N_a` rise with their index, so the lower envelope of the lines is built and walked once from left
//! to right: O(k n) in all where the plain form takes O(k n^2), and n itself shrinks (`drop_dominated_sizes`).
//! Numbers are integers (1/1024 byte), so both forms agree exactly.
//!
//! memcached requires explicit sizes (`-o slab_sizes`) to be more than 8 bytes apart, hence the 16: all sizes are
//! multiples of 8. A class may therefore have to be 8 bytes above the largest item it holds, and never more, so the
//! needed sizes and those plus 8 are sufficient candidates. Items above the last class go into memcached's own class
//! of the largest chunk.

use super::classes::{CHUNK_ALIGN_BYTES, CLASSES_MAX, PAGE_BYTES, SlabConfig};
use super::demand::Demand;
use super::envelope::{CostLine, Envelope};

/// Maximum number of explicit classes that memcached accepts.
pub const SIZES_MAX: usize = CLASSES_MAX - 1;
/// Minimum distance of two explicit sizes that are multiples of 8.
const SIZE_GAP_BYTES_MIN: u32 = 2 * CHUNK_ALIGN_BYTES;
/// Costs are counted in units of 1/1024 byte.
const COST_UNITS_PER_BYTE: u64 = 1024;
/// More than any cost, and far enough from overflow to be added to.
const UNREACHABLE: i64 = i64::MAX / 4;

/// Candidate chunk sizes with their cost and the chunks that fit.
#[derive(Debug)]
struct CandidateSizes {
    sizes: Vec<u32>,
    chunk_costs: Vec<i64>,
    chunks_held: Vec<i64>,
    total_chunks: i64,
    cost_of_largest: i64,
}

impl CandidateSizes {
    fn new(config: &SlabConfig, demand: &Demand) -> Self {
        let chunk_bytes_max = config.slab_chunk_bytes_max;
        let size_min =
            config.chunk_bytes_min.max(CHUNK_ALIGN_BYTES + 1).next_multiple_of(CHUNK_ALIGN_BYTES);
        let round_up = |bytes: u32| bytes.next_multiple_of(CHUNK_ALIGN_BYTES).max(size_min);
        let mut sizes: Vec<u32> = demand
            .chunks()
            .flat_map(|(bytes, _)| [round_up(bytes), round_up(bytes) + CHUNK_ALIGN_BYTES])
            .filter(|&size| size < chunk_bytes_max)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        let sizes = drop_dominated_sizes(&sizes);
        let mut chunks = demand.chunks().peekable();
        let mut fitting_chunks = 0;
        let chunks_held = sizes.iter().map(|&size| {
            while let Some((_, count)) = chunks.next_if(|&(bytes, _)| bytes <= size) {
                fitting_chunks += count as i64;
            }
            fitting_chunks
        });
        let chunks_held = chunks_held.collect();
        let chunk_costs = sizes.iter().map(|&size| compute_cost(size)).collect();
        let total_chunks = demand.chunks().map(|(_, count)| count as i64).sum();
        Self {
            sizes,
            chunk_costs,
            chunks_held,
            total_chunks,
            cost_of_largest: compute_cost(chunk_bytes_max),
        }
    }
}

/// Drops sizes that cannot be better: among sizes of which a page holds equally many, and which therefore cost the
/// same, the largest holds most. The one before it is kept too because it may leave the gap to the next class.
///
/// This leaves about 1,100 of 65,536 sizes, for a page holds few large chunks.
fn drop_dominated_sizes(sizes: &[u32]) -> Vec<u32> {
    let chunks_per_page = |size: u32| PAGE_BYTES / size;
    let is_worthwhile = |index: &usize| {
        let second_next = sizes.get(index + 2);
        second_next.is_none_or(|&larger| chunks_per_page(larger) != chunks_per_page(sizes[*index]))
    };
    (0..sizes.len()).filter(is_worthwhile).map(|index| sizes[index]).collect()
}

/// Memory of one chunk including its share of the page's tail, in cost units.
fn compute_cost(size: u32) -> i64 {
    (u64::from(PAGE_BYTES) * COST_UNITS_PER_BYTE / u64::from(PAGE_BYTES / size)) as i64
}

/// The best explicit sizes, at most `classes_max`, ascending: the list for `-o slab_sizes`.
///
/// Empty if no chunk below the largest is needed.
pub fn find_optimal_sizes(config: &SlabConfig, demand: &Demand, classes_max: usize) -> Vec<u32> {
    let candidates = CandidateSizes::new(config, demand);
    let layer_count = classes_max.min(SIZES_MAX);
    let candidate_count = candidates.sizes.len();
    let mut chosen_below = vec![0u32; layer_count * candidate_count];
    let mut previous_costs = vec![UNREACHABLE; candidate_count];
    let (mut best_cost, mut best_choice) =
        (candidates.total_chunks * candidates.cost_of_largest, None);
    for layer in 0..layer_count {
        let layer_choices =
            &mut chosen_below[layer * candidate_count..(layer + 1) * candidate_count];
        let layer_costs = if layer == 0 {
            compute_first_costs(&candidates)
        } else {
            compute_next_costs(&candidates, &previous_costs, layer_choices)
        };
        for (index, &cost) in layer_costs.iter().enumerate() {
            let total_cost = cost
                + candidates.cost_of_largest
                    * (candidates.total_chunks - candidates.chunks_held[index]);
            if total_cost < best_cost {
                (best_cost, best_choice) = (total_cost, Some((layer, index)));
            }
        }
        previous_costs = layer_costs;
    }
    trace_back(&candidates, &chosen_below, best_choice)
}

fn compute_first_costs(candidates: &CandidateSizes) -> Vec<i64> {
    candidates
        .chunk_costs
        .iter()
        .zip(&candidates.chunks_held)
        .map(|(cost, chunks_held)| cost * chunks_held)
        .collect()
}

/// The costs of the layer above that of `previous_costs`; stores for each candidate the class below it.
fn compute_next_costs(
    candidates: &CandidateSizes,
    previous_costs: &[i64],
    chosen_below: &mut [u32],
) -> Vec<i64> {
    let mut envelope = Envelope::default();
    let mut next_below = 0;
    let mut costs = Vec::with_capacity(previous_costs.len());
    for (index, &size) in candidates.sizes.iter().enumerate() {
        while candidates.sizes[next_below] + SIZE_GAP_BYTES_MIN <= size {
            if previous_costs[next_below] < UNREACHABLE {
                envelope.add(CostLine {
                    value_at_zero: previous_costs[next_below],
                    chunks_held: candidates.chunks_held[next_below],
                    candidate_index: next_below as u32,
                });
            }
            next_below += 1;
        }
        let chunk_cost = candidates.chunk_costs[index];
        costs.push(match envelope.least_line(chunk_cost) {
            Some(line) => {
                chosen_below[index] = line.candidate_index;
                line.value(chunk_cost) + chunk_cost * candidates.chunks_held[index]
            }
            None => UNREACHABLE,
        });
    }
    costs
}

fn trace_back(
    candidates: &CandidateSizes,
    chosen_below: &[u32],
    best_choice: Option<(usize, usize)>,
) -> Vec<u32> {
    let Some((top_layer, mut index)) = best_choice else {
        return Vec::new();
    };
    let mut sizes = vec![candidates.sizes[index]];
    for layer in (1..=top_layer).rev() {
        index = chosen_below[layer * candidates.sizes.len() + index] as usize;
        sizes.push(candidates.sizes[index]);
    }
    sizes.reverse();
    sizes
}

#[cfg(test)]
mod tests {
    use super::super::classes::{SlabClasses, head_bytes};
    use super::super::plan::Plan;
    use super::*;
    use proptest::prelude::*;

    /// Memory of a list of sizes, in cost units.
    fn cost_of_sizes(config: &SlabConfig, demand: &Demand, sizes: &[u32]) -> i64 {
        let chunk_size_for = |bytes: u32| {
            sizes.iter().copied().find(|&size| size >= bytes).unwrap_or(config.slab_chunk_bytes_max)
        };
        demand
            .chunks()
            .map(|(bytes, count)| count as i64 * compute_cost(chunk_size_for(bytes)))
            .sum()
    }

    /// Direct evaluation of the recurrence, over every multiple of 8.
    fn naive_optimum_cost(config: &SlabConfig, demand: &Demand, classes_max: usize) -> i64 {
        let largest_size = demand
            .chunks()
            .last()
            .map_or(0, |(bytes, _)| bytes)
            .min(config.slab_chunk_bytes_max - 8)
            + 8;
        let sizes: Vec<u32> = (48..=largest_size.next_multiple_of(8))
            .step_by(8)
            .filter(|&size| size < config.slab_chunk_bytes_max)
            .collect();
        let count_chunks_held = |size: u32| {
            demand
                .chunks()
                .filter(|&(bytes, _)| bytes <= size)
                .map(|(_, count)| count as i64)
                .sum::<i64>()
        };
        let chunks_held: Vec<i64> = sizes.iter().map(|&size| count_chunks_held(size)).collect();
        let total_chunks: i64 = demand.chunks().map(|(_, count)| count as i64).sum();
        let cost_of_largest = compute_cost(config.slab_chunk_bytes_max);
        let mut best_cost = total_chunks * cost_of_largest;
        let mut layer_costs: Vec<i64> =
            sizes.iter().zip(&chunks_held).map(|(&size, held)| compute_cost(size) * held).collect();
        for _ in 0..classes_max {
            for (index, cost) in
                layer_costs.iter().enumerate().filter(|(_, cost)| **cost < UNREACHABLE)
            {
                best_cost =
                    best_cost.min(cost + cost_of_largest * (total_chunks - chunks_held[index]));
            }
            let next_cost = |index: usize| {
                let is_reachable = |&below: &usize| {
                    sizes[below] + 16 <= sizes[index] && layer_costs[below] < UNREACHABLE
                };
                let cost_above = |below: usize| {
                    let chunks_between = chunks_held[index] - chunks_held[below];
                    layer_costs[below] + compute_cost(sizes[index]) * chunks_between
                };
                (0..index).filter(is_reachable).map(cost_above).min().unwrap_or(UNREACHABLE)
            };
            layer_costs = (0..sizes.len()).map(next_cost).collect();
        }
        best_cost
    }

    proptest! {
        #[test]
        fn envelope_equals_the_naive_recurrence(
            sizes_and_counts in prop::collection::vec((1u32..1500, 1u64..1000), 1..60),
            scale in 1u32..9,
            classes_max in 1usize..9,
        ) {
            let config = SlabConfig::default();
            let mut demand = Demand::default();
            for (size, count) in sizes_and_counts {
                demand.add(&config, head_bytes(4, false), size * scale, count);
            }
            let sizes = find_optimal_sizes(&config, &demand, classes_max);
            prop_assert!(sizes.len() <= classes_max);
            let expected_cost = naive_optimum_cost(&config, &demand, classes_max);
            prop_assert_eq!(cost_of_sizes(&config, &demand, &sizes), expected_cost);
            let explicit = SlabConfig { slab_sizes: Some(sizes), ..config };
            prop_assert_eq!(explicit.check(), Ok(()));
        }
    }

    #[test]
    fn optimum_beats_every_factor_with_as_many_classes() {
        let config = SlabConfig::default();
        let mut demand = Demand::default();
        for value_bytes in 1..60_000u32 {
            demand.add(
                &config,
                head_bytes(20, false),
                value_bytes,
                u64::from(60_000 / value_bytes),
            );
        }
        for factor in [1.08, 1.25, 2.0] {
            let classes = SlabClasses::new(&SlabConfig { factor, ..config.clone() });
            let by_factor = Plan::new(&classes, &demand);
            let sizes = find_optimal_sizes(&config, &demand, by_factor.used_classes());
            let explicit = SlabConfig { slab_sizes: Some(sizes), ..config.clone() };
            let optimal = Plan::new(&SlabClasses::new(&explicit), &demand);
            assert!(optimal.taken_bytes() <= by_factor.taken_bytes(), "factor {factor}");
        }
    }

    /// CPU time of this thread in nanoseconds; unlike wall-clock time it is meaningful on a busy machine.
    #[expect(clippy::disallowed_methods, reason = "CPU time comes from the kernel")]
    fn thread_cpu_ns() -> f64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    }

    /// n = 65,520 sizes and k = 62, the largest plan there is. Means something only in a release build.
    #[test]
    #[ignore = "a measurement: run by `make bench-simulate`"]
    fn speed_of_the_largest_plan() {
        let config = SlabConfig::default();
        let mut demand = Demand::default();
        for step in 0..65_520u32 {
            demand.add(&config, head_bytes(4, false), step * 8 + 1, u64::from(step % 977 + 1));
        }
        // The kernel counts in ticks of a few milliseconds, so many plans are measured together.
        let (started_ns, plans) = (thread_cpu_ns(), 50);
        let mut size_count = 0;
        for _ in 0..plans {
            size_count += find_optimal_sizes(&config, &demand, 62).len();
        }
        let ms = (thread_cpu_ns() - started_ns) / 1e6 / f64::from(plans);
        eprintln!(
            "{} plans of {} sizes, {ms:.2} ms each",
            size_count / 62,
            demand.chunks().count()
        );
    }
}
