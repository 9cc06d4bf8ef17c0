//! The statistics of one server after another, each over a connection of its own that stays open.

use std::fmt;

use glasscache_client::address::Endpoint;
use glasscache_client::pipeline::Reply;
use glasscache_client::request::Request;
use glasscache_client::{Address, Client};
use glasscache_findings::counters::Counters;

use crate::output::{Exit, Failure};
use crate::target::{Target, failure};

/// Rows of a reply to `stats`.
pub(crate) type Rows = Vec<(String, String)>;

/// Reads the statistics of one server.
pub(crate) struct ServerReader {
    address: Address,
    client: Client,
    target: Target,
}

impl fmt::Display for ServerReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address.endpoint)
    }
}

impl ServerReader {
    /// A reader of each server of the target; connects to none yet.
    pub(crate) fn open_all(target: &Target) -> Result<Vec<ServerReader>, Failure> {
        let open = |address: Address| {
            let client = target.client_of(std::slice::from_ref(&address))?;
            Ok(ServerReader { address, client, target: target.clone() })
        };
        target.addresses()?.into_iter().map(open).collect()
    }

    /// The address, as it was given or found.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Where the server listens.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.address.endpoint
    }

    /// Forgets that the server did not respond: a client waits before it connects again, without the reason.
    pub(crate) fn reopen(&mut self) -> Result<(), Failure> {
        self.client = self.target.client_of(std::slice::from_ref(&self.address))?;
        Ok(())
    }

    /// The rows of `stats group`; the general ones if `group` is empty.
    pub(crate) fn read_rows(&self, group: &str) -> Result<Rows, Failure> {
        let request = Request::Stats { argument: group.as_bytes() };
        let replies = self.client.request_all(request, &self.target.budget());
        match replies.map_err(|error| failure(&error))?.pop() {
            Some((_, Ok(Reply::Rows(rows)))) => Ok(rows),
            Some((_, Err(error))) => Err(failure(&error)),
            _ => Err(Failure::new(Exit::BadData, format!("{self} sent no stats rows"))),
        }
    }

    /// The general counters.
    pub(crate) fn read_counters(&self) -> Result<Counters, Failure> {
        Ok(Counters::of(borrow_rows(&self.read_rows("")?)))
    }
}

/// The rows as pairs of texts.
pub(crate) fn borrow_rows(rows: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    rows.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}
