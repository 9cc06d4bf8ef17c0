//! Calls about one key: what each asks and how its answer reads, described once for every face.
//!
//! A face adds the waiting and nothing else: the blocking client, the tokio client and whoever
//! drives a pipeline by an event loop of its own agree on words and outcomes by these descriptions.

mod reads;
mod writes;

use glasscache_protocol::meta::request::WireKey;

use crate::costs::Class;
use crate::error::Error;
use crate::pipeline::{Answer, Pipeline};
use crate::request::Request;

pub use reads::{Get, GetAndTouch, Inspect, ItemBytesMax};
pub use writes::{Calculate, Delete, Store, Touch, stored};

/// A value read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its client flags.
    pub flags: u32,
    /// Its CAS unique; 0 if not asked for.
    pub cas: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A call about one key.
pub trait Operation {
    /// What the caller gets.
    type Output;

    /// The key, which decides on the server.
    fn key(&self) -> WireKey<'_>;

    /// What is asked.
    fn request(&self) -> Request<'_>;

    /// As what it is counted.
    fn class(&self) -> Class {
        self.request().class()
    }

    /// What the answer means.
    fn read(
        &self,
        answer: Answer,
        pipeline: &Pipeline,
        server: &str,
    ) -> Result<Self::Output, Error>;

    /// What the caller is told who does not wait for an answer.
    fn unasked(&self) -> Self::Output;
}
