//! The hand-over of new connections: the listener pushes them, the worker that will own them pops them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::shared::info::Info;

/// Connections handed to a worker and not yet accepted by it.
pub(crate) type AcceptQueue = Arc<Mutex<Vec<(OwnedFd, Arc<Info>)>>>;
