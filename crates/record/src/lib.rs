//! Records which cached items each request of an application reads, as a request log that the lab replays.
//!
//! A [`Recorder`] writes into a folder from a thread of its own; a [`Request`] collects what one request reads. Neither
//! ever fails or delays the application: beyond its bounds the recorder drops requests and counts them. [`read_folder`]
//! reads such a folder again. A [`proxy::Proxy`] records programs that cannot be changed. The format is docs/reference/formats.md, section 2.
#![forbid(unsafe_code)]

mod finished;
mod folder;
mod options;
mod parents;
mod part;
pub mod proxy;
mod recorder;
mod request;
mod sink;
mod writer;

pub use finished::Parent;
pub use folder::{FolderLog, LeftOutPart, ReadError, read_folder};
pub use options::{FileFormat, Options, RecordError};
pub use parents::{ParentPatterns, PatternError};
pub use recorder::{Recorder, Stats};
pub use request::{Call, Request};
