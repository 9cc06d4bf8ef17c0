//! The table of flags: memcached's letters and long names, and the few of our own.
//!
//! Letters, names and defaults follow memcached 1.6's usage text, so that a command line moves over
//! unchanged. Slab settings shape only what `stats items` and `stats slabs` report.

use super::value::{
    format_path, format_size, parse_choice, parse_networks, parse_number, parse_octal, parse_path,
    parse_required_path, parse_size, parse_switch, parse_whole_number,
};
use super::{ArgumentKind, Setting};

const MIB: u64 = 1 << 20;
/// Upper limit of the maximum item size, as in memcached.
const ITEM_BYTES_LIMIT: u64 = 1 << 30;

/// Every flag of `serve` but `-o`, in the order of the help.
pub(crate) static FLAGS: &[Setting] = &[
    Setting {
        name: "port",
        letter: Some('p'),
        argument_kind: ArgumentKind::Value("NUM"),
        help: "TCP port to listen on; -1 takes a free one, 0 none",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, -1, 65535).map(|number| settings.port = number)
        },
        show: |settings| settings.port.to_string(),
    },
    Setting {
        name: "listen",
        letter: Some('l'),
        argument_kind: ArgumentKind::Value("ADDR"),
        help: "address[:port] to listen on, several by comma or by repetition; each may begin with noauth: (statistics alone, without a login), and with -Z with notls: (plain), btls: (no client certificate) or mtls: (one is required) [default: 127.0.0.1]",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            raw.trim().clone_into(&mut settings.listen);
            Ok(())
        },
        show: |settings| settings.listen.clone(),
    },
    Setting {
        name: "public",
        letter: None,
        argument_kind: ArgumentKind::Nothing,
        help: "allow an address that other machines can reach although clients need neither a login (-Y, -S) nor a certificate (mtls:), or read statistics there without one (noauth:)",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.public = is_on),
        show: |settings| settings.public.to_string(),
    },
    Setting {
        name: "unix-socket",
        letter: Some('s'),
        argument_kind: ArgumentKind::Value("FILE"),
        help: "unix socket to listen on (then there is no TCP but for noauth:)",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            settings.unix_socket = parse_path(raw);
            Ok(())
        },
        show: |settings| format_path(settings.unix_socket.as_deref()),
    },
    Setting {
        name: "unix-mask",
        letter: Some('a'),
        argument_kind: ArgumentKind::Value("MASK"),
        help: "access mask of the unix socket, in octal",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_octal(raw).map(|mask| settings.unix_mask = mask),
        show: |settings| format!("{:o}", settings.unix_mask),
    },
    Setting {
        name: "unix-group",
        letter: None,
        argument_kind: ArgumentKind::Value("GROUP"),
        help: "the unix socket belongs to this group, by name or number, and to the user of the server",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            settings.unix_group = (!raw.is_empty()).then(|| raw.to_owned());
            Ok(())
        },
        show: |settings| settings.unix_group.clone().unwrap_or_default(),
    },
    Setting {
        name: "udp-port",
        letter: Some('U'),
        argument_kind: ArgumentKind::Value("NUM"),
        help: "UDP port",
        no_effect_reason: Some("there is no UDP"),
        parse_into: |settings, raw| {
            parse_whole_number(raw, -1, 65535).map(|number| settings.udp_port = number)
        },
        show: |settings| settings.udp_port.to_string(),
    },
    Setting {
        name: "memory-limit",
        letter: Some('m'),
        argument_kind: ArgumentKind::Value("MB"),
        help: "memory for items, index and connection buffers, in megabytes; a fiftieth and 5 more are for the index alone",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_size(raw, MIB, MIB, 1 << 40).map(|bytes| settings.memory_bytes = bytes)
        },
        show: |settings| (settings.memory_bytes / MIB).to_string(),
    },
    Setting {
        name: "disable-evictions",
        letter: Some('M'),
        argument_kind: ArgumentKind::Nothing,
        help: "refuse when memory is full instead of evicting",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.evict = !is_on),
        show: |settings| (!settings.evict).to_string(),
    },
    Setting {
        name: "max-item-size",
        letter: Some('I'),
        argument_kind: ArgumentKind::Value("BYTES"),
        help: "largest item, with suffix k or m; at most half of -m",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_size(raw, 1, 1024, ITEM_BYTES_LIMIT)
                .map(|bytes| settings.item_bytes_max = Some(bytes))
        },
        show: |settings| format_size(settings.item_bytes_max()),
    },
    Setting {
        name: "conn-limit",
        letter: Some('c'),
        argument_kind: ArgumentKind::Value("NUM"),
        help: "simultaneous connections",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 1, 1_000_000)
                .map(|number| settings.connections_max = number as u32)
        },
        show: |settings| settings.connections_max.to_string(),
    },
    Setting {
        name: "threads",
        letter: Some('t'),
        argument_kind: ArgumentKind::Value("NUM"),
        help: "worker threads",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 1, 256).map(|number| settings.threads = number as usize)
        },
        show: |settings| settings.threads.to_string(),
    },
    Setting {
        name: "max-reqs-per-event",
        letter: Some('R'),
        argument_kind: ArgumentKind::Value("NUM"),
        help: "commands of one connection before other connections are served",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 1, i64::from(i32::MAX))
                .map(|number| settings.requests_per_event = number as u32)
        },
        show: |settings| settings.requests_per_event.to_string(),
    },
    Setting {
        name: "listen-backlog",
        letter: Some('b'),
        argument_kind: ArgumentKind::Value("NUM"),
        help: "length of the kernel's queue of new connections",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 1, 65535).map(|number| settings.backlog = number as u32)
        },
        show: |settings| settings.backlog.to_string(),
    },
    Setting {
        name: "protocol",
        letter: Some('B'),
        argument_kind: ArgumentKind::Value("NAME"),
        help: "protocols served: ascii (text and meta), binary, or auto, where the first byte of a connection decides",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_choice(raw, &["ascii", "binary", "auto", "auto-negotiate"]).map(|name| {
                settings.binding_protocol =
                    Some(if name == "auto" { "auto-negotiate" } else { name });
            })
        },
        show: |settings| settings.protocol().to_owned(),
    },
    Setting {
        name: "memory-file",
        letter: Some('e'),
        argument_kind: ArgumentKind::Value("FILE"),
        help: "items are kept in FILE, best on a RAM disk, and come back after a stop by SIGUSR1 and a start with the same -m",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_required_path(raw).map(|path| settings.memory_file = Some(path))
        },
        show: |settings| format_path(settings.memory_file.as_deref()),
    },
    Setting {
        name: "replace",
        letter: None,
        argument_kind: ArgumentKind::Nothing,
        help: "take over the sockets, the connections and the memory of the running server with the same -e; no request is lost",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.replace = is_on),
        show: |settings| settings.replace.to_string(),
    },
    Setting {
        name: "drain",
        letter: None,
        argument_kind: ArgumentKind::Value("SECONDS"),
        help: "with --replace: the server before closes the connections that it cannot hand over (TLS, uploads) when their pending output is sent, and after this many seconds in any case",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 0, 3600).map(|number| settings.drain_s = number as u32)
        },
        show: |settings| settings.drain_s.to_string(),
    },
    Setting {
        name: "auth-file",
        letter: Some('Y'),
        argument_kind: ArgumentKind::Value("FILE"),
        help: "clients have to log in as a user of this file, a line user:password for each, plain or hashed ($5$, $6$, $7$); read again when it changes",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_required_path(raw).map(|path| settings.auth_file = Some(path))
        },
        show: |settings| format_path(settings.auth_file.as_deref()),
    },
    Setting {
        name: "enable-sasl",
        letter: Some('S'),
        argument_kind: ArgumentKind::Nothing,
        help: "clients of the binary protocol have to log in by SASL (PLAIN) as a user of -Y, or of the file in MEMCACHED_SASL_PWDB",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.sasl = is_on),
        show: |settings| settings.sasl.to_string(),
    },
    Setting {
        name: "enable-ssl",
        letter: Some('Z'),
        argument_kind: ArgumentKind::Nothing,
        help: "clients connect by TLS, with the certificate in -o ssl_chain_cert and ssl_key",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.tls = is_on),
        show: |settings| settings.tls.to_string(),
    },
    Setting {
        name: "proxy-addresses",
        letter: None,
        argument_kind: ArgumentKind::Value("ADDR"),
        help: "addresses of proxies, several by comma, each as 10.0.0.5 or 10.0.0.0/24: their connections have to begin with a header of the PROXY protocol (v1 or v2), which names the client",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_networks(raw).map(|networks| settings.proxies = networks),
        show: |settings| {
            let texts: Vec<String> = settings.proxies.iter().map(ToString::to_string).collect();
            texts.join(",")
        },
    },
    Setting {
        name: "disable-cas",
        letter: Some('C'),
        argument_kind: ArgumentKind::Nothing,
        help: "give out no uniques for cas",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.cas_enabled = !is_on),
        show: |settings| (!settings.cas_enabled).to_string(),
    },
    Setting {
        name: "disable-flush-all",
        letter: Some('F'),
        argument_kind: ArgumentKind::Nothing,
        help: "refuse flush_all and flush_prefix",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.flush_enabled = !is_on),
        show: |settings| (!settings.flush_enabled).to_string(),
    },
    Setting {
        name: "disable-dumping",
        letter: Some('X'),
        argument_kind: ArgumentKind::Nothing,
        help: "refuse to list keys (stats cachedump, stats detail, lru_crawler metadump)",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.dump_enabled = !is_on),
        show: |settings| (!settings.dump_enabled).to_string(),
    },
    Setting {
        name: "disable-watch",
        letter: Some('W'),
        argument_kind: ArgumentKind::Nothing,
        help: "refuse watch",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.watch_enabled = !is_on),
        show: |settings| (!settings.watch_enabled).to_string(),
    },
    Setting {
        name: "enable-shutdown",
        letter: Some('A'),
        argument_kind: ArgumentKind::Nothing,
        help: "let a client end the server with the command shutdown",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_switch(raw).map(|is_on| settings.shutdown_enabled = is_on)
        },
        show: |settings| settings.shutdown_enabled.to_string(),
    },
    Setting {
        name: "prefix-delimiter",
        letter: Some('D'),
        argument_kind: ArgumentKind::Value("CHAR"),
        help: "what ends a key's prefix in stats detail, which is then on from the start",
        no_effect_reason: None,
        parse_into: |settings, raw| match raw.as_bytes() {
            [] => Err("must be one byte".to_owned()),
            [byte] if byte.is_ascii_graphic() => {
                settings.prefix_delimiter = Some(*byte);
                Ok(())
            }
            _ => Err("must be one printable byte".to_owned()),
        },
        show: |settings| {
            settings.prefix_delimiter.map(|byte| char::from(byte).to_string()).unwrap_or_default()
        },
    },
    Setting {
        name: "slab-growth-factor",
        letter: Some('f'),
        argument_kind: ArgumentKind::Value("FACTOR"),
        help: "growth factor of the slab classes in stats items and stats slabs",
        no_effect_reason: Some("items are stored in segments, only these reports use it"),
        parse_into: |settings, raw| {
            parse_number(raw, 1.0, 100.0).map(|factor| settings.slab_factor = factor)
        },
        show: |settings| settings.slab_factor.to_string(),
    },
    Setting {
        name: "slab-min-size",
        letter: Some('n'),
        argument_kind: ArgumentKind::Value("BYTES"),
        help: "smallest space for key, value and flags in these classes",
        no_effect_reason: Some("items are stored in segments, only these reports use it"),
        parse_into: |settings, raw| {
            parse_whole_number(raw, 1, 1 << 20)
                .map(|number| settings.slab_min_bytes = number as u32)
        },
        show: |settings| settings.slab_min_bytes.to_string(),
    },
    Setting {
        name: "enable-largepages",
        letter: Some('L'),
        argument_kind: ArgumentKind::Nothing,
        help: "ask the kernel for huge pages",
        no_effect_reason: Some("they are always requested, from 64 megabytes on"),
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.large_pages = is_on),
        show: |settings| settings.large_pages.to_string(),
    },
    Setting {
        name: "lock-memory",
        letter: Some('k'),
        argument_kind: ArgumentKind::Nothing,
        help: "keep all memory resident",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.lock_memory = is_on),
        show: |settings| settings.lock_memory.to_string(),
    },
    Setting {
        name: "cluster-file",
        letter: None,
        argument_kind: ArgumentKind::Value("FILE"),
        help: "serve config get cluster from this file: a version, then name|address|port of each node; read again when it changes",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            settings.cluster_file = parse_path(raw);
            Ok(())
        },
        show: |settings| format_path(settings.cluster_file.as_deref()),
    },
    Setting {
        name: "http",
        letter: None,
        argument_kind: ArgumentKind::Value("ADDR"),
        help: "address:port, or a port of 127.0.0.1, that serves over HTTP a page about the server (/), /metrics for Prometheus, /healthz, /livez, /readyz and /api/...; an address that other machines can reach needs http-token-file",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            raw.trim().clone_into(&mut settings.http);
            Ok(())
        },
        show: |settings| settings.http.clone(),
    },
    Setting {
        name: "http-token-file",
        letter: None,
        argument_kind: ArgumentKind::Value("FILE"),
        help: "requests to --http have to present the token in the first line of FILE (Authorization: Bearer TOKEN), except /healthz, /livez and /readyz; read again at SIGHUP",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_required_path(raw).map(|path| settings.http_token_file = Some(path))
        },
        show: |settings| format_path(settings.http_token_file.as_deref()),
    },
    Setting {
        name: "metrics",
        letter: None,
        argument_kind: ArgumentKind::Value("ADDR"),
        help: "address:port, or a port of 127.0.0.1, that serves /metrics alone, without a token; metrics contain no keys",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            raw.trim().clone_into(&mut settings.metrics);
            Ok(())
        },
        show: |settings| settings.metrics.clone(),
    },
    Setting {
        name: "watchdog",
        letter: None,
        argument_kind: ArgumentKind::Value("SECONDS"),
        help: "end the process when a worker that has work makes no progress for so long, 2 to 3600 (with -e 60 by default); 0 never",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_watchdog_seconds(raw).map(|number| settings.watchdog_s = Some(number))
        },
        show: |settings| settings.watchdog_s().to_string(),
    },
    Setting {
        name: "failure-exit",
        letter: None,
        argument_kind: ArgumentKind::Value("CODE"),
        help: "exit code when a worker panicked or the watchdog ended the process",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 1, 255).map(|number| settings.failure_exit = number as u8)
        },
        show: |settings| settings.failure_exit.to_string(),
    },
    Setting {
        name: "log-file",
        letter: None,
        argument_kind: ArgumentKind::Value("FILE"),
        help: "keep the log in this file instead of stderr; SIGHUP opens it again, after another program has renamed it",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_required_path(raw).map(|path| settings.log_file = Some(path))
        },
        show: |settings| format_path(settings.log_file.as_deref()),
    },
    Setting {
        name: "log-format",
        letter: None,
        argument_kind: ArgumentKind::Value("NAME"),
        help: "form of the lines of the log: text (on a terminal without time and level, for systemd with its levels), or json",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_choice(raw, &["text", "json"]).map(|name| settings.log_format = name)
        },
        show: |settings| settings.log_format.to_owned(),
    },
    Setting {
        name: "daemon",
        letter: Some('d'),
        argument_kind: ArgumentKind::Nothing,
        help: "leave the terminal once the server listens; what is logged then is lost without --log-file or -v",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.daemon = is_on),
        show: |settings| settings.daemon.to_string(),
    },
    Setting {
        name: "pidfile",
        letter: Some('P'),
        argument_kind: ArgumentKind::Value("FILE"),
        help: "write the process id to this file",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            settings.pid_file = parse_path(raw);
            Ok(())
        },
        show: |settings| format_path(settings.pid_file.as_deref()),
    },
    Setting {
        name: "user",
        letter: Some('u'),
        argument_kind: ArgumentKind::Value("USER"),
        help: "become this user after the sockets are open (only when started as root)",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            settings.user = (!raw.is_empty()).then(|| raw.to_owned());
            Ok(())
        },
        show: |settings| settings.user.clone().unwrap_or_default(),
    },
    Setting {
        name: "enable-coredumps",
        letter: Some('r'),
        argument_kind: ArgumentKind::Nothing,
        help: "raise the limit on core files",
        no_effect_reason: None,
        parse_into: |settings, raw| parse_switch(raw).map(|is_on| settings.core_dumps = is_on),
        show: |settings| settings.core_dumps.to_string(),
    },
    Setting {
        name: "verbose",
        letter: Some('v'),
        argument_kind: ArgumentKind::Count,
        help: "log refused stores and closed connections with the reason; twice also commands and replies",
        no_effect_reason: None,
        parse_into: |settings, raw| {
            parse_whole_number(raw, 0, 255).map(|number| settings.verbosity = (number as u8).min(3))
        },
        show: |settings| settings.verbosity.to_string(),
    },
];

/// Two ticks may follow each other closely, so 1 would stop healthy servers.
fn parse_watchdog_seconds(raw: &str) -> Result<u32, String> {
    match parse_whole_number(raw, 0, 3600) {
        Ok(seconds) if seconds != 1 => Ok(seconds as u32),
        _ => Err("must be 0 or a whole number from 2 to 3600".to_owned()),
    }
}
