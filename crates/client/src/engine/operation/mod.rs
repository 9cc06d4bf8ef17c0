//! Calls about one key: the request of each and the meaning of its reply, described once for every client.
//!
//! A client adds the waiting and nothing else: the blocking client, the tokio client and any other
//! driver of a pipeline agree on requests and outcomes by these descriptions.

/// Makes a type with a `key` an [`Operation`]: its output, its request, the meaning of its reply, and the output of a
/// quiet request.
macro_rules! operation {
    ($name:ident => $output:ty, |$this:ident| $request:expr, |$reply:pat_param, $pipeline:pat_param, $server:pat_param| $read:expr, $quiet:expr) => {
        impl Operation for $name<'_> {
            type Output = $output;

            fn key(&self) -> WireKey<'_> {
                self.key
            }

            fn request(&self) -> Request<'_> {
                let $this = self;
                $request
            }

            fn read(
                &self,
                $reply: Reply,
                $pipeline: &Pipeline,
                $server: &str,
            ) -> Result<Self::Output, Error> {
                $read
            }

            fn quiet_output(&self) -> Self::Output {
                $quiet
            }
        }
    };
}

mod reads;
mod writes;

use glasscache_protocol::meta::request::WireKey;

use crate::costs::CallClass;
use crate::error::Error;
use crate::near::NearValue;
use crate::pipeline::{Pipeline, Reply};
use crate::request::Request;

pub use reads::{Get, GetAndTouch, Inspect};
pub use writes::{Calculate, Delete, Store, Touch, Touched, store_outcome, touched_of_reply};

/// A value read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its client flags.
    pub flags: u32,
    /// Its CAS unique; 0 if it was not requested.
    pub cas: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl From<NearValue> for Value {
    fn from(value: NearValue) -> Self {
        Self { flags: value.flags, cas: 0, bytes: value.bytes.to_vec() }
    }
}

/// A call about one key.
pub trait Operation {
    /// What the caller gets.
    type Output;

    /// The key, which decides on the server.
    fn key(&self) -> WireKey<'_>;

    /// The request.
    fn request(&self) -> Request<'_>;

    /// The class in which its cost is counted.
    fn class(&self) -> CallClass {
        self.request().class()
    }

    /// Interprets the reply.
    fn read(&self, reply: Reply, pipeline: &Pipeline, server: &str) -> Result<Self::Output, Error>;

    /// The result of a quiet request, which has no reply.
    fn quiet_output(&self) -> Self::Output;
}
