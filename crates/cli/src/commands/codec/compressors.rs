//! The compressors of our client as the lab measures them, and the client as its store of blocks.

use glasscache_client::request::Item;
use glasscache_client::value::{Codec, CodecOptions, Compression, Decoded, Method, ValueRef};
use glasscache_client::{Client, StoreMode};
use glasscache_lab::codec::{BlockStore, Compressed, Compressor};
use glasscache_lab::profile::CallError;

use crate::live_client::{new_call_budget, new_client, to_call_error, to_wire_key};
use crate::live_target::LiveTarget;
use crate::output::{Exit, Failure};

/// A compressor by its name, with its level.
pub(super) type NamedCompressor = (&'static str, Option<(Method, i32)>);

/// The compressors that are compared.
pub(super) const COMPRESSORS: [NamedCompressor; 9] = [
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
pub(super) const STORAGE_COMPRESSORS: [NamedCompressor; 5] = [
    ("none", None),
    ("zlib", Some((Method::Zlib, 6))),
    ("quicklz", Some((Method::QuickLz, 1))),
    ("zstd", Some((Method::Zstd, 1))),
    ("lz4", Some((Method::Lz4, 1))),
];

/// Values through our codec with one compressor, which is used wherever it saves anything.
pub(super) struct CodecCompressor {
    name: &'static str,
    codec: Codec,
}

impl CodecCompressor {
    /// The compressor of a row of [`COMPRESSORS`] or [`STORAGE_COMPRESSORS`].
    pub(super) fn new(named_compressor: NamedCompressor) -> Result<CodecCompressor, Failure> {
        CodecCompressor::with_threshold(named_compressor, 1, 0)
    }

    /// The same, with the threshold and the least saving of a client's options.
    pub(super) fn with_threshold(
        (name, method_and_level): NamedCompressor,
        threshold_bytes: usize,
        min_saving_percent: u8,
    ) -> Result<CodecCompressor, Failure> {
        let compression = method_and_level.map(|(method, level)| Compression {
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
        Ok(CodecCompressor {
            name,
            codec: codec.map_err(|error| Failure::new(Exit::BadData, error.to_string()))?,
        })
    }
}

impl Compressor for CodecCompressor {
    fn name(&self) -> &str {
        self.name
    }

    fn compress(&mut self, plain: &[u8]) -> Compressed {
        let encoded = self.codec.encode(&ValueRef::Bytes(plain));
        encoded.map_or_else(
            |_| Compressed::default(),
            |encoded| Compressed { flags: encoded.flags, bytes: encoded.bytes.into_owned() },
        )
    }

    fn decompress(&mut self, compressed: &Compressed) -> Option<Vec<u8>> {
        match self.codec.decode(compressed.flags, &compressed.bytes).ok()?.0 {
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
    pub(super) fn new(target: &'t LiveTarget) -> Result<ClientStore<'t>, Failure> {
        Ok(ClientStore { target, client: new_client(target, false)? })
    }
}

impl BlockStore for ClientStore<'_> {
    fn set(&mut self, key: &str, block: &Compressed) -> Result<(), CallError> {
        let item = Item { key: to_wire_key(key), flags: block.flags, body: &block.bytes };
        let stored = self.client.store(StoreMode::Set, item, 0, false, &new_call_budget());
        stored.map(|_| ()).map_err(|error| to_call_error(&error))
    }

    fn get(&mut self, key: &str) -> Result<Option<Compressed>, CallError> {
        let found_value = self.client.get(to_wire_key(key), false, &new_call_budget());
        let found_value = found_value.map_err(|error| to_call_error(&error))?;
        Ok(found_value
            .map(|found_value| Compressed { flags: found_value.flags, bytes: found_value.bytes }))
    }

    fn delete(&mut self, key: &str) -> Result<(), CallError> {
        let deleted = self.client.delete(to_wire_key(key), false, &new_call_budget());
        deleted.map(|_| ()).map_err(|error| to_call_error(&error))
    }

    fn stored_bytes(&mut self) -> Result<Option<u64>, CallError> {
        Ok(self.target.counter("bytes"))
    }
}
