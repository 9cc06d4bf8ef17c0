//! The visitors of the generated site: where they enter, how they navigate, which items each request needs.

use super::DAYS;
use super::rng::TopicTreeRandom;
use super::tree::TopicTree;
use crate::trace::log::NONE;

/// The routes, in the order of their numbers.
pub(super) const ROUTES: [&str; 7] =
    ["home", "browse", "lesson", "page", "search", "api", "export"];
const HOME: u32 = 0;
const BROWSE: u32 = 1;
const LESSON: u32 = 2;
const PAGE: u32 = 3;
const SEARCH: u32 = 4;
const API: u32 = 5;
const EXPORT: u32 = 6;

/// Exponent of the popularity of lessons (Zipf); web measurements are between 0.6 and 1.
const ZIPF_ALPHA: f64 = 0.9;
/// Share of visits that follow the school year: a window of units that moves through the curriculum.
const IN_SEASON_SHARE: f64 = 0.3;
/// Days in which the window passes the whole curriculum.
const YEAR_DAYS: f64 = 365.0;
/// Half width of that window, as a share of all units.
const SEASON_WIDTH: f64 = 0.03;
/// Probability that a visitor opens the next page of a lesson.
const NEXT_PAGE_SHARE: f64 = 0.65;
/// Mean time between two requests of a visitor, in microseconds.
const PAUSE_US: f64 = 25e6;
/// Results on a search page.
const SEARCH_RESULTS: usize = 10;
/// Lessons recommended on the home page.
const RECOMMENDED_LESSONS: usize = 6;
/// Time to render a page with everything local: a base, and some for each item shown, in microseconds.
const RENDER_US: f64 = 30_000.0;
const RENDER_ITEM_US: f64 = 900.0;
/// Deviation of the logarithm of the rendering time.
const RENDER_SIGMA: f64 = 0.5;

/// A generated request.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) time_us: u64,
    pub(super) base_us: u32,
    pub(super) page: u32,
    pub(super) route: u32,
    pub(super) items: Vec<u32>,
}

/// Draws visits of a tree.
pub(super) struct Visitors<'a> {
    tree: &'a TopicTree,
    rng: &'a mut TopicTreeRandom,
    /// Lessons by popularity, and the running sums of their weights.
    lessons: Vec<u32>,
    weight_sums: Vec<f64>,
    visits: Vec<Visit>,
    time_us: u64,
}

impl<'a> Visitors<'a> {
    pub(super) fn new(tree: &'a TopicTree, rng: &'a mut TopicTreeRandom) -> Self {
        let mut lessons: Vec<u32> = (tree.level_starts[4]..tree.level_starts[5]).collect();
        for index in (1..lessons.len()).rev() {
            lessons.swap(index, rng.below(index as u32 + 1) as usize);
        }
        let mut weight_sum = 0.0;
        let weight_sums = (1..=lessons.len()).map(|rank| {
            weight_sum += (rank as f64).powf(-ZIPF_ALPHA);
            weight_sum
        });
        let weight_sums = weight_sums.collect();
        Self { tree, rng, lessons, weight_sums, visits: Vec::new(), time_us: 0 }
    }

    /// Draws visitors until there are `count` requests.
    pub(super) fn draw_visits(mut self, count: usize) -> Vec<Visit> {
        while self.visits.len() < count {
            self.time_us = self.draw_time();
            self.add_session();
        }
        self.visits.truncate(count);
        self.visits
    }

    /// Draws a time within the log: a uniform day, with more requests around noon than at night.
    fn draw_time(&mut self) -> u64 {
        let day = f64::from(self.rng.below(DAYS as u32));
        let hour = 24.0 * f64::midpoint(self.rng.next_fraction(), self.rng.next_fraction());
        ((day * 24.0 + hour) * 3600e6) as u64
    }

