//! The cost of the classes as tables, sentence, chart and JSON.

use glasscache_lab::report::{Report, ReportTable};
use glasscache_lab::text::format_count;
use glasscache_sim::page::{Bar, BarChart, Chart, Mark, Panel, Series, format_short_bytes};
use glasscache_sim::slabs::classes::{PAGE_BYTES, SlabClasses, SlabConfig};
use glasscache_sim::slabs::optimum::find_optimal_sizes;
use glasscache_sim::slabs::plan::{ClassUse, Plan, count_items_in_segments};
use serde_json::{Value, json};

use super::plan_input::PlanInput;

/// The factors to compare: the first default, the current default, and a common recommendation.
const FACTORS: [f64; 3] = [2.0, 1.25, 1.08];
/// Numbers of classes to try for a small memory.
const FEW_CLASS_COUNTS: [usize; 7] = [4, 8, 12, 16, 20, 24, 32];

/// Classes planned from fewer items would follow chance.
const ITEMS_MIN: u64 = 1000;

/// A list of classes with its cost.
struct ClassList {
    name: String,
    /// The line to start memcached with, if it needs one.
    start_options: Option<String>,
    plan: Plan,
    /// Items that fit into the memory.
    fitting_items: u64,
}

/// All results.
pub(super) struct Comparison<'a> {
    input: &'a PlanInput,
    memory_bytes: u64,
    /// The current classes first, then the factors, then the optima.
    class_lists: Vec<ClassList>,
    /// Index of the optimum that holds most items in this memory.
    best_index: usize,
    /// Items that glasscache's segments hold in the same memory.
    segment_items: u64,
}

impl<'a> Comparison<'a> {
    /// Computes every option.
    pub(super) fn new(input: &'a PlanInput, memory_bytes: u64, class_count_max: usize) -> Self {
        let current_config = &input.config;
        let new_class_list = |name: String, config: &SlabConfig| {
            let plan = Plan::new(&SlabClasses::new(config), &input.demand);
            let fitting_items = plan.items_that_fit(memory_bytes);
            ClassList { name, start_options: format_start_options(config), plan, fitting_items }
        };
        let mut class_lists = vec![new_class_list(
            format!("now ({})", describe_config(current_config)),
            current_config,
        )];
        for factor in FACTORS {
            class_lists.push(new_class_list(
                format!("factor {factor}"),
                &SlabConfig { factor, slab_sizes: None, ..current_config.clone() },
            ));
        }
        let usual_class_count = class_lists[2].plan.used_classes().min(class_count_max);
        let new_optimal_list = |class_count: usize| {
            let sizes = find_optimal_sizes(current_config, &input.demand, class_count);
            let name = format!("optimal, {} classes", sizes.len());
            new_class_list(name, &SlabConfig { slab_sizes: Some(sizes), ..current_config.clone() })
        };
        let optima_start = class_lists.len();
        let mut class_counts = vec![usual_class_count, 40.min(class_count_max), class_count_max];
        class_counts.dedup();
        let few_counts =
            FEW_CLASS_COUNTS.into_iter().filter(|&class_count| class_count < usual_class_count);
        let fullest =
            few_counts.map(new_optimal_list).max_by_key(|class_list| class_list.fitting_items);
        class_lists.extend(class_counts.into_iter().map(new_optimal_list));
        let items_max =
            class_lists[optima_start..].iter().map(|class_list| class_list.fitting_items).max();
        class_lists.extend(fullest.filter(|class_list| Some(class_list.fitting_items) > items_max));
        class_lists[optima_start..].sort_by_key(|class_list| class_list.plan.classes.len());
        class_lists.dedup_by(|a, b| a.name == b.name);
        // Of equals the one with most classes, which stays good if the memory grows.
        let best_index = (optima_start..class_lists.len())
            .max_by_key(|&list_index| class_lists[list_index].fitting_items);
        let segment_items = count_items_in_segments(&input.demand, memory_bytes);
        Self {
            input,
            memory_bytes,
            best_index: best_index.unwrap_or(0),
            class_lists,
            segment_items,
        }
    }

    fn best(&self) -> &ClassList {
        &self.class_lists[self.best_index]
    }

