//! Both clients behind one set of methods, so that a test is written once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use glasscache_client::bulk::{Failures, IndexedValue};
use glasscache_client::client::Value;
use glasscache_client::engine::{Counter, InitialNumber};
use glasscache_client::near::RequestScope;
use glasscache_client::pipeline::{MetaReply, Reply};
use glasscache_client::request::{Item, Request};
use glasscache_client::write_outcome::WriteOutcome;
use glasscache_client::{
    Address, Arithmetic, AsyncClient, Budget, Client, Error, Options, Placement, Protocol,
    StoreMode, WireKey,
};
use tokio::runtime::Runtime;

/// A client, and the runtime it needs if it needs one.
pub(crate) enum EitherClient {
    Blocking(Client),
    Tokio(AsyncClient, Runtime),
}

/// Runs a test with each client.
pub(crate) fn with_both(servers: &str, options: &Options, test: impl Fn(&EitherClient)) {
    test(&EitherClient::blocking(servers, options.clone()));
    test(&EitherClient::tokio(servers, options.clone()));
}

/// Runs a test with each client, first in text and meta, then in binary.
pub(crate) fn with_both_in_each_protocol(
    servers: &str,
    options: &Options,
    test: impl Fn(&EitherClient),
) {
    for protocol in [Protocol::Detected, Protocol::Binary] {
        let options = Options { protocol, ..options.clone() };
        with_both(servers, &options, &test);
    }
}

/// Options with a time-out long enough for a busy machine.
pub(crate) fn long_timeout() -> Options {
    Options { timeout: Duration::from_secs(20), ..Options::default() }
}

pub(crate) fn wire_key(key: &str) -> WireKey<'_> {
    WireKey { bytes: key.as_bytes(), is_base64: false }
}

pub(crate) fn item<'a>(key: &'a str, body: &'a [u8]) -> Item<'a> {
    Item { key: wire_key(key), flags: 7, body }
}

macro_rules! both {
    ($either_client:expr, $($method:ident).+ ( $($argument:expr),* )) => {
        match $either_client {
            EitherClient::Blocking(client) => client.$($method).+($($argument),*),
            EitherClient::Tokio(client, runtime) => runtime.block_on(client.$($method).+($($argument),*)),
        }
    };
}

impl EitherClient {
    pub(crate) fn blocking(servers: &str, options: Options) -> Self {
        let addresses = Address::parse_list(servers).unwrap();
        Self::Blocking(Client::new(&addresses, Placement::Ketama, options).unwrap())
    }

    pub(crate) fn tokio(servers: &str, options: Options) -> Self {
        let mut runtime_builder = tokio::runtime::Builder::new_multi_thread();
        Self::tokio_on(runtime_builder.worker_threads(2), servers, options)
    }

    /// On one thread nothing is received before all tasks of a `join!` have been polled once, however busy the machine is.
    pub(crate) fn tokio_on_one_thread(servers: &str, options: Options) -> Self {
        let mut runtime_builder = tokio::runtime::Builder::new_current_thread();
        Self::tokio_on(&mut runtime_builder, servers, options)
    }

    fn tokio_on(
        runtime_builder: &mut tokio::runtime::Builder,
        servers: &str,
        options: Options,
    ) -> Self {
        let addresses = Address::parse_list(servers).unwrap();
        let client = AsyncClient::new(&addresses, Placement::Ketama, options).unwrap();
        Self::Tokio(client, runtime_builder.enable_all().build().unwrap())
    }

    pub(crate) fn core(&self) -> &Client {
        match self {
            Self::Blocking(client) => client,
            Self::Tokio(client, _) => client.core(),
        }
    }

