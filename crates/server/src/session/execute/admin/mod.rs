//! Commands that administer the server: stats, `flush_all`, limits, crawls, and the commands for slabs and LRU
//! segments, which this server does not have but accepts so that scripts continue to work.

mod crawl;
mod tune;

use glasscache_protocol::ascii;
use glasscache_protocol::command::AdminVerb;
use glasscache_protocol::replies;

use crate::session::connection_effect::ConnectionEffect;
use crate::session::context::Context;
use crate::session::events;
use crate::session::output::Output;
use crate::session::stats;
use crate::shared::connection_info::CloseReason;
use crate::shared::watchers::WatchFilter;

/// Maximum number of tokens of one line; more are ignored.
const TOKENS_MAX: usize = 8;

/// Executes one administrative command.
pub(super) fn run_command(
    verb: AdminVerb,
    arguments: &[u8],
    context: &Context<'_>,
    out: &mut Output<'_>,
) -> ConnectionEffect {
    let mut tokens: [&[u8]; TOKENS_MAX] = [b""; TOKENS_MAX];
    let mut token_count = 0;
    for (token_slot, token) in tokens.iter_mut().zip(ascii::tokens(arguments)) {
        *token_slot = token;
        token_count += 1;
    }
    let tokens = tokens.get(..token_count).unwrap_or_default();
    let reply: &[u8] = match verb {
        AdminVerb::Stats => return stats::run_stats(tokens, context, out),
        AdminVerb::Watch => return watch(arguments, context, out),
        AdminVerb::Shutdown => return shutdown(tokens, context, out),
        AdminVerb::LruCrawler => return crawl::run_lru_crawler(tokens, context, out),
        AdminVerb::Config => {
            context.shared.cluster.reply_to_config(tokens, &mut out.bytes);
            return ConnectionEffect::Continue;
        }
        AdminVerb::RefreshCerts => {
            refresh_certificates(context, &mut out.bytes);
            return ConnectionEffect::Continue;
        }
        AdminVerb::FlushAll => flush_all(tokens, context),
        AdminVerb::Verbosity => set_verbosity(tokens, context),
        AdminVerb::CacheMemlimit => set_memory_limit(tokens, context),
        AdminVerb::Lru => tune::run_lru(tokens, context),
        AdminVerb::Slabs => tune::run_slabs(tokens, context),
        AdminVerb::DebugTime => debug_time(tokens, context),
        AdminVerb::Misbehave => misbehave(tokens, context),
    };
    out.bytes.extend_from_slice(reply);
    ConnectionEffect::Continue
}

