//! What `serve` refuses before it binds or makes anything, and `config check` of the same settings.

use glasscache_server as server;

use super::config::{FoundOnMachine, build_http_settings, build_server_config, find_users_file};
use super::machine_memory::warn_about_memory;
use super::{failure, runtime_files};
use crate::daemon;
use crate::output::Failure;
use crate::settings::{
    ListenAddress, ResolvedSettings, Settings, find_public_address, is_debug,
    parse_listen_addresses,
};

/// Settings with which a server may start, as far as that can be known from them and from this machine's limits.
pub(crate) struct CheckedSettings {
    pub(super) settings: Settings,
    pub(super) addresses: Vec<ListenAddress>,
    pub(super) config: server::Config,
    /// Whether the server behaves as a debug build of memcached.
    pub(super) is_debug: bool,
    pub(crate) warnings: Vec<String>,
}

impl CheckedSettings {
    /// # Errors
    /// Settings that contradict each other or the user who starts the server.
    pub(crate) fn new(resolved: ResolvedSettings) -> Result<CheckedSettings, Failure> {
        Self::with_user_check(resolved, true)
    }

    /// As [`CheckedSettings::new`], for another machine: neither users nor limits of this one matter.
    ///
    /// # Errors
    /// Settings that contradict each other.
    pub(crate) fn offline(resolved: ResolvedSettings) -> Result<CheckedSettings, Failure> {
        Self::with_user_check(resolved, false)
    }

    fn with_user_check(
        resolved: ResolvedSettings,
        is_for_this_machine: bool,
    ) -> Result<CheckedSettings, Failure> {
        let mut settings = resolved.settings;
        let is_debug = is_debug();
        if is_debug
            && settings.udp_port != 0
            && !resolved.assigned_settings.iter().any(|assigned| assigned.setting.name == "port")
        {
            settings.port = settings.udp_port;
        }
        let addresses = parse_listen_addresses(&settings).map_err(Failure::usage)?;
        check_reachable(&settings, &addresses)?;
        let mut warnings = Vec::new();
        let mut unix_group = None;
        if is_for_this_machine {
            daemon::check_user(settings.user.as_deref())?;
            unix_group = settings.unix_group.as_deref().map(daemon::find_group).transpose()?;
            warnings.extend(lower_connections(&mut settings)?);
            warnings.extend(warn_about_memory(settings.memory_bytes));
        }
        let users_file = find_users_file(&settings)?;
        let http = build_http_settings(&settings)?;
        let found = FoundOnMachine { users_file, unix_group };
        let config = build_server_config(&settings, &addresses, found, is_debug);
        let config = server::Config { http, ..config };
        config.check_policy().map_err(|error| failure(&error))?;
        Ok(CheckedSettings { settings, addresses, config, is_debug, warnings })
    }

    /// Checks the files that the server will read, and the places of those that it will make, as the user that it will
    /// run as. Makes nothing; returns all warnings.
    ///
    /// # Errors
    /// What stops the start, except an address that is in use.
    pub(crate) fn check_files(self) -> Result<Vec<String>, Failure> {
        let CheckedSettings { settings, config, mut warnings, .. } = self;
        if settings.replace {
            let prepared = server::prepare_replacement(config).map_err(|error| failure(&error))?;
            warnings.extend(prepared.warnings());
            return Ok(warnings);
        }
        let checked = server::check(config).map_err(|error| failure(&error))?;
        let user = settings.user.as_deref().unwrap_or("root");
        let check_as_user = || -> Result<Vec<String>, Failure> {
            runtime_files::check_folders(&settings)?;
            checked.check_as_user().map_err(|error| failure(&error))
        };
        warnings.extend(daemon::run_as_user(user, check_as_user)??);
        Ok(warnings)
    }
}

fn check_reachable(settings: &Settings, addresses: &[ListenAddress]) -> Result<(), Failure> {
    if settings.public {
        return Ok(());
    }
    let Some(public) = find_public_address(addresses, settings.requires_login()) else {
        return Ok(());
    };
    let address = public.address;
    if public.statistics_only {
        let message = format!(
            "listen (-l): noauth:{address} can be reached by other machines, which could read the statistics without a login"
        );
        return Err(Failure::usage(message)
            .with_hint("add --public if a firewall protects it, or use noauth:127.0.0.1"));
    }
    let message = format!(
        "listen (-l): {address} can be reached by other machines, and clients need neither a login nor a certificate"
    );
    Err(Failure::usage(message).with_hint(
        "add -Y FILE, or -Z with mtls:, or --public if a firewall protects it, or listen on 127.0.0.1",
    ))
}

/// Lowers `-c` to what the descriptors of this user allow, so that the connection beyond is refused with a reply
/// instead of waiting for ever; the warning says so.
fn lower_connections(settings: &mut Settings) -> Result<Option<String>, Failure> {
    let wanted = settings.connections_max;
    settings.connections_max = daemon::raise_descriptor_limit(wanted)?;
    Ok((settings.connections_max < wanted).then(|| {
        format!(
            "conn-limit (-c): {wanted} is lowered to {}: this user may open {} descriptors (ulimit -n, LimitNOFILE)",
            settings.connections_max,
            daemon::descriptor_limit()
        )
    }))
}