    /// Explains why the classes with the least waste do not hold the most items, if that is the case.
    fn small_memory_note(&self) -> Option<String> {
        let (best, least_wasteful) = (self.best(), self.class_lists.last()?);
        let pages = self.memory_bytes / u64::from(PAGE_BYTES);
        let current = &self.class_lists[0];
        if best.plan.waste() >= current.plan.waste() && best.fitting_items > current.fitting_items {
            return Some(format!(
                "{} lose more of a full page than the classes of today and yet keep more items: each class in use \
                 begins pages of its own, of which {} has {pages}, and fewer classes leave fewer of them half empty.",
                best.name,
                format_short_bytes(self.memory_bytes),
            ));
        }
        (least_wasteful.fitting_items < best.fitting_items).then(|| {
            format!(
                "Each class in use begins pages of its own, and {} has {pages} of them: {} waste least where memory is \
                 plenty ({}), {} keep more here.",
                format_short_bytes(self.memory_bytes),
                least_wasteful.name,
                format_percent(least_wasteful.plan.waste()),
                best.name,
            )
        })
    }

    /// What memcached takes with the best classes and with those of today, where either is more than `-m`.
    fn describe_overshoot(&self) -> Option<String> {
        let taken_bytes = |class_list: &ClassList| {
            class_list.plan.pages_taken(class_list.fitting_items) * u64::from(PAGE_BYTES)
        };
        let (best_bytes, current_bytes) =
            (taken_bytes(self.best()), taken_bytes(&self.class_lists[0]));
        (best_bytes.max(current_bytes) > self.memory_bytes).then(|| {
            format!(
                ", taking {} (today {})",
                format_short_bytes(best_bytes),
                format_short_bytes(current_bytes)
            )
        })
    }

    /// The report of all results.
    pub(super) fn to_report(&self) -> Report {
        let mut notes = self.input.notes.clone();
        notes.extend(self.small_memory_note());
        notes.extend(self.describe_overshoot().map(|_| {
            "memcached gives each class its first page even where -m is used up, so it takes more than that.".to_owned()
        }));
        notes.extend(self.class_lists.iter().filter_map(|class_list| {
            let end_bytes = class_list.plan.last_class_before_gap()?;
            let largest_bytes = self.input.config.slab_chunk_bytes_max;
            Some(format!(
                "Trap: {}: its 62 classes end at {end_bytes} bytes, and every larger item takes a chunk of {largest_bytes}.",
                class_list.name
            ))
        }));
        if self.input.demand.refused_items() > 0 {
            notes.push(format!(
                "{} items are above -I and are left out.",
                self.input.demand.refused_items()
            ));
        }
        notes.push("Segments: from the layout of glasscache's store (item header, index slot), within 2 % of a full store's count; no flags, no expiry.".into());
        Report {
            title: format!("Slab classes: {}", self.input.name),
            sentence: self.format_sentence(),
            tables: vec![self.build_options_table(), self.build_classes_table()],
            series: vec![self.build_chart()],
            bars: vec![self.build_bar_chart()],
            commands: self
                .best()
                .start_options
                .iter()
                .filter(|_| !self.has_too_little_data())
                .map(|line| format!("memcached {line}"))
                .collect(),
            notes,
            result: self.to_document(),
            ..Report::default()
        }
    }

    /// Whether the sizes are of too few items for a plan.
    fn has_too_little_data(&self) -> bool {
        self.input.demand.items() < ITEMS_MIN
    }

    fn format_sentence(&self) -> String {
        if self.has_too_little_data() {
            return format!(
                "Too little data: {} items, and classes are worth planning from {} on. {}",
                self.input.demand.items(),
                format_count(ITEMS_MIN),
                self.compare_in_words()
            );
        }
        self.compare_in_words()
    }

