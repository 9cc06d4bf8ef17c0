//! The compressors of our client as the lab measures them, and the client as its store of pieces.

use std::time::Duration;

use glasscache_client::request::Item;
use glasscache_client::value::{Codec, CodecOptions, Compression, Decoded, Method, ValueRef};
use glasscache_client::{Address, Budget, Client, Error, Options, Placement, StoreMode, WireKey};
use glasscache_lab::codec::{Packed, Packer, Store};
use glasscache_lab::profile::CallError;

use crate::live_target::LiveTarget;
use crate::output::{Exit, Failure};

/// How long a call may take: long enough that a slow server is measured, not refused.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A compressor by its name, with its level.
pub(super) type Row = (&'static str, Option<(Method, i32)>);

/// The compressors that are compared.
pub(super) const METHODS: [Row; 9] = [
    ("none", None),
    ("zlib 1", Some((Method::Zlib, 1))),
    ("zlib 6", Some((Method::Zlib, 6))),
    ("zlib 9", Some((Method::Zlib, 9))),
    ("zstd -5", Some((Method::Zstd, -5))),
    ("zstd 1", Some((Method::Zstd, 1))),
    ("zstd 3", Some((Method::Zstd, 3))),
    ("lz4", Some((Method::Lz4, 1))),
    ("quicklz", Some((Method::QuickLz, 1))),
];

/// The compressors of the storage table; zlib is level 6.
pub(super) const STORED: [Row; 5] = [
    ("none", None),
    ("zlib", Some((Method::Zlib, 6))),
    ("quicklz", Some((Method::QuickLz, 1))),
    ("zstd", Some((Method::Zstd, 1))),
    ("lz4", Some((Method::Lz4, 1))),
];

/// Values through our codec with one compressor, which is used wherever it saves anything.
pub(super) struct CodecPacker {
    name: &'static str,
    codec: Codec,
}

impl CodecPacker {
    /// The packer of a row of [`METHODS`] or [`STORED`].
    pub(super) fn new(row: Row) -> Result<CodecPacker, Failure> {
        CodecPacker::with_threshold(row, 1, 0)
    }

    /// The same, with the bounds of a client.
    pub(super) fn with_threshold(
        (name, method): Row,
        threshold_bytes: usize,
        min_saving_percent: u8,
    ) -> Result<CodecPacker, Failure> {
        let compression = method.map(|(method, level)| Compression {
            method,
            level,
            threshold_bytes,
            min_saving_percent,
        });
        let options = CodecOptions {
            compression,
            decompressed_bytes_max: 1 << 30,
            ..CodecOptions::default()
        };
        let codec = Codec::new(options);
        Ok(CodecPacker {
            name,
            codec: codec.map_err(|error| Failure::new(Exit::BadData, error.to_string()))?,
        })
    }
}

impl Packer for CodecPacker {
    fn name(&self) -> &str {
        self.name
    }

    fn pack(&mut self, plain: &[u8]) -> Packed {
        let encoded = self.codec.encode(&ValueRef::Bytes(plain));
        encoded.map_or_else(
            |_| Packed::default(),
            |encoded| Packed {
                flags: encoded.flags,
                bytes: encoded.bytes.into_owned(),
            },
        )
    }

    fn unpack(&mut self, packed: &Packed) -> Option<Vec<u8>> {
        match self.codec.decode(packed.flags, &packed.bytes).ok()?.0 {
            Decoded::Bytes(bytes) => Some(bytes.into_owned()),
            _ => None,
        }
    }
}

/// Our client against one server.
pub(super) struct ClientStore<'t> {
    target: &'t LiveTarget,
    client: Client,
}

impl<'t> ClientStore<'t> {
    /// A client of `target`.
    pub(super) fn connect(target: &'t LiveTarget) -> Result<ClientStore<'t>, Failure> {
        let refused = |error: Error| Failure::new(Exit::Unreachable, error.to_string());
        let addresses = Address::parse_list(&target.address()).map_err(refused)?;
        let options = Options {
            timeout: CALL_TIMEOUT,
            value_bytes_max: 1 << 30,
            costs: false,
            ..Options::default()
        };
        Ok(ClientStore {
            target,
            client: Client::new(&addresses, Placement::Ketama, options).map_err(refused)?,
        })
    }
}

fn budget() -> Budget<'static> {
    Budget::new(CALL_TIMEOUT)
}

fn wire(key: &str) -> WireKey<'_> {
    WireKey {
        bytes: key.as_bytes(),
        is_base64: false,
    }
}

fn failed(error: &Error) -> CallError {
    match error {
        Error::Protocol { .. } => CallError::BadData(error.to_string()),
        error => CallError::Unreachable(error.to_string()),
    }
}

impl Store for ClientStore<'_> {
    fn set(&mut self, key: &str, piece: &Packed) -> Result<(), CallError> {
        let item = Item {
            key: wire(key),
            flags: piece.flags,
            body: &piece.bytes,
        };
        let stored = self.client.store(StoreMode::Set, item, 0, false, &budget());
        stored.map(|_| ()).map_err(|error| failed(&error))
    }

    fn get(&mut self, key: &str) -> Result<Option<Packed>, CallError> {
        let found = self.client.get(wire(key), false, &budget());
        let found = found.map_err(|error| failed(&error))?;
        Ok(found.map(|found| Packed {
            flags: found.flags,
            bytes: found.bytes,
        }))
    }

    fn delete(&mut self, key: &str) -> Result<(), CallError> {
        let deleted = self.client.delete(wire(key), false, &budget());
        deleted.map(|_| ()).map_err(|error| failed(&error))
    }

    fn stored_bytes(&mut self) -> Result<Option<u64>, CallError> {
        Ok(self.target.counter("bytes"))
    }
}
