//! Assigns new connections to the workers, round robin.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::net::connection::InheritedState;
use crate::net::stream::Stream;
use crate::shared::connection_info::ConnectionInfo;
use crate::shared::lock::lock;
use crate::shared::wake::Waker;

/// A new connection that its worker has not taken yet.
pub(crate) struct AcceptedConnection {
    pub(crate) stream: Stream,
    pub(crate) info: Arc<ConnectionInfo>,
    /// Its state in the previous process, if it was handed over.
    pub(crate) inherited_state: Option<Box<InheritedState>>,
}

/// Connections assigned to a worker and not yet taken by it.
pub(crate) type AcceptQueue = Arc<Mutex<Vec<AcceptedConnection>>>;

/// The queues of all workers.
pub(crate) struct AcceptQueues {
    queues_and_wakers: Vec<(AcceptQueue, Waker)>,
    next_worker: AtomicUsize,
}

impl AcceptQueues {
    pub(crate) fn new(wakers: impl Iterator<Item = Waker>) -> AcceptQueues {
        AcceptQueues {
            queues_and_wakers: wakers.map(|waker| (AcceptQueue::default(), waker)).collect(),
            next_worker: AtomicUsize::new(0),
        }
    }

    /// The queue of a worker.
    pub(crate) fn queue_of_worker(&self, worker_index: usize) -> AcceptQueue {
        let queue = self.queues_and_wakers.get(worker_index).map(|(queue, _)| Arc::clone(queue));
        queue.unwrap_or_default()
    }

    /// Passes a connection to the next worker.
    pub(crate) fn assign(&self, accepted: AcceptedConnection) {
        let worker_index =
            self.next_worker.fetch_add(1, Ordering::Relaxed) % self.queues_and_wakers.len().max(1);
        if let Some((queue, waker)) = self.queues_and_wakers.get(worker_index) {
            lock(queue).push(accepted);
            waker.wake();
        }
    }
}