    fn compare_in_words(&self) -> String {
        let (current, best) = (&self.class_lists[0], self.best());
        let (waste, best_waste) =
            (format_percent(current.plan.waste()), format_percent(best.plan.waste()));
        let format_difference = |items: u64| describe_difference(items, current.fitting_items);
        let (best_items, segment_items) =
            (format_difference(best.fitting_items), format_difference(self.segment_items));
        let (name, memory) = (&best.name, format_short_bytes(self.memory_bytes));
        if self.input.is_glasscache {
            return format!(
                "Segments, as here, keep {segment_items} items than a memcached with the same settings, \
                 {waste} of whose memory would hold no item; {name} by hand would keep {best_items}.",
            );
        }
        let wastes_less = best.plan.waste() < current.plan.waste();
        let conjunction = if wastes_less == (best.fitting_items >= current.fitting_items) {
            "and"
        } else {
            "and yet"
        };
        let taken = self.describe_overshoot().unwrap_or_default();
        format!(
            "{waste} of the memory holds no item today; {name} by hand waste {best_waste} {conjunction} keep {best_items} items \
             in {memory}{taken}, segments {segment_items}.",
        )
    }

    fn build_classes_table(&self) -> ReportTable {
        let classes = self.class_lists[0].plan.classes.iter().enumerate();
        let mut classes_in_use: Vec<(usize, &ClassUse)> =
            classes.filter(|(_, class)| class.chunks > 0).collect();
        classes_in_use.sort_by(|(_, a), (_, b)| b.wasted_bytes().total_cmp(&a.wasted_bytes()));
        let total_bytes = self.class_lists[0].plan.taken_bytes();
        let format_row = |(index, class): (usize, &ClassUse)| {
            vec![
                (index + 1).to_string(),
                class.chunk_bytes.to_string(),
                class.chunks_per_page().to_string(),
                class.chunks.to_string(),
                format!("{:.0}", class.requested_bytes as f64 / class.chunks as f64),
                format!("{:.2}", class.wasted_bytes() / f64::from(1 << 20)),
                format_percent(class.wasted_bytes() / class.taken_bytes()),
                format_percent(class.wasted_bytes() / total_bytes),
            ]
        };
        let header = [
            "class",
            "chunk bytes",
            "per page",
            "chunks",
            "mean bytes",
            "wasted MiB",
            "of class",
            "of all",
        ];
        let config = describe_config(&self.input.config);
        let title = format!("Classes of today ({config}), the most waste first");
        let table = ReportTable::new(title, header, classes_in_use.into_iter().map(format_row));
        ReportTable { is_best_first: true, ..table }
    }

    fn build_options_table(&self) -> ReportTable {
        let current_items = self.class_lists[0].fitting_items;
        let format_row = |name: &str, classes: String, waste: String, items: u64| {
            vec![
                name.to_owned(),
                classes,
                waste,
                items.to_string(),
                format!("{:+.1} %", 100.0 * (divide(items, current_items) - 1.0)),
            ]
        };
        let format_list_row = |class_list: &ClassList| {
            let cells = format_row(
                &class_list.name,
                class_list.plan.used_classes().to_string(),
                format_percent(class_list.plan.waste()),
                class_list.fitting_items,
            );
            (class_list.fitting_items, cells)
        };
        let mut rows: Vec<(u64, Vec<String>)> =
            self.class_lists.iter().map(format_list_row).collect();
        let dash = || "-".to_owned();
        let segments = format_row("glasscache segments", dash(), dash(), self.segment_items);
        rows.push((self.segment_items, segments));
        rows.sort_by_key(|&(items, _)| std::cmp::Reverse(items));
        let header = ["classes", "used", "waste", "items that fit", "against now"];
        let title = format!(
            "What fits into {}, most items first (now: {current_items})",
            format_short_bytes(self.memory_bytes)
        );
        let table = ReportTable::new(title, header, rows.into_iter().map(|(_, cells)| cells));
        ReportTable { is_best_first: true, ..table }
    }

    /// The bytes of each class of today and of the best classes: requested, and wasted.
    fn build_bar_chart(&self) -> BarChart {
        let new_panel = |class_list: &ClassList| {
            let mut bars: Vec<Bar> = Vec::new();
            let mut previous_chunk_bytes = None;
            for class in &class_list.plan.classes {
                let chunk_bytes = f64::from(class.chunk_bytes);
                if class.chunks > 0 {
                    let to_mib = |bytes: f64| bytes / f64::from(1 << 20);
                    bars.push(Bar {
                        // The smallest class begins where an item without a value would.
                        range: (previous_chunk_bytes.unwrap_or(chunk_bytes / 2.0), chunk_bytes),
                        parts: [to_mib(class.requested_bytes as f64), to_mib(class.wasted_bytes())],
                    });
                }
                previous_chunk_bytes = Some(chunk_bytes);
            }
            Panel {
                title: format!(
                    "{}: {} wasted",
                    class_list.name,
                    format_percent(class_list.plan.waste())
                ),
                bars,
            }
        };
        BarChart {
            title: "Memory by class: today, and the best classes".into(),
            x_label: "size of the item in memcached's measure (bytes, logarithmic)".into(),
            y_label: "MiB in the class".into(),
            part_names: ["requested".into(), "wasted".into()],
            panels: vec![new_panel(&self.class_lists[0]), new_panel(self.best())],
        }
    }

