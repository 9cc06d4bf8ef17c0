//! What else the machine did during a replay: CPU that other programs or the host of a virtual machine took.

use std::time::Instant;

use glasscache_client::{Address, address::Endpoint};

use crate::access::{Access, Credentials, Protocol};
use crate::proc::{CpuSnapshot, Meter, read_stolen_cpu_s};
use crate::target::find_meter;

/// Cores of other programs from which on they are said to disturb.
const OTHER_CORES_MAX: f64 = 0.2;

/// The share of a core that the host may take.
const STOLEN_CORES_MAX: f64 = 0.02;

/// A measurement of the machine that has begun.
pub(super) struct MachineWatch {
    /// `None`: the servers run here too, and cannot be told from other programs.
    meter: Option<Meter>,
    snapshot: CpuSnapshot,
    stolen_s: f64,
    started_at: Instant,
}

/// What others took meanwhile, in cores.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MachineLoad {
    /// Other programs than this one and the server; `None` if the server cannot be told from them.
    pub other_cores: Option<f64>,
    /// The host of this virtual machine.
    pub stolen_cores: f64,
}

impl MachineWatch {
    pub(super) fn begin(servers: &[Address]) -> Self {
        let meter = find_meter_of(servers);
        Self {
            snapshot: meter.clone().unwrap_or_default().read(),
            meter,
            stolen_s: read_stolen_cpu_s(),
            started_at: Instant::now(),
        }
    }

    pub(super) fn end(&self) -> MachineLoad {
        let seconds = self.started_at.elapsed().as_secs_f64().max(1e-9);
        let since = |meter: &Meter| meter.read().since(&self.snapshot).other_cores(seconds);
        MachineLoad {
            other_cores: self.meter.as_ref().map(since),
            stolen_cores: ((read_stolen_cpu_s() - self.stolen_s) / seconds).max(0.0),
        }
    }
}

/// What reads the CPU of the server, if there is one whose process is known, or none on this machine.
fn find_meter_of(servers: &[Address]) -> Option<Meter> {
    let meters = servers.iter().map(|server| {
        let is_unix = matches!(server.endpoint, Endpoint::Unix(_));
        let address = server.endpoint.to_string();
        let access = Access::find(&address, Protocol::Text, &Credentials::default());
        let access = access.ok()?;
        let is_local = is_unix || crate::target::is_local(&access.endpoint);
        let meter = find_meter(&access);
        (!is_local || matches!(meter, Meter::Process { .. })).then_some(meter)
    });
    let meters: Vec<Meter> = meters.collect::<Option<_>>()?;
    let mut local_meters =
        meters.into_iter().filter(|meter| matches!(meter, Meter::Process { .. }));
    let first = local_meters.next().unwrap_or_default();
    local_meters.next().is_none().then_some(first)
}

impl MachineLoad {
    /// The evidence that the machine was disturbed, a sentence part each.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut evidence = Vec::new();
        if let Some(cores) = self.other_cores.filter(|&cores| cores > OTHER_CORES_MAX) {
            evidence.push(format!("other programs took {cores:.1} cores"));
        }
        if self.stolen_cores > STOLEN_CORES_MAX {
            evidence.push(format!("the host took {:.2} cores", self.stolen_cores));
        }
        evidence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_took_much_is_evidence() {
        let quiet = MachineLoad { other_cores: Some(0.1), stolen_cores: 0.01 };
        assert!(quiet.evidence().is_empty());
        assert!(MachineLoad::default().evidence().is_empty());
        let busy = MachineLoad { other_cores: Some(1.24), stolen_cores: 0.5 };
        let expected = ["other programs took 1.2 cores", "the host took 0.50 cores"];
        assert_eq!(busy.evidence(), expected);
    }
}
