//! The rows of `stats settings`. The caller's rows replace ours of the same name.

use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::table::StatsContext;
use crate::session::rows::{Rows, on_or_off, yes_or_no};
use crate::shared::config::{Listen, Protocols};

/// Rows of features that this server does not have, with memcached's defaults.
const ABSENT_FEATURE_ROWS: [(&str, &str); 12] = [
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
pub(super) fn write_settings(context: StatsContext<'_>, out: &mut Vec<u8>) {
    let mut writer = SettingsWriter { rows: Rows::new(out), context, written_names: Vec::new() };
    writer.write_network();
    writer.write_service();
    writer.write_slabs();
    writer.write_lru();
    writer.write_buffers();
    for (name, value) in ABSENT_FEATURE_ROWS {
        writer.write_row(name, value);
    }
    let memory_file = context.shared.config.memory_file.as_deref();
    let memory_file = memory_file.map_or("(null)".into(), Path::to_string_lossy);
    writer.write_row("memory_file", memory_file);
    writer.write_row("client_flags_size", 4);
    writer.write_tls();
    writer.write_additional_rows();
    writer.rows.end();
}

struct SettingsWriter<'o, 's> {
    rows: Rows<'o>,
    context: StatsContext<'s>,
    /// The names of our own rows, to find which of the caller's are additional.
    written_names: Vec<&'static str>,
}

impl SettingsWriter<'_, '_> {
    /// Appends one row; the caller's value replaces ours.
    fn write_row(&mut self, name: &'static str, value: impl Display) {
        self.written_names.push(name);
        let displayed_settings = &self.context.shared.config.display.settings;
        match displayed_settings.iter().find(|(override_name, _)| override_name == name) {
            Some((_, override_value)) => self.rows.write_row(name, override_value),
            None => self.rows.write_row(name, value),
        }
    }

    fn write_network(&mut self) {
        let config = &self.context.shared.config;
        let unix_listener = config.listeners.iter().find_map(|listen| match listen.transport() {
            Listen::Unix { path, mode, .. } => Some((path.display().to_string(), *mode)),
            _ => None,
        });
        let (path, mode) = unix_listener.unwrap_or_else(|| ("NULL".to_owned(), 0o700));
        self.write_row("maxbytes", self.context.shared.tuning.get().memory_bytes);
        self.write_row("maxconns", config.connections_max);
        self.write_row("tcpport", config.display.tcp_port);
        self.write_row("udpport", config.display.udp.first().map_or(0, std::net::SocketAddr::port));
        self.write_row("inter", config.display.inter.as_deref().unwrap_or("NULL"));
        self.write_row("verbosity", self.context.shared.verbosity.load(Ordering::Relaxed));
        self.write_row("oldest", 0);
        self.write_row("evictions", on_or_off(config.evict));
        self.write_row("domain_socket", path);
        self.write_row("umask", format_args!("{mode:o}"));
    }

    fn write_service(&mut self) {
        let config = &self.context.shared.config;
        self.write_row("shutdown_command", yes_or_no(config.shutdown_enabled));
        self.write_row("growth_factor", format_args!("{:.2}", config.slab_factor));
        self.write_row("chunk_size", config.slab_chunk_min);
        self.write_row("num_threads", config.workers);
        self.write_row("num_threads_per_udp", 0);
        self.write_row("stat_key_prefix", char::from(config.prefix_delimiter));
        self.write_row("detail_enabled", yes_or_no(self.context.shared.prefix_table.is_on()));
        self.write_row("reqs_per_event", config.requests_per_event);
        self.write_row("cas_enabled", yes_or_no(config.cas_enabled));
        self.write_row("tcp_backlog", config.backlog);
        self.write_row("binding_protocol", "ascii");
        let users = config.users.as_ref();
        let is_sasl = users.is_some() && config.protocol != Protocols::Text;
        let text_users = users.filter(|_| config.protocol != Protocols::Binary);
        self.write_row("auth_enabled_sasl", yes_or_no(is_sasl));
        match text_users {
            Some(users) => self.write_row("auth_enabled_ascii", users.path.display()),
            None => self.write_row("auth_enabled_ascii", "no"),
        }
        self.write_row("item_size_max", config.item_bytes_max);
        self.write_row("maxconns_fast", yes_or_no(config.maxconns_fast));
    }

    fn write_slabs(&mut self) {
        let tuning = self.context.shared.tuning.get();
        let chunk_bytes_max =
            self.context.shared.slab_classes.chunk_sizes().last().copied().unwrap_or(0);
        self.write_row("hashpower_init", 0);
        self.write_row("slab_reassign", "no");
        self.write_row("slab_automove", tuning.slab_automove);
        self.write_row("slab_automove_ratio", format_args!("{:.2}", tuning.slab_automove_ratio));
        self.write_row("slab_automove_window", tuning.slab_automove_window);
        self.write_row("slab_chunk_max", chunk_bytes_max);
    }

    fn write_lru(&mut self) {
        let config = &self.context.shared.config;
        let tuning = self.context.shared.tuning.get();
        self.write_row("lru_crawler", yes_or_no(tuning.lru_crawler));
        self.write_row("lru_crawler_sleep", tuning.lru_crawler_sleep_us);
        self.write_row("lru_crawler_tocrawl", tuning.lru_crawler_tocrawl);
        self.write_row("tail_repair_time", 0);
        self.write_row("flush_enabled", yes_or_no(config.flush_enabled));
        self.write_row("dump_enabled", yes_or_no(config.dump_enabled));
        self.write_row("hash_algorithm", "own");
        self.write_row("lru_maintainer_thread", yes_or_no(config.lru_maintainer));
        self.write_row("lru_segmented", yes_or_no(tuning.lru_segmented));
        self.write_row("hot_lru_pct", tuning.hot_lru_pct);
        self.write_row("warm_lru_pct", tuning.warm_lru_pct);
        self.write_row("hot_max_factor", format_args!("{:.2}", tuning.hot_max_factor));
        self.write_row("warm_max_factor", format_args!("{:.2}", tuning.warm_max_factor));
        self.write_row("temp_lru", yes_or_no(tuning.temporary_ttl_s.is_some()));
        self.write_row("temporary_ttl", tuning.temporary_ttl_s.unwrap_or(61));
    }

    fn write_buffers(&mut self) {
        let config = &self.context.shared.config;
        self.write_row("idle_timeout", config.idle_timeout_s);
        self.write_row("watcher_logbuf_size", config.watcher_bytes);
        self.write_row("worker_logbuf_size", 65536);
        self.write_row("read_buf_mem_limit", 0);
        self.write_row("track_sizes", "no");
        self.write_row("inline_ascii_response", "no");
    }

    /// Appends memcached's rows about TLS, where it is on.
    fn write_tls(&mut self) {
        let Some(tls) = &self.context.shared.tls else {
            return;
        };
        let settings = &tls.settings;
        self.write_row("ssl_enabled", "yes");
        self.write_row("ssl_chain_cert", settings.chain_file.display());
        self.write_row("ssl_key", settings.key_file.display());
        self.write_row("ssl_verify_mode", 0);
        // PEM, as OpenSSL numbers it.
        self.write_row("ssl_keyformat", 1);
        self.write_row("ssl_ciphers", "NULL");
        match &settings.client_ca_file {
            Some(path) => self.write_row("ssl_ca_cert", path.display()),
            None => self.write_row("ssl_ca_cert", "NULL"),
        }
        self.write_row("ssl_wbuf_size", settings.write_buffer_bytes);
        self.write_row("ssl_session_cache", yes_or_no(settings.session_tickets));
        self.write_row("ssl_kernel_tls", "no");
        let min_version = if settings.only_tls13 { "tlsv1.3" } else { "tlsv1.2" };
        self.write_row("ssl_min_version", min_version);
    }

    /// Appends the caller's rows whose names are not among ours.
    fn write_additional_rows(&mut self) {
        for (name, value) in &self.context.shared.config.display.settings {
            if !self.written_names.contains(&name.as_str()) {
                self.rows.write_row(name, value);
            }
        }
    }
}