    fn budget(&self) -> Budget<'static> {
        Budget::new(self.core().options().timeout)
    }

    pub(crate) fn get(&self, key: &str) -> Result<Option<Value>, Error> {
        both!(self, get(wire_key(key), false, &self.budget()))
    }

    pub(crate) fn gets(&self, key: &str) -> Result<Option<Value>, Error> {
        both!(self, get(wire_key(key), true, &self.budget()))
    }

    /// Reads a key within a request; without a key, what the request's page needs.
    pub(crate) fn get_within(
        &self,
        scope: &Arc<RequestScope>,
        key: Option<&str>,
    ) -> Option<Vec<u8>> {
        let budget = Budget { scope: Some(scope), ..self.budget() };
        let keys: Vec<_> = key.map(wire_key).into_iter().collect();
        let near = self.core().near().unwrap().clone();
        let (values, failures) = both!(self, read_near((near, &keys), &budget)).unwrap();
        assert!(failures.is_empty());
        values.into_iter().flatten().next().map(|value| value.bytes.to_vec())
    }

    pub(crate) fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        self.get(key).unwrap().map(|value| value.bytes)
    }

    pub(crate) fn store(
        &self,
        mode: StoreMode,
        key: &str,
        body: &[u8],
    ) -> Result<WriteOutcome, Error> {
        both!(self, store(mode, item(key, body), 0, false, &self.budget()))
    }

    pub(crate) fn set(&self, key: &str, body: &[u8]) -> Result<WriteOutcome, Error> {
        self.store(StoreMode::Set, key, body)
    }

    pub(crate) fn set_noreply(&self, key: &str, body: &[u8]) -> Result<WriteOutcome, Error> {
        both!(self, store(StoreMode::Set, item(key, body), 0, true, &self.budget()))
    }

    pub(crate) fn add_noreply(&self, key: &str, body: &[u8]) -> Result<WriteOutcome, Error> {
        both!(self, store(StoreMode::Add, item(key, body), 0, true, &self.budget()))
    }

    pub(crate) fn delete(&self, key: &str) -> Result<bool, Error> {
        both!(self, delete(wire_key(key), false, &self.budget()))
    }

    pub(crate) fn touch(&self, key: &str, exptime: i64) -> Result<bool, Error> {
        both!(self, touch(wire_key(key), exptime, false, &self.budget()))
    }

    pub(crate) fn get_and_touch(&self, key: &str, exptime: i64) -> Result<Option<Value>, Error> {
        both!(self, get_and_touch(wire_key(key), exptime, &self.budget()))
    }

    pub(crate) fn inspect(&self, key: &str) -> Result<Option<(Value, MetaReply)>, Error> {
        both!(self, inspect(wire_key(key), &self.budget()))
    }

    pub(crate) fn add_to(&self, key: &str, delta: u64) -> Result<Option<u64>, Error> {
        let arithmetic = Arithmetic { delta, is_decrement: false, initial: Some((delta, 0)) };
        both!(self, arithmetic(wire_key(key), arithmetic, false, &self.budget()))
    }

    /// Adds to a number, or makes it `initial`.
    pub(crate) fn add_or_create(
        &self,
        key: &str,
        delta: u64,
        initial: u64,
    ) -> Result<Option<u64>, Error> {
        let initial_number =
            InitialNumber { number: initial, flags: 7, digits: initial.to_string(), exptime: 0 };
        let steps = Counter::new(wire_key(key), delta, false, initial_number);
        both!(self, run_steps(steps, &self.budget()))
    }

    pub(crate) fn get_many(&self, keys: &[&str]) -> Result<(Vec<IndexedValue>, Failures), Error> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        both!(self, get_many(&keys, &self.budget()))
    }

    pub(crate) fn store_many(&self, items: &[Item<'_>]) -> Result<Failures, Error> {
        self.store_many_by(StoreMode::Set, items)
    }

    pub(crate) fn store_many_by(
        &self,
        mode: StoreMode,
        items: &[Item<'_>],
    ) -> Result<Failures, Error> {
        both!(self, store_many(mode, items, 0, &self.budget()))
    }

    pub(crate) fn delete_many(&self, keys: &[&str]) -> Result<Failures, Error> {
        let keys: Vec<_> = keys.iter().map(|key| wire_key(key)).collect();
        both!(self, delete_many(&keys, &self.budget()))
    }

    /// The replies of every server, without their servers' names.
    pub(crate) fn request_all(&self, request: Request<'_>) -> Result<Vec<Reply>, Error> {
        let replies = both!(self, request_all(request, &self.budget()))?;
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    pub(crate) fn close(&self) {
        both!(self, close());
    }

    /// Waits for a future on the client's runtime; the blocking client has none.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        match self {
            Self::Blocking(_) => unreachable!("the blocking client has no futures"),
            Self::Tokio(_, runtime) => runtime.block_on(future),
        }
    }
}
