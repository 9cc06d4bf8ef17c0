//! The table of `-o name=value` options, under memcached's names: the few that act here, then the many that do not.
//!
//! A `no_` name switches its partner off. The options that change nothing are listed in `inert`.

use glasscache_server::TuningGoal;

use super::inert::{DEBUG_ONLY, INERT};
use super::value::{
    format_path, parse_choice, parse_required_path, parse_size, parse_switch, parse_whole_number,
};
use super::{ArgumentKind, Setting};

const KIB: u64 = 1 << 10;
const KB_VALUE: ArgumentKind = ArgumentKind::Value("KB");

/// A switch named by memcached: on as `$name`, off as `no_$name` in the entry after it.
macro_rules! toggle {
    ($name:literal, $no_name:literal, $field:ident, $help:literal) => {
        [
            Setting {
                name: $name,
                letter: None,
                argument_kind: ArgumentKind::Nothing,
                help: $help,
                no_effect_reason: None,
                parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.$field = is_on),
                show: |settings| settings.$field.to_string(),
            },
            Setting {
                name: $no_name,
                letter: None,
                argument_kind: ArgumentKind::Nothing,
                help: concat!("switches ", $name, " off"),
                no_effect_reason: None,
                parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.$field = !is_on),
                show: |settings| (!settings.$field).to_string(),
            },
        ]
    };
}

/// memcached's old defaults. It comes first, so that an option that is given with it takes precedence.
static NO_MODERN: Setting = Setting {
    name: "no_modern",
    letter: None,
    argument_kind: ArgumentKind::Nothing,
    help: "memcached's old defaults: whole-page chunks, no crawler and no maintainer rows in stats",
    no_effect_reason: None,
    parse_into: |settings, raw| {
        if parse_switch(raw)? {
            settings.lru_crawler = false;
            settings.lru_maintainer = false;
            settings.slab_chunk_bytes_max = Some(settings.item_bytes_max().min(1 << 20));
        }
        Ok(())
    },
    show: |_| String::new(),
};

/// The switches that act.
static ACTING_SWITCHES: [[Setting; 2]; 3] = [
    toggle!(
        "maxconns_fast",
        "no_maxconns_fast",
        maxconns_fast,
        "refuse connections above -c at once"
    ),
    toggle!("lru_crawler", "no_lru_crawler", lru_crawler, "show the crawler's rows in stats"),
    toggle!(
        "lru_maintainer",
        "no_lru_maintainer",
        lru_maintainer,
        "show the maintainer's rows in stats"
    ),
];

