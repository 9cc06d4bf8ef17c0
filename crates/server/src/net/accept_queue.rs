//! The hand-over of new connections: the listener puts them in, the worker that is to own them takes them out.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::shared::info::Info;

/// Connections handed to a worker and not yet taken.
pub(crate) type AcceptQueue = Arc<Mutex<Vec<(OwnedFd, Arc<Info>)>>>;
