//! Commands that administer the server: stats, `flush_all`, limits, crawls, and the words for slabs
//! and LRU segments, which we do not have but whose scripts must go on working.

use glasscache_protocol::ascii;
use glasscache_protocol::command::AdminVerb;
use glasscache_protocol::words;

use super::Outcome;
use super::dump::{Dump, Form};
use crate::hub::Watching;
use crate::info::Reason;
use crate::output::Output;
use crate::stats;
use crate::tuning::Values;
use crate::turn::Turn;

/// Words of one line, at most; more are not looked at.
const WORDS: usize = 8;

/// Executes one administrative command.
pub(super) fn command(
    verb: AdminVerb,
    arguments: &[u8],
    turn: &Turn<'_>,
    out: &mut Output<'_>,
) -> Outcome {
    let mut words_found: [&[u8]; WORDS] = [b""; WORDS];
    let mut count = 0;
    for (to, word) in words_found.iter_mut().zip(ascii::tokens(arguments)) {
        *to = word;
        count += 1;
    }
    let line = words_found.get(..count).unwrap_or_default();
    let reply: &[u8] = match verb {
        AdminVerb::Stats => return stats::command(line, turn, out),
        AdminVerb::Watch => return watch(arguments, turn, out),
        AdminVerb::Shutdown => return shutdown(line, turn, out),
        AdminVerb::LruCrawler => return crawl(line, turn, out),
        AdminVerb::Config => {
            turn.shared.cluster.command(line, &mut out.bytes);
            return Outcome::Done;
        }
        AdminVerb::FlushAll => flush_all(line, turn),
        AdminVerb::Verbosity => verbosity(line, turn),
        AdminVerb::CacheMemlimit => memory_limit(line, turn),
        AdminVerb::Lru => lru(line, turn),
        AdminVerb::Slabs => slabs(line, turn),
        AdminVerb::DebugTime => debug_time(line, turn),
        AdminVerb::Misbehave => words::ERROR,
    };
    out.bytes.extend_from_slice(reply);
    Outcome::Done
}