    /// How sizes are distributed, with the edges of the best classes.
    fn build_chart(&self) -> Chart {
        let total_chunks: u64 = self.input.demand.chunks().map(|(_, count)| count).sum();
        let mut chunks_so_far = 0;
        let points = self.input.demand.chunks().map(|(bytes, count)| {
            chunks_so_far += count;
            (f64::from(bytes), 100.0 * chunks_so_far as f64 / total_chunks as f64)
        });
        let points = points.collect();
        let new_mark = |class: &ClassUse| Mark {
            x: f64::from(class.chunk_bytes),
            label: format!("{} bytes", class.chunk_bytes),
        };
        let best = self.best();
        Chart {
            title: format!("Needed sizes, and the edges of: {}", best.name),
            x_label: "size of the item in memcached's measure (bytes)".into(),
            y_label: "share of the chunks up to that size (%)".into(),
            is_x_log: true,
            series: vec![Series {
                label: "needed chunks".into(),
                points,
                is_step: true,
                ..Series::default()
            }],
            marks: best
                .plan
                .classes
                .iter()
                .filter(|class| class.chunks > 0)
                .map(new_mark)
                .collect(),
            ..Chart::default()
        }
    }

    /// The results as JSON.
    fn to_document(&self) -> Value {
        let list_document = |class_list: &ClassList| {
            json!({
                "name": class_list.name,
                "memcached_options": class_list.start_options,
                "chunk_sizes": class_list.plan.classes.iter().map(|class| class.chunk_bytes).collect::<Vec<_>>(),
                "used_classes": class_list.plan.used_classes(),
                "waste": class_list.plan.waste(),
                "items_that_fit": class_list.fitting_items,
                "small_factor_trap_above_bytes": class_list.plan.last_class_before_gap(),
            })
        };
        let class_document = |(index, class): (usize, &ClassUse)| {
            json!({
                "class": index + 1,
                "chunk_bytes": class.chunk_bytes,
                "chunks": class.chunks,
                "asked_bytes": class.requested_bytes as f64,
                "wasted_bytes": class.wasted_bytes(),
            })
        };
        json!({
            "source": self.input.name,
            "items": self.input.demand.items(),
            "item_bytes": self.input.demand.item_bytes() as f64,
            "refused_items": self.input.demand.refused_items(),
            "memory_bytes": self.memory_bytes,
            "classes": self.class_lists[0].plan.classes.iter().enumerate().map(class_document).collect::<Vec<_>>(),
            "options": self.class_lists.iter().map(list_document).collect::<Vec<_>>(),
            "items_in_segments": self.segment_items,
            "notes": self.input.notes,
        })
    }
}

fn describe_config(config: &SlabConfig) -> String {
    match &config.slab_sizes {
        Some(sizes) => format!("{} explicit sizes", sizes.len()),
        None => format!("-f {} -n {}", config.factor, config.chunk_bytes_min),
    }
}

fn format_start_options(config: &SlabConfig) -> Option<String> {
    let sizes = config.slab_sizes.as_ref().filter(|sizes| !sizes.is_empty())?;
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    Some(format!("-o slab_sizes={}", sizes.join("-")))
}

fn divide(numerator: u64, denominator: u64) -> f64 {
    numerator as f64 / denominator.max(1) as f64
}

/// How many items there are beside another number of them: `8.0 % more`.
fn describe_difference(items: u64, other_items: u64) -> String {
    let difference = divide(items, other_items) - 1.0;
    let word = if difference < 0.0 { "fewer" } else { "more" };
    format!("{} {word}", format_percent(difference.abs()))
}

fn format_percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
