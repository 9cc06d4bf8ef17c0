//! The rows of `stats settings`. The caller's rows replace ours of the same name.

use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::session::context::Context;
use crate::session::rows::{Rows, on, yes};
use crate::shared::config::{Listen, Protocols};

/// Rows of features that this server does not have, with memcached's defaults.
const ABSENT: [(&str, &str); 12] = [
    ("ext_item_size", "512"),
    ("ext_item_age", "4294967295"),
    ("ext_low_ttl", "0"),
    ("ext_recache_rate", "2000"),
    ("ext_wbuf_size", "4194304"),
    ("ext_compact_under", "0"),
    ("ext_drop_under", "0"),
    ("ext_max_sleep", "1000000"),
    ("ext_max_frag", "0.80"),
    ("slab_automove_freeratio", "0.010"),
    ("ext_drop_unread", "no"),
    ("num_napi_ids", "0"),
];

/// Appends all rows and END.
pub(super) fn write(context: &Context<'_>, out: &mut Vec<u8>) {
    let mut table = Table {
        rows: Rows::new(out),
        context,
        written: Vec::new(),
    };
    table.network();
    table.service();
    table.slabs();
    table.lru();
    table.buffers();
    for (name, value) in ABSENT {
        table.row(name, value);
    }
    let memory_file = context.shared.config.memory_file.as_deref();
    let memory_file = memory_file.map_or("(null)".into(), Path::to_string_lossy);
    table.row("memory_file", memory_file);
    table.row("client_flags_size", 4);
    table.tls();
    table.overrides();
    table.rows.end();
}

struct Table<'o, 't, 'w> {
    rows: Rows<'o>,
    context: &'t Context<'w>,
    /// The names of our own rows, to find which of the caller's are additional.
    written: Vec<&'static str>,
}

