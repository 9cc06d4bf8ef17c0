//! Makes the calls of a profile to one server, through our client or a Python client.

use super::python_client::PythonClient;
use super::rust_client::RustClient;
use super::{CallBlock, Cell, GetTimes, Settings};
use crate::target::{CallError, Target};

/// A client of one server, which does what is measured.
pub(super) struct Caller<'t> {
    /// Beside a Python client it measures the time on the wire.
    rust_client: RustClient<'t>,
    python_client: Option<PythonClient>,
}

impl<'t> Caller<'t> {
    /// The client that the settings name.
    pub(super) fn new(target: &'t Target, settings: &Settings) -> Result<Self, CallError> {
        let start_python = |name| PythonClient::start(name, target, settings.seed);
        Ok(Self {
            rust_client: RustClient::new(target, settings)?,
            python_client: settings.via.as_deref().map(start_python).transpose()?,
        })
    }

    /// Connects anew, and makes calls that are not measured until that is done.
    pub(super) fn reconnect(&mut self, cell: Cell) -> Result<(), CallError> {
        match &mut self.python_client {
            Some(python_client) => python_client.reconnect(cell),
            None => self.rust_client.reconnect(cell),
        }
    }

    /// Stores the values of `cell`; false if the server refuses them, for example as too large.
    pub(super) fn fill(&mut self, cell: Cell) -> Result<bool, CallError> {
        match &mut self.python_client {
            Some(python_client) => python_client.fill(cell),
            None => self.rust_client.fill(cell),
        }
    }

    /// Reads the values of `cell` this many times, each time with a clock around the call.
    pub(super) fn read(&mut self, cell: Cell, calls: usize) -> Result<CallBlock, CallError> {
        match &mut self.python_client {
            Some(python_client) => python_client.read(cell, calls),
            None => self.rust_client.read(cell, calls),
        }
    }

    /// Deletes the values of `cell`.
    pub(super) fn clear(&mut self, cell: Cell) -> Result<(), CallError> {
        match &mut self.python_client {
            Some(python_client) => python_client.clear(cell),
            None => self.rust_client.clear(cell),
        }
    }

    /// Splits the time of a get of `bytes` bytes into parts, over this many calls.
    pub(super) fn measure_parts(
        &mut self,
        bytes: usize,
        calls: usize,
    ) -> Result<GetTimes, CallError> {
        match &mut self.python_client {
            Some(python_client) => {
                python_client.measure_parts(&mut self.rust_client, (bytes, calls))
            }
            None => self.rust_client.measure_parts(bytes, calls),
        }
    }
}