fn flush_all(tokens: &[&[u8]], context: &Context<'_>) -> &'static [u8] {
    context.counters.flush_cmds.bump();
    if !context.shared.config.flush_enabled {
        return replies::FLUSH_DISABLED;
    }
    let exptime = match tokens.first() {
        None | Some(&b"noreply") => 0,
        Some(token) => match ascii::parse_i64(token).filter(|n| i32::try_from(*n).is_ok()) {
            Some(exptime) => exptime,
            None => return replies::BAD_EXPTIME,
        },
    };
    remove_all(exptime, context);
    replies::OK
}

/// Removes all items after `exptime`; up to 0 is at once.
fn remove_all(exptime: i64, context: &Context<'_>) {
    let flush_at = match context.expiry(exptime) {
        glasscache_store::Expiry::At(flush_at) if exptime > 0 => flush_at,
        _ => context.now,
    };
    context.store_worker.store().flush(flush_at, context.now);
    events::publish_flush_all(context, flush_at.0.saturating_sub(context.now.0));
}

/// The flush of the binary protocol, counted as `flush_all` is.
pub(super) fn execute_binary_flush(exptime: i64, context: &Context<'_>) {
    context.counters.flush_cmds.bump();
    remove_all(exptime, context);
}

fn set_verbosity(tokens: &[&[u8]], context: &Context<'_>) -> &'static [u8] {
    let Some(level) = tokens.first().and_then(|token| ascii::parse_u32(token)) else {
        return replies::BAD_FORMAT;
    };
    let verbosity = u8::try_from(level.min(3)).unwrap_or(3);
    context.shared.verbosity.store(verbosity, std::sync::atomic::Ordering::Relaxed);
    replies::OK
}

fn set_memory_limit(tokens: &[&[u8]], context: &Context<'_>) -> &'static [u8] {
    let Some(megabytes) = tokens.first().and_then(|token| ascii::parse_u32(token)) else {
        return replies::ERROR;
    };
    match megabytes {
        ..8 => replies::MEMORY_LIMIT_TOO_SMALL,
        1_000_000_001.. => replies::MEMORY_LIMIT_IN_BYTES,
        _ => {
            let memory_bytes = u64::from(megabytes) << 20;
            if context.store_worker.store().set_memory(memory_bytes).is_err() {
                return replies::MEMORY_LIMIT_FAILED;
            }
            context.shared.tuning.change(|values| values.memory_bytes = memory_bytes);
            replies::OK
        }
    }
}

/// Reads the certificates again if they have changed; the reply names the file that cannot be used, as memcached's does.
fn refresh_certificates(context: &Context<'_>, out: &mut Vec<u8>) {
    let Some(tls) = &context.shared.tls else {
        return out.extend_from_slice(replies::TLS_NOT_ENABLED);
    };
    let (reload_result, was_read) = tls.reload_if_changed(context.now.0);
    match &reload_result {
        Ok(_) => out.extend_from_slice(replies::OK),
        Err(reason) => {
            // A file's name may have any byte but NUL; a reply is one line.
            let reason_in_one_line = reason.replace(['\r', '\n'], " ");
            out.extend_from_slice(format!("SERVER_ERROR {reason_in_one_line}\r\n").as_bytes());
        }
    }
    if was_read {
        context.shared.log.queue_outcome("glasscache: refresh_certs", reload_result);
    }
}

fn debug_time(tokens: &[&[u8]], context: &Context<'_>) -> &'static [u8] {
    if !context.shared.config.debug {
        return replies::ERROR;
    }
    match tokens.first() {
        Some(&(b"p" | b"r")) => replies::OK,
        Some(token) => match ascii::parse_i64(token) {
            Some(seconds) => {
                context.shared.clock.shift(seconds);
                replies::OK
            }
            None => replies::ERROR,
        },
        None => replies::ERROR,
    }
}

/// Breaks this worker on purpose, to test how the process reacts.
#[expect(clippy::panic, reason = "the command requests a panic")]
fn misbehave(tokens: &[&[u8]], context: &Context<'_>) -> &'static [u8] {
    match tokens {
        [b"panic"] if context.shared.config.debug => panic!("requested by misbehave panic"),
        [b"loop"] if context.shared.config.debug => loop {
            std::hint::spin_loop();
        },
        _ => replies::ERROR,
    }
}

fn watch(arguments: &[u8], context: &Context<'_>, out: &mut Output<'_>) -> ConnectionEffect {
    let reply: &[u8] = if !context.shared.config.watch_enabled {
        replies::WATCH_DISABLED
    } else if !out.ends_with_mn_reply() {
        replies::WATCH_IN_PIPELINE
    } else {
        match WatchFilter::parse(arguments) {
            Some(filter) => return ConnectionEffect::Watch(filter),
            None => replies::ERROR,
        }
    };
    out.bytes.extend_from_slice(reply);
    ConnectionEffect::Continue
}

fn shutdown(tokens: &[&[u8]], context: &Context<'_>, out: &mut Output<'_>) -> ConnectionEffect {
    let reply: &[u8] = if context.shared.config.shutdown_enabled {
        match tokens {
            [] => {
                context.shared.stop();
                return ConnectionEffect::Close(CloseReason::Shutdown);
            }
            [b"graceful"] => {
                context.shared.stop_and_save();
                return ConnectionEffect::Close(CloseReason::Shutdown);
            }
            _ => replies::BAD_SHUTDOWN_MODE,
        }
    } else {
        replies::SHUTDOWN_DISABLED
    };
    out.bytes.extend_from_slice(reply);
    ConnectionEffect::Continue
}
