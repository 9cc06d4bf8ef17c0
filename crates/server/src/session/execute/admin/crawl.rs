//! `lru_crawler`: listings of all items, and settings of a crawler that has no work in this server.

use glasscache_protocol::ascii;
use glasscache_protocol::replies;

use crate::session::connection_effect::ConnectionEffect;
use crate::session::context::Context;
use crate::session::dump::{Dump, ItemDump, LineFormat};
use crate::session::output::Output;

pub(super) fn run_lru_crawler(
    arguments: &[&[u8]],
    context: &Context<'_>,
    out: &mut Output<'_>,
) -> ConnectionEffect {
    let reply: &[u8] = match arguments {
        [b"metadump", classes_token] => {
            match start_dump(LineFormat::Metadump, classes_token, context, out) {
                Ok(dump) => return ConnectionEffect::Dump(dump),
                Err(reply) => reply,
            }
        }
        [b"mgdump", classes_token] => {
            match start_dump(LineFormat::Mgdump, classes_token, context, out) {
                Ok(dump) => return ConnectionEffect::Dump(dump),
                Err(reply) => reply,
            }
        }
        [b"crawl", _] if !context.shared.tuning.get().lru_crawler => replies::CRAWLER_OFF,
        // Expired items are removed with their segments; a crawl has nothing to do.
        [b"crawl", classes_token] => match parse_classes(classes_token) {
            Some(_) => replies::OK,
            None => replies::BAD_CLASS,
        },
        [b"tocrawl", argument] => match ascii::parse_u32(argument) {
            Some(to_crawl) => {
                context.shared.tuning.change(|values| values.lru_crawler_tocrawl = to_crawl);
                replies::OK
            }
            None => replies::BAD_FORMAT,
        },
        [b"sleep", argument] => match ascii::parse_u32(argument) {
            Some(sleep_us @ ..=1_000_000) => {
                context.shared.tuning.change(|values| values.lru_crawler_sleep_us = sleep_us);
                replies::OK
            }
            Some(_) => replies::BAD_CRAWLER_SLEEP,
            None => replies::BAD_FORMAT,
        },
        [switch @ (b"enable" | b"disable")] => {
            context.shared.tuning.change(|values| values.lru_crawler = *switch == b"enable");
            replies::OK
        }
        _ => replies::ERROR,
    };
    out.bytes.extend_from_slice(reply);
    ConnectionEffect::Continue
}

/// memcached's bound on class numbers, for any settings.
const CLASSES_END: usize = 64;

fn start_dump(
    line_format: LineFormat,
    classes_token: &[u8],
    context: &Context<'_>,
    out: &Output<'_>,
) -> Result<Dump, &'static [u8]> {
    if !context.shared.tuning.get().lru_crawler {
        return Err(replies::CRAWLER_OFF);
    }
    if !context.shared.config.dump_enabled {
        return Err(match line_format {
            LineFormat::Mgdump => replies::MGDUMP_DISABLED,
            _ => replies::METADUMP_DISABLED,
        });
    }
    if !out.ends_with_mn_reply() {
        return Err(match line_format {
            LineFormat::Mgdump => replies::MGDUMP_IN_PIPELINE,
            _ => replies::METADUMP_IN_PIPELINE,
        });
    }
    let classes = parse_classes(classes_token).ok_or(replies::BAD_CLASS)?;
    Ok(Dump::Items(ItemDump::new(line_format, classes, context)))
}

/// The classes of `all`, `hash` or a list such as `1,2,7`; empty is all of them.
fn parse_classes(classes_token: &[u8]) -> Option<Vec<usize>> {
    if matches!(classes_token, b"all" | b"hash") {
        return Some(Vec::new());
    }
    let parse_class = |class_token: &[u8]| {
        let class = ascii::parse_u32(class_token)? as usize;
        (1..CLASSES_END).contains(&class).then_some(class)
    };
    classes_token.split(|byte| *byte == b',').map(parse_class).collect()
}