fn flush_all(line: &[&[u8]], turn: &Turn<'_>) -> &'static [u8] {
    turn.counters.flush_cmds.bump();
    if !turn.shared.config.flush_enabled {
        return b"CLIENT_ERROR flush_all not allowed\r\n";
    }
    let delay = match line.first() {
        None | Some(&b"noreply") => 0,
        Some(word) => match ascii::signed(word).filter(|n| i32::try_from(*n).is_ok()) {
            Some(delay) => delay,
            None => return words::BAD_EXPTIME,
        },
    };
    let at = match turn.expiry(delay) {
        glasscache_store::Expiry::At(at) if delay > 0 => at,
        _ => turn.now,
    };
    turn.store.store().flush(at, turn.now);
    words::OK
}

fn verbosity(line: &[&[u8]], turn: &Turn<'_>) -> &'static [u8] {
    let Some(level) = line.first().and_then(|word| ascii::unsigned32(word)) else {
        return words::BAD_FORMAT;
    };
    let level = u8::try_from(level.min(3)).unwrap_or(3);
    turn.shared
        .verbosity
        .store(level, std::sync::atomic::Ordering::Relaxed);
    words::OK
}

fn memory_limit(line: &[&[u8]], turn: &Turn<'_>) -> &'static [u8] {
    let Some(megabytes) = line.first().and_then(|word| ascii::unsigned32(word)) else {
        return words::ERROR;
    };
    match megabytes {
        ..8 => b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        1_000_000_001.. => b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        _ => {
            let bytes = u64::from(megabytes) << 20;
            if turn.store.store().set_memory(bytes).is_err() {
                return b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
            }
            turn.shared
                .tuning
                .change(|values| values.memory_bytes = bytes);
            words::OK
        }
    }
}

fn lru(line: &[&[u8]], turn: &Turn<'_>) -> &'static [u8] {
    let has_maintainer = turn.shared.config.lru_maintainer;
    match line {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            lru_tune(turn, [hot, warm], [hot_factor, warm_factor])
        }
        [b"mode", mode @ (b"flat" | b"segmented"), ..] if has_maintainer => {
            turn.shared
                .tuning
                .change(|values| values.lru_segmented = *mode == b"segmented");
            words::OK
        }
        [b"temp_ttl", ttl, ..] if has_maintainer => match ascii::signed(ttl) {
            Some(ttl) => {
                let ttl = u32::try_from(ttl).ok();
                turn.shared
                    .tuning
                    .change(|values| values.temporary_ttl_s = ttl);
                words::OK
            }
            None => words::ERROR,
        },
        _ => words::ERROR,
    }
}

fn lru_tune(turn: &Turn<'_>, percents: [&[u8]; 2], factors: [&[u8]; 2]) -> &'static [u8] {
    let [hot, warm] = percents.map(ascii::unsigned32);
    let [hot_factor, warm_factor] = factors.map(real);
    let (Some(hot), Some(warm), Some(hot_factor), Some(warm_factor)) =
        (hot, warm, hot_factor, warm_factor)
    else {
        return words::ERROR;
    };
    if hot.saturating_add(warm) > 80 {
        return b"ERROR hot and warm pcts must not exceed 80\r\n";
    }
    if hot_factor <= 0.0 || warm_factor <= 0.0 {
        return b"ERROR hot/warm age factors must be greater than 0\r\n";
    }
    turn.shared.tuning.change(|values| {
        values.hot_lru_pct = hot;
        values.warm_lru_pct = warm;
        values.hot_max_factor = hot_factor;
        values.warm_max_factor = warm_factor;
    });
    words::OK
}

fn real(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word)
        .ok()?
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

fn slabs(line: &[&[u8]], turn: &Turn<'_>) -> &'static [u8] {
    match line {
        // There are no pages to move: the source never has one to spare.
        [b"reassign", from, to] => match (ascii::signed(from), ascii::signed(to)) {
            (Some(from), Some(to)) if from == to => b"SAME src and dst class are identical\r\n",
            (Some(_), Some(_)) => b"NOSPARE source class has no spare pages\r\n",
            _ => words::BAD_FORMAT,
        },
        [b"automove", b"ratio", value, ..] => tune_real(turn, value, |values, ratio| {
            values.slab_automove_ratio = ratio;
        }),
        [b"automove", b"freeratio", value, ..] => tune_real(turn, value, |values, ratio| {
            values.slab_automove_freeratio = ratio;
        }),
        [b"automove", b"window", value, ..] => match ascii::unsigned32(value) {
            None => words::BAD_FORMAT,
            Some(window @ 3..=1800) => {
                turn.shared
                    .tuning
                    .change(|values| values.slab_automove_window = window);
                words::OK
            }
            Some(_) => b"CLIENT_ERROR automove window too low or too high\r\n",
        },
        [b"automove", b"window"] => words::BAD_FORMAT,
        [b"automove", level, ..] => match ascii::unsigned32(level) {
            None => words::BAD_FORMAT,
            Some(level @ 0..=2) => {
                turn.shared
                    .tuning
                    .change(|values| values.slab_automove = level);
                words::OK
            }
            Some(_) => words::ERROR,
        },
        _ => words::ERROR,
    }
}

fn tune_real(turn: &Turn<'_>, word: &[u8], set: fn(&mut Values, f64)) -> &'static [u8] {
    match real(word) {
        Some(number) => {
            turn.shared.tuning.change(|values| set(values, number));
            words::OK
        }
        None => words::ERROR,
    }
}

fn debug_time(line: &[&[u8]], turn: &Turn<'_>) -> &'static [u8] {
    if !turn.shared.config.debug {
        return words::ERROR;
    }
    match line.first() {
        Some(&(b"p" | b"r")) => words::OK,
        Some(word) => match ascii::signed(word) {
            Some(seconds) => {
                turn.shared.clock.shift(seconds);
                words::OK
            }
            None => words::ERROR,
        },
        None => words::ERROR,
    }
}

fn watch(arguments: &[u8], turn: &Turn<'_>, out: &mut Output<'_>) -> Outcome {
    let reply: &[u8] = if !turn.shared.config.watch_enabled {
        b"CLIENT_ERROR watch commands not allowed\r\n"
    } else if !out.is_settled() {
        b"ERROR cannot pipeline other commands before watch\r\n"
    } else {
        match Watching::parse(arguments) {
            Some(watching) => return Outcome::Watch(watching),
            None => words::ERROR,
        }
    };
    out.bytes.extend_from_slice(reply);
    Outcome::Done
}

fn shutdown(line: &[&[u8]], turn: &Turn<'_>, out: &mut Output<'_>) -> Outcome {
    let reply: &[u8] = if turn.shared.config.shutdown_enabled {
        match line {
            [] | [b"graceful"] => {
                turn.shared.stop();
                return Outcome::Close(Reason::Shutdown);
            }
            _ => b"CLIENT_ERROR invalid shutdown mode\r\n",
        }
    } else {
        b"SERVER_ERROR: shutdown not enabled\r\n"
    };
    out.bytes.extend_from_slice(reply);
    Outcome::Done
}

fn crawl(line: &[&[u8]], turn: &Turn<'_>, out: &mut Output<'_>) -> Outcome {
    let reply: &[u8] = match line {
        [b"metadump", classes] => match start_dump(Form::Meta, classes, turn, out) {
            Ok(dump) => return Outcome::Dump(dump),
            Err(reply) => reply,
        },
        [b"mgdump", classes] => match start_dump(Form::Mg, classes, turn, out) {
            Ok(dump) => return Outcome::Dump(dump),
            Err(reply) => reply,
        },
        [b"crawl", _] if !turn.shared.tuning.get().lru_crawler => CRAWLER_OFF,
        // Expired items leave with their segments; a crawl has nothing left to do.
        [b"crawl", classes] => match parse_classes(classes) {
            Some(_) => words::OK,
            None => BAD_CLASS,
        },
        [b"tocrawl", number] => match ascii::unsigned32(number) {
            Some(number) => {
                turn.shared
                    .tuning
                    .change(|values| values.lru_crawler_tocrawl = number);
                words::OK
            }
            None => words::BAD_FORMAT,
        },
        [b"sleep", number] => match ascii::unsigned32(number) {
            Some(sleep @ ..=1_000_000) => {
                turn.shared
                    .tuning
                    .change(|values| values.lru_crawler_sleep_us = sleep);
                words::OK
            }
            Some(_) => b"CLIENT_ERROR sleep must be one second or less\r\n",
            None => words::BAD_FORMAT,
        },
        [switch @ (b"enable" | b"disable")] => {
            turn.shared
                .tuning
                .change(|values| values.lru_crawler = *switch == b"enable");
            words::OK
        }
        _ => words::ERROR,
    };
    out.bytes.extend_from_slice(reply);
    Outcome::Done
}

const CRAWLER_OFF: &[u8] = b"CLIENT_ERROR lru crawler disabled\r\n";
const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
/// memcached's bound on class numbers, whatever the settings.
const CLASSES: usize = 64;

fn start_dump(
    form: Form,
    classes: &[u8],
    turn: &Turn<'_>,
    out: &Output<'_>,
) -> Result<Dump, &'static [u8]> {
    if !turn.shared.tuning.get().lru_crawler {
        return Err(CRAWLER_OFF);
    }
    if !turn.shared.config.dump_enabled {
        return Err(match form {
            Form::Meta => b"ERROR metadump not allowed\r\n",
            Form::Mg => b"ERROR key dump not allowed\r\n",
        });
    }
    if !out.is_settled() {
        return Err(match form {
            Form::Meta => b"ERROR cannot pipeline other commands before metadump\r\n",
            Form::Mg => b"ERROR cannot pipeline other commands before mgdump\r\n",
        });
    }
    let classes = parse_classes(classes).ok_or(BAD_CLASS)?;
    Ok(Dump::new(form, classes))
}

/// The classes of `all`, `hash` or a list such as `1,2,7`; empty is all of them.
fn parse_classes(text: &[u8]) -> Option<Vec<usize>> {
    if matches!(text, b"all" | b"hash") {
        return Some(Vec::new());
    }
    let class = |word: &[u8]| {
        let class = ascii::unsigned32(word)? as usize;
        (1..CLASSES).contains(&class).then_some(class)
    };
    text.split(|byte| *byte == b',').map(class).collect()
}
