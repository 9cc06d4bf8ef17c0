//! The first line of the log of a server: its version, its addresses and who can connect to each.

use std::net::SocketAddr;
use std::path::Path;

use glasscache_server::ClientCertificate;

use crate::settings::{ListenAddress, Settings};
use crate::version::version_text;

/// One line, for users who start a server by hand, and for the log of a service.
///
/// `bound_addresses` are the TCP addresses, in the order of `listen_addresses`, with the ports that the kernel chose.
pub(super) fn format_start_message(
    settings: &Settings,
    config_file: Option<&Path>,
    listen_addresses: &[ListenAddress],
    bound_addresses: &[SocketAddr],
) -> String {
    format!(
        "glasscache {} listens on {} with {} MB and {} workers{} (pid {}{})",
        version_text(),
        describe_addresses(settings, listen_addresses, bound_addresses),
        settings.memory_bytes >> 20,
        settings.threads,
        config_file.map_or_else(String::new, |path| format!(", settings from {}", path.display())),
        std::process::id(),
        if settings.loses_log() {
            "; its log ends here, --log-file keeps it"
        } else {
            ", Ctrl-C ends it"
        },
    )
}

/// The addresses, those with the same clients together, each group with who they are.
fn describe_addresses(
    settings: &Settings,
    listen_addresses: &[ListenAddress],
    bound_addresses: &[SocketAddr],
) -> String {
    let mut groups: Vec<(Vec<String>, String)> = Vec::new();
    for (listen_address, bound_address) in listen_addresses.iter().zip(bound_addresses) {
        let clients = describe_clients(settings, listen_address, bound_address);
        match groups.last_mut() {
            Some((addresses, last_clients)) if *last_clients == clients => {
                addresses.push(bound_address.to_string());
            }
            _ => groups.push((vec![bound_address.to_string()], clients)),
        }
    }
    if let Some(path) = &settings.unix_socket {
        groups.push((vec![path.display().to_string()], describe_local_clients(settings)));
    }
    if groups.is_empty() {
        return "nothing".to_owned();
    }
    let format_group = |(addresses, clients): &(Vec<String>, String)| {
        format!("{} ({clients})", addresses.join(", "))
    };
    groups.iter().map(format_group).collect::<Vec<String>>().join(", ")
}

/// The start message's words for who can reach a TCP address: a user who replaces memcached expects that other machines can.
fn describe_clients(
    settings: &Settings,
    listen_address: &ListenAddress,
    bound_address: &SocketAddr,
) -> String {
    let is_local = bound_address.ip().is_loopback();
    let reach = if is_local { "this machine only" } else { "other machines too" };
    let mut clients = reach.to_owned();
    if listen_address.tls == Some(ClientCertificate::Required) {
        clients += ", with a certificate";
    }
    if listen_address.statistics_only {
        clients += ", statistics only";
    } else if settings.requires_login() {
        clients += ", after a login";
    } else if !is_local && listen_address.tls != Some(ClientCertificate::Required) {
        clients += ", without a login";
    }
    clients
}

/// The same for the unix socket.
fn describe_local_clients(settings: &Settings) -> String {
    let mut clients = format!("mode {:03o}", settings.unix_mask);
    if let Some(group) = &settings.unix_group {
        clients += ", group ";
        clients += group;
    }
    if settings.requires_login() {
        clients += ", after a login";
    }
    clients
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse_listen_addresses;

    fn describe(settings: &Settings) -> String {
        let listen_addresses = parse_listen_addresses(settings).unwrap();
        let bound: Vec<SocketAddr> = listen_addresses.iter().map(|one| one.address).collect();
        describe_addresses(settings, &listen_addresses, &bound)
    }

    #[test]
    fn each_address_has_its_clients() {
        let listen = "127.0.0.1:1,[::1]:1,10.0.0.5:2,noauth:127.0.0.1:3".to_owned();
        let open = Settings { listen, ..Settings::default() };
        assert_eq!(
            describe(&open),
            "127.0.0.1:1, [::1]:1 (this machine only), 10.0.0.5:2 (other machines too, without a login), \
             127.0.0.1:3 (this machine only, statistics only)"
        );
        let with_login = Settings { auth_file: Some("users".into()), ..open };
        assert!(describe(&with_login).contains("10.0.0.5:2 (other machines too, after a login)"));
        let tls =
            Settings { listen: "mtls:10.0.0.5:2".to_owned(), tls: true, ..Settings::default() };
        assert_eq!(describe(&tls), "10.0.0.5:2 (other machines too, with a certificate)");
        let unix = Settings {
            unix_socket: Some("/run/s".into()),
            unix_group: Some("www-data".to_owned()),
            ..Settings::default()
        };
        assert_eq!(describe(&unix), "/run/s (mode 700, group www-data)");
        assert_eq!(describe(&Settings { port: 0, ..Settings::default() }), "nothing");
    }
}