/// The other options that act.
static ACTING_OPTIONS: &[Setting] = &[
    Setting {
        name: "idle_timeout",
        letter: None,
        argument_kind: ArgumentKind::Value("SECONDS"),
        help: "close connections idle for longer; 0 never",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 0, i64::from(i32::MAX))
                .map(|number| settings.idle_timeout_s = number as u32)
        },
        show: |settings| settings.idle_timeout_s.to_string(),
    },
    Setting {
        name: "slow_ms",
        letter: None,
        argument_kind: ArgumentKind::Value("MS"),
        help: "record and log commands that take so many milliseconds, with what they waited for (stats slow); 0 none",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 0, 3_600_000).map(|number| settings.slow_ms = number as u32)
        },
        show: |settings| settings.slow_ms.to_string(),
    },
    Setting {
        name: "policy",
        letter: None,
        argument_kind: ArgumentKind::Value("NAME"),
        help: "settings of the eviction policy: fixed, or tuned, which tries others in miniature, changes them when that avoids misses, and takes back what did not (stats policy)",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_choice(raw, &["fixed", "tuned"]).map(|name| settings.policy = name)
        },
        show: |settings| settings.policy.to_owned(),
    },
    Setting {
        name: "policy_goal",
        letter: None,
        argument_kind: ArgumentKind::Value("NAME"),
        help: "what policy=tuned minimises: objects, each miss counts 1; bytes, a miss counts the bytes of its item; time, the time in which clients fill it under a lease",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            let name = parse_choice(raw, &TuningGoal::ALL.map(TuningGoal::name))?;
            settings.policy_goal = TuningGoal::by_name(name).unwrap_or_default();
            Ok(())
        },
        show: |settings| settings.policy_goal.name().to_owned(),
    },
    Setting {
        name: "save_on_term",
        letter: None,
        argument_kind: ArgumentKind::Nothing,
        help: "SIGTERM and SIGINT save the items of -e, as SIGUSR1 does",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.save_on_term = is_on),
        show: |settings| settings.save_on_term.to_string(),
    },
    Setting {
        name: "watcher_logbuf_size",
        letter: None,
        argument_kind: KB_VALUE,
        help: "buffer of one watcher, in kilobytes",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_size(raw, KIB, KIB, 1 << 30).map(|bytes| settings.watcher_log_bytes = bytes)
        },
        show: |settings| (settings.watcher_log_bytes / KIB).to_string(),
    },
    Setting {
        name: "worker_logbuf_size",
        letter: None,
        argument_kind: KB_VALUE,
        help: "buffer in which a worker collects log lines, in kilobytes",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_size(raw, KIB, KIB, 1 << 30).map(|bytes| settings.worker_log_bytes = bytes)
        },
        show: |settings| (settings.worker_log_bytes / KIB).to_string(),
    },
    Setting {
        name: "ssl_chain_cert",
        letter: None,
        argument_kind: ArgumentKind::Value("FILE"),
        help: "PEM file with the certificate for -Z and those between it and its authority; read again on SIGHUP and refresh_certs",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_required_path(raw).map(|path| settings.ssl_chain_cert = Some(path))
        },
        show: |settings| format_path(settings.ssl_chain_cert.as_deref()),
    },
    Setting {
        name: "ssl_key",
        letter: None,
        argument_kind: ArgumentKind::Value("FILE"),
        help: "PEM file with its private key, if that is not in the file of ssl_chain_cert",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_required_path(raw).map(|path| settings.ssl_key = Some(path))
        },
        show: |settings| format_path(settings.ssl_key.as_deref()),
    },
    Setting {
        name: "ssl_verify_mode",
        letter: None,
        argument_kind: ArgumentKind::Value("NUM"),
        help: "client certificates: 0 not asked for, 1 verified if presented, 2 or 3 required",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 0, 3).map(|number| settings.ssl_verify_mode = number as u8)
        },
        show: |settings| settings.ssl_verify_mode.to_string(),
    },
    Setting {
        name: "ssl_ca_cert",
        letter: None,
        argument_kind: ArgumentKind::Value("FILE"),
        help: "PEM file with the authorities of client certificates",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_required_path(raw).map(|path| settings.ssl_ca_cert = Some(path))
        },
        show: |settings| format_path(settings.ssl_ca_cert.as_deref()),
    },
    Setting {
        name: "ssl_min_version",
        letter: None,
        argument_kind: ArgumentKind::Value("NUM"),
        help: "oldest version: 2 is TLS 1.2, 3 is TLS 1.3",
        no_effect_reason: None,
        parse_into: |settings, raw| match parse_whole_number(raw, 0, 3) {
            Ok(number @ 2..) => {
                settings.ssl_min_version = number as u8;
                Ok(())
            }
            _ => {
                Err("must be 2 (TLS 1.2) or 3 (TLS 1.3); older versions are not secure".to_owned())
            }
        },
        show: |settings| settings.ssl_min_version.to_string(),
    },
    Setting {
        name: "ssl_session_cache",
        letter: None,
        argument_kind: ArgumentKind::Nothing,
        help: "let clients resume their TLS sessions, by tickets that they keep",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_switch(raw).map(|is_on| settings.ssl_session_cache = is_on)
        },
        show: |settings| settings.ssl_session_cache.to_string(),
    },
    Setting {
        name: "ssl_wbuf_size",
        letter: None,
        argument_kind: KB_VALUE,
        help: "output of one connection that is encrypted at a time, in kilobytes",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_size(raw, KIB, KIB, 1 << 20).map(|bytes| settings.ssl_write_bytes = bytes)
        },
        show: |settings| (settings.ssl_write_bytes / KIB).to_string(),
    },
    Setting {
        name: "ssl_keyformat",
        letter: None,
        argument_kind: ArgumentKind::Value("NUM"),
        help: "form of the key's file: 1, PEM",
        no_effect_reason: Some("it is the only form"),
        parse_into: |_, raw| match parse_whole_number(raw, 1, 1) {
            Ok(_) => Ok(()),
            Err(_) => Err("must be 1 (PEM); openssl pkey converts other forms".to_owned()),
        },
        show: |_| "1".to_owned(),
    },
    Setting {
        name: "slab_chunk_max",
        letter: None,
        argument_kind: KB_VALUE,
        help: "largest chunk of the slab classes in stats items and stats slabs, in kilobytes",
        no_effect_reason: Some("items are stored in segments, only these reports use it"),
        parse_into: |settings, raw| {
            parse_size(raw, KIB, KIB, 1 << 20)
                .map(|bytes| settings.slab_chunk_bytes_max = Some(bytes))
        },
        show: |settings| (settings.slab_chunk_bytes() / KIB).to_string(),
    },
];

/// Every `-o` option, in the order of the help; those for memcached's own tests only when `is_debug`.
pub(crate) fn extended_options(is_debug: bool) -> impl Iterator<Item = &'static Setting> {
    let test_options = if is_debug { DEBUG_ONLY } else { &[] };
    std::iter::once(&NO_MODERN)
        .chain(ACTING_SWITCHES.iter().flatten())
        .chain(ACTING_OPTIONS)
        .chain(INERT)
        .chain(test_options)
}
