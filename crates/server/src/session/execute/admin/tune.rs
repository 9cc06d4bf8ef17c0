//! Commands for LRU segments and slab pages, which this server does not have: the values are kept and reported and
//! change nothing.

use glasscache_protocol::ascii;
use glasscache_protocol::replies;

use crate::session::context::Context;
use crate::shared::tuning::TuningValues;

pub(super) fn run_lru(arguments: &[&[u8]], context: &Context<'_>) -> &'static [u8] {
    let has_maintainer = context.shared.config.lru_maintainer;
    match arguments {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            tune_lru(context, [hot, warm], [hot_factor, warm_factor])
        }
        [b"mode", mode @ (b"flat" | b"segmented"), ..] if has_maintainer => {
            context.shared.tuning.change(|values| values.lru_segmented = *mode == b"segmented");
            replies::OK
        }
        [b"temp_ttl", token, ..] if has_maintainer => match ascii::parse_i64(token) {
            Some(ttl) => {
                let ttl_s = u32::try_from(ttl).ok();
                context.shared.tuning.change(|values| values.temporary_ttl_s = ttl_s);
                replies::OK
            }
            None => replies::ERROR,
        },
        _ => replies::ERROR,
    }
}

fn tune_lru(context: &Context<'_>, percents: [&[u8]; 2], factors: [&[u8]; 2]) -> &'static [u8] {
    let [hot, warm] = percents.map(ascii::parse_u32);
    let [hot_factor, warm_factor] = factors.map(parse_finite_number);
    let (Some(hot), Some(warm), Some(hot_factor), Some(warm_factor)) =
        (hot, warm, hot_factor, warm_factor)
    else {
        return replies::ERROR;
    };
    if hot.saturating_add(warm) > 80 {
        return replies::BAD_LRU_PERCENTS;
    }
    if hot_factor <= 0.0 || warm_factor <= 0.0 {
        return replies::BAD_LRU_FACTORS;
    }
    context.shared.tuning.change(|values| {
        values.hot_lru_pct = hot;
        values.warm_lru_pct = warm;
        values.hot_max_factor = hot_factor;
        values.warm_max_factor = warm_factor;
    });
    replies::OK
}

fn parse_finite_number(token: &[u8]) -> Option<f64> {
    std::str::from_utf8(token).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

pub(super) fn run_slabs(arguments: &[&[u8]], context: &Context<'_>) -> &'static [u8] {
    match arguments {
        // There are no pages to move: the source never has a spare one.
        [b"reassign", from, to] => match (ascii::parse_i64(from), ascii::parse_i64(to)) {
            (Some(from), Some(to)) if from == to => replies::SAME_CLASS,
            (Some(_), Some(_)) => replies::NO_SPARE_PAGES,
            _ => replies::BAD_FORMAT,
        },
        [b"automove", b"ratio", value, ..] => set_number(context, value, |values, ratio| {
            values.slab_automove_ratio = ratio;
        }),
        [b"automove", b"freeratio", value, ..] => set_number(context, value, |values, ratio| {
            values.slab_automove_freeratio = ratio;
        }),
        [b"automove", b"window", value, ..] => match ascii::parse_u32(value) {
            None => replies::BAD_FORMAT,
            Some(window @ 3..=1800) => {
                context.shared.tuning.change(|values| values.slab_automove_window = window);
                replies::OK
            }
            Some(_) => replies::BAD_AUTOMOVE_WINDOW,
        },
        [b"automove", b"window"] => replies::BAD_FORMAT,
        [b"automove", level, ..] => match ascii::parse_u32(level) {
            None => replies::BAD_FORMAT,
            Some(level @ 0..=2) => {
                context.shared.tuning.change(|values| values.slab_automove = level);
                replies::OK
            }
            Some(_) => replies::ERROR,
        },
        _ => replies::ERROR,
    }
}

fn set_number(
    context: &Context<'_>,
    token: &[u8],
    set: fn(&mut TuningValues, f64),
) -> &'static [u8] {
    match parse_finite_number(token) {
        Some(number) => {
            context.shared.tuning.change(|values| set(values, number));
            replies::OK
        }
        None => replies::ERROR,
    }
}
