//! Records which cached items each request of an application reads, as a request log that the lab replays.
//!
//! A [`Recorder`] writes into a folder from a thread of its own; a [`Request`] collects what one request reads. Neither
//! ever fails or delays the application: beyond its bounds the recorder drops requests and counts them. [`read_folder`]
//! reads such a folder again. The lab's recording proxy records programs that cannot be changed. The format is
//! docs/reference/formats.md, section 2.
//!
//! Both clients note a call in the request that its budget names; the blocking one does so in the same words, without
//! `await`:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use glasscache_client::{Address, AsyncClient, Budget, Options, Placement, WireKey};
//! use glasscache_record::Recorder;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = Address::parse_list("127.0.0.1:11211")?;
//! let client = AsyncClient::new(&servers, Placement::Ketama, Options::default())?;
//! let recorder = Recorder::open(glasscache_record::Options::new("requests/"))?;
//!
//! // In each handler; the request is `None` if it is not among those that are recorded.
//! let request = recorder.begin_request();
//! if let Some(request) = &request {
//!     request.set_route("lesson");
//! }
//! let budget = || Budget::new(Duration::from_millis(250)).recorded_by(request.as_ref());
//! let course = WireKey { bytes: b"course:7", is_base64: false };
//! client.get(course, false, &budget()).await?;
//! let lessons = Budget { parent: Some(b"course:7"), ..budget() };
//! client.get_many(&[b"lesson:3", b"lesson:4"], &lessons).await?;
//! drop(request);
//!
//! recorder.close(); // at the end of the program: writes what is not written yet
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod finished;
mod folder;
mod key_numbers;
mod meta;
mod options;
mod parents;
mod part;
mod recorder;
mod request;
mod writer;
mod writer_queue;

pub use finished::Parent;
pub use folder::{FolderLog, LeftOutPart, ReadError, read_folder};
pub use options::{FileFormat, Options, RecordError};
pub use parents::{ParentPatterns, PatternError};
pub use recorder::{Recorder, Stats};
pub use request::{RecordedReads, Request};
