//! The client's engine connected to a session of the server, byte by byte and without a socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use glasscache_client::engine::connection::{Attempt, Connection, ConnectionEvent, Ticket};
use glasscache_client::engine::server::ServerState;
use glasscache_client::near::{ClientNearCache, Fetch, FetchedItems, NearValue};
use glasscache_client::pipeline::{Pipeline, Reply};
use glasscache_client::request::Request;
use glasscache_client::{Error, WireKey};
use glasscache_server::{Config, InMemoryConnection, InMemoryWorker};

/// Memory of the server, in bytes.
const MEMORY_BYTES: u64 = 256 << 20;

/// The second that the server's clock shows first.
pub(crate) const FIRST_SECOND: u32 = 10;

/// The worker of a new server.
pub(crate) fn new_worker() -> InMemoryWorker {
    let config = Config { memory_bytes: MEMORY_BYTES, hash_seed: Some(7), ..Config::default() };
    let mut workers = InMemoryWorker::group(config, 1).unwrap();
    workers.remove(0)
}

/// The engine of one connection, and the session behind it.
pub(crate) struct ConnectedEngine {
    pub(crate) engine: Connection,
    session: InMemoryConnection,
    attempt: Attempt,
}

impl ConnectedEngine {
    pub(crate) fn new(
        worker: &mut InMemoryWorker,
        server_state: &Arc<ServerState>,
        start: Instant,
    ) -> Self {
        let attempt = Attempt {
            started: start,
            deadline: start + Duration::from_secs(1_000_000),
            is_retry: false,
        };
        let mut connected_engine = Self {
            engine: Connection::new(server_state.clone(), 64 << 20, 1),
            session: worker.connect(),
            attempt,
        };
        connected_engine.engine.handle_connected(false, attempt);
        connected_engine.serve(worker, FIRST_SECOND);
        assert_eq!(connected_engine.engine.poll(), ConnectionEvent::Ready);
        connected_engine
    }

    /// Writes a request; the server does not have it yet.
    pub(crate) fn submit(&mut self, request: &Request<'_>) -> Ticket {
        let requests = std::slice::from_ref(request);
        self.engine.submit(requests, self.attempt).unwrap().unwrap()
    }

    /// Has the server execute what was written; the replies are not received yet.
    pub(crate) fn execute(&mut self, worker: &mut InMemoryWorker, second: u32) -> Vec<u8> {
        let output = self.engine.wire().output().to_vec();
        self.engine.wire_mut().mark_sent(output.len());
        worker.feed(&mut self.session, &output, second)
    }

    /// Has the server execute what was written, and receives the replies.
    pub(crate) fn serve(&mut self, worker: &mut InMemoryWorker, second: u32) {
        let replies = self.execute(worker, second);
        self.engine.wire_mut().feed(&replies);
    }

    /// Reads the received replies to a request.
    pub(crate) fn read_replies(&mut self, mut visit: impl FnMut(Reply, &Pipeline)) {
        while let ConnectionEvent::Reply(_, reply) = self.engine.poll() {
            visit(reply, self.engine.wire().pipeline());
        }
        self.engine.release();
    }

    /// Reads the received replies to a fetch of this many keys.
    pub(crate) fn read_fetched_items(
        &mut self,
        key_count: usize,
    ) -> (FetchedItems, Vec<(usize, Error)>) {
        let (mut fetched_items, mut item_count) = (FetchedItems::default(), 0);
        self.read_replies(|reply, pipeline| {
            let Reply::Meta(meta_reply) = reply else {
                panic!("{reply:?}");
            };
            let value = pipeline
                .found_values()
                .first()
                .map(|found| NearValue { flags: found.flags, bytes: pipeline.body(found).into() });
            fetched_items.record_item(item_count, value, meta_reply.ttl_s);
            item_count += 1;
        });
        assert_eq!(item_count, key_count);
        (fetched_items, Vec::new())
    }

    /// Makes the call of a fetch.
    pub(crate) fn run_fetch(
        &mut self,
        worker: &mut InMemoryWorker,
        fetch: &Fetch,
        second: u32,
    ) -> (FetchedItems, Vec<(usize, Error)>) {
        let keys = fetch.keys();
        self.submit(&Request::GetWithTtls { keys: &keys });
        self.serve(worker, second);
        self.read_fetched_items(keys.len())
    }
}

pub(crate) fn wire_key(key: &str) -> WireKey<'_> {
    WireKey { bytes: key.as_bytes(), is_base64: false }
}

/// The server as a client with this near cache knows it.
pub(crate) fn new_server_state(near: &Arc<ClientNearCache>) -> Arc<ServerState> {
    Arc::new(ServerState::new("s".to_owned()).with_near(Some(near.clone())))
}