    /// One visitor: from an entrance down to a lesson, then along its pages.
    fn add_session(&mut self) {
        let lesson = self.draw_lesson();
        let entrance = self.rng.next_fraction();
        if entrance < 0.25 {
            self.add_home();
            (1..4).for_each(|level| self.add_browse(lesson, level));
        } else if entrance < 0.45 {
            self.add_browse(lesson, 3);
        } else if entrance < 0.60 {
            self.add_search();
        }
        self.add_view(lesson, LESSON);
        for page in self.tree.children(lesson) {
            if !self.rng.chance(NEXT_PAGE_SHARE) {
                break;
            }
            self.add_view(page, PAGE);
        }
        if self.rng.chance(0.3) {
            self.push(API, NONE, Vec::new());
        }
        if self.rng.chance(0.01) {
            self.add_export(lesson);
        }
    }

    /// Draws the lesson of interest at this time.
    fn draw_lesson(&mut self) -> u32 {
        if self.rng.chance(IN_SEASON_SHARE) {
            return self.draw_lesson_in_season();
        }
        let total = self.weight_sums[self.weight_sums.len() - 1];
        let drawn_weight = self.rng.next_fraction() * total;
        self.lessons[self
            .weight_sums
            .partition_point(|&weight_sum| weight_sum <= drawn_weight)
            .min(self.lessons.len() - 1)]
    }

    fn draw_lesson_in_season(&mut self) -> u32 {
        let unit_count = self.tree.level_starts[4] - self.tree.level_starts[3];
        let years = self.time_us as f64 / (YEAR_DAYS * 86_400e6);
        let position = (years + SEASON_WIDTH * self.rng.normal()).rem_euclid(1.0);
        let unit = self.tree.level_starts[3]
            + ((position * f64::from(unit_count)) as u32).min(unit_count - 1);
        let unit_lessons = self.tree.children(unit);
        unit_lessons.start + self.rng.below(unit_lessons.end - unit_lessons.start)
    }

    fn add_home(&mut self) {
        let mut items = vec![0];
        items.extend(self.tree.children(0));
        for _ in 0..RECOMMENDED_LESSONS {
            items.push(self.draw_lesson());
        }
        items.push(0);
        self.push(HOME, 0, items);
    }

    fn add_browse(&mut self, lesson: u32, level: usize) {
        self.add_view(self.tree.ancestor(lesson, level), BROWSE);
    }

    /// A page about an item: its ancestors, itself, and a list: its children, or for a page its neighbours.
    fn add_view(&mut self, item: u32, route: u32) {
        let mut items = self.tree.path_from_root(item);
        items.push(item);
        let parent = self.tree.parents[item as usize];
        let list_parent = if route == PAGE { parent } else { item };
        items.extend(self.tree.children(list_parent));
        items.push(0);
        self.push(route, item, items);
    }

    /// A page of search results, which is about no item: lessons, each with its unit.
    fn add_search(&mut self) {
        let mut items = vec![0];
        for _ in 0..SEARCH_RESULTS {
            let lesson = self.draw_lesson();
            items.extend([lesson, self.tree.parents[lesson as usize]]);
        }
        self.push(SEARCH, NONE, items);
    }

    /// A whole unit with lessons and pages in one document: rare, and of far more items than any page.
    fn add_export(&mut self, lesson: u32) {
        let unit = self.tree.ancestor(lesson, 3);
        let mut items = self.tree.path_from_root(unit);
        for unit_lesson in self.tree.children(unit) {
            items.push(unit_lesson);
            items.extend(self.tree.children(unit_lesson));
        }
        self.push(EXPORT, unit, items);
    }

    fn push(&mut self, route: u32, page: u32, items: Vec<u32>) {
        let render_us =
            if route == API { 6000.0 } else { RENDER_US + RENDER_ITEM_US * items.len() as f64 };
        let base_us = (render_us * self.rng.log_normal(RENDER_SIGMA)) as u32;
        self.visits.push(Visit { time_us: self.time_us, base_us, page, route, items });
        self.time_us += (-PAUSE_US * (1.0 - self.rng.next_fraction()).ln()) as u64;
    }
}