impl Table<'_, '_, '_> {
    /// One row; the caller's value replaces ours.
    fn row(&mut self, name: &'static str, value: impl Display) {
        self.written.push(name);
        let display = &self.context.shared.config.display.settings;
        match display.iter().find(|(own, _)| own == name) {
            Some((_, value)) => self.rows.row(name, value),
            None => self.rows.row(name, value),
        }
    }

    fn network(&mut self) {
        let config = &self.context.shared.config;
        let unix = config.listeners.iter().find_map(|listen| match listen {
            Listen::Unix { path, mode } => Some((path.display().to_string(), *mode)),
            Listen::Tcp(_) | Listen::Tls { .. } => None,
        });
        let (path, mode) = unix.unwrap_or_else(|| ("NULL".to_owned(), 0o700));
        self.row("maxbytes", self.context.shared.tuning.get().memory_bytes);
        self.row("maxconns", config.connections_max);
        self.row("tcpport", config.display.tcp_port);
        self.row(
            "udpport",
            config
                .display
                .udp
                .first()
                .map_or(0, std::net::SocketAddr::port),
        );
        self.row("inter", config.display.inter.as_deref().unwrap_or("NULL"));
        self.row(
            "verbosity",
            self.context.shared.verbosity.load(Ordering::Relaxed),
        );
        self.row("oldest", 0);
        self.row("evictions", on(config.evict));
        self.row("domain_socket", path);
        self.row("umask", format_args!("{mode:o}"));
    }

    fn service(&mut self) {
        let config = &self.context.shared.config;
        self.row("shutdown_command", yes(config.shutdown_enabled));
        self.row("growth_factor", format_args!("{:.2}", config.slab_factor));
        self.row("chunk_size", config.slab_chunk_min);
        self.row("num_threads", config.workers);
        self.row("num_threads_per_udp", 0);
        self.row("stat_key_prefix", char::from(config.prefix_delimiter));
        self.row("detail_enabled", yes(self.context.shared.detail.is_on()));
        self.row("reqs_per_event", config.requests_per_event);
        self.row("cas_enabled", yes(config.cas_enabled));
        self.row("tcp_backlog", config.backlog);
        self.row("binding_protocol", "ascii");
        let users = config.users.as_ref();
        let is_sasl = users.is_some() && config.protocol != Protocols::Text;
        let in_text = users.filter(|_| config.protocol != Protocols::Binary);
        self.row("auth_enabled_sasl", yes(is_sasl));
        match in_text {
            Some(users) => self.row("auth_enabled_ascii", users.path.display()),
            None => self.row("auth_enabled_ascii", "no"),
        }
        self.row("item_size_max", config.item_bytes_max);
        self.row("maxconns_fast", yes(config.maxconns_fast));
    }

    fn slabs(&mut self) {
        let values = self.context.shared.tuning.get();
        let chunk_max = self
            .context
            .shared
            .classes
            .chunks()
            .last()
            .copied()
            .unwrap_or(0);
        self.row("hashpower_init", 0);
        self.row("slab_reassign", "no");
        self.row("slab_automove", values.slab_automove);
        self.row(
            "slab_automove_ratio",
            format_args!("{:.2}", values.slab_automove_ratio),
        );
        self.row("slab_automove_window", values.slab_automove_window);
        self.row("slab_chunk_max", chunk_max);
    }

    fn lru(&mut self) {
        let config = &self.context.shared.config;
        let values = self.context.shared.tuning.get();
        self.row("lru_crawler", yes(values.lru_crawler));
        self.row("lru_crawler_sleep", values.lru_crawler_sleep_us);
        self.row("lru_crawler_tocrawl", values.lru_crawler_tocrawl);
        self.row("tail_repair_time", 0);
        self.row("flush_enabled", yes(config.flush_enabled));
        self.row("dump_enabled", yes(config.dump_enabled));
        self.row("hash_algorithm", "own");
        self.row("lru_maintainer_thread", yes(config.lru_maintainer));
        self.row("lru_segmented", yes(values.lru_segmented));
        self.row("hot_lru_pct", values.hot_lru_pct);
        self.row("warm_lru_pct", values.warm_lru_pct);
        self.row(
            "hot_max_factor",
            format_args!("{:.2}", values.hot_max_factor),
        );
        self.row(
            "warm_max_factor",
            format_args!("{:.2}", values.warm_max_factor),
        );
        self.row("temp_lru", yes(values.temporary_ttl_s.is_some()));
        self.row("temporary_ttl", values.temporary_ttl_s.unwrap_or(61));
    }

    fn buffers(&mut self) {
        let config = &self.context.shared.config;
        self.row("idle_timeout", config.idle_timeout_s);
        self.row("watcher_logbuf_size", config.watcher_bytes);
        self.row("worker_logbuf_size", 65536);
        self.row("read_buf_mem_limit", 0);
        self.row("track_sizes", "no");
        self.row("inline_ascii_response", "no");
    }

    /// memcached's rows about TLS, where it is on.
    fn tls(&mut self) {
        let Some(tls) = &self.context.shared.tls else {
            return;
        };
        let settings = &tls.settings;
        self.row("ssl_enabled", "yes");
        self.row("ssl_chain_cert", settings.chain_file.display());
        self.row("ssl_key", settings.key_file.display());
        self.row("ssl_verify_mode", 0);
        // PEM, as OpenSSL numbers it.
        self.row("ssl_keyformat", 1);
        self.row("ssl_ciphers", "NULL");
        match &settings.client_ca_file {
            Some(path) => self.row("ssl_ca_cert", path.display()),
            None => self.row("ssl_ca_cert", "NULL"),
        }
        self.row("ssl_wbuf_size", settings.write_buffer_bytes);
        self.row("ssl_session_cache", yes(settings.session_tickets));
        self.row("ssl_kernel_tls", "no");
        let oldest = if settings.only_tls13 {
            "tlsv1.3"
        } else {
            "tlsv1.2"
        };
        self.row("ssl_min_version", oldest);
    }

    /// The caller's rows with names of their own.
    fn overrides(&mut self) {
        for (name, value) in &self.context.shared.config.display.settings {
            if !self.written.contains(&name.as_str()) {
                self.rows.row(name, value);
            }
        }
    }
}
