//! What codecs and clients are made of: options of the codec, servers and placement; and the `repr` of a client.

use glasscache_client::value::{
    self, CodecOptions, Compression, DIALECTS, Dialect, Method, ValueRef,
};
use glasscache_client::{Address, Client, Error, Options, Placement, ring::PLACEMENTS};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::error;
use crate::int_lists::RetainedNumbers;

/// Encodes values as bytes and decodes them, by a dialect's rules.
#[pyclass(frozen, subclass, module = "glasscache._native")]
pub(crate) struct Codec {
    pub(crate) inner: value::Codec,
    /// Called for objects without a form of their own: `dump(value) -> (kind, payload)`.
    pub(crate) dump: Py<PyAny>,
    /// Called for what a typed value holds other than containers and plain scalars:
    /// `kind_and_payload_of(value, is_nested) -> (kind, payload)`. None for codecs without typed values.
    pub(crate) kind_and_payload_of: Option<Py<PyAny>>,
    /// Called to read what `dump` or `kind_and_payload_of` made: `load(kind, payload) -> value`.
    pub(crate) load: Py<PyAny>,
    /// The flags under which bytes travel as they are, if there is such a mark.
    pub(crate) plain_flags: Option<u32>,
    /// The flags of text that Python itself reads, which checks that it is UTF-8.
    pub(crate) plain_text_flags: Option<u32>,
    /// Keeps the memory of long lists.
    pub(crate) retained_numbers: RetainedNumbers,
}

#[pymethods]
impl Codec {
    #[new]
    #[pyo3(signature = (dump, load, *, dialect, compress, level, threshold, min_saving,
                        decompressed_bytes_max, pickle, migrate_from, kind_and_payload_of=None))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of the Python constructor")]
    fn new(
        py: Python<'_>,
        dump: Py<PyAny>,
        load: Py<PyAny>,
        dialect: &str,
        compress: Option<&str>,
        level: Option<i32>,
        threshold: usize,
        min_saving: u8,
        decompressed_bytes_max: usize,
        pickle: bool,
        migrate_from: Option<&str>,
        kind_and_payload_of: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let bad_setting =
            |message: String| error::from_client_error(py, &Error::BadSetting(message));
        let dialect_of = |setting: &str, name: &str| {
            name.parse::<Dialect>()
                .map_err(|_| bad_setting(unknown_value_message(setting, name, names_of(&DIALECTS))))
        };
        let dialect = dialect_of("dialect", dialect)?;
        let mut options = CodecOptions::of(dialect);
        options.compression = match compress {
            None => None,
            Some("default") => options.compression,
            Some(name) => {
                let method = Method::from_name(name);
                let method = method.ok_or_else(|| {
                    bad_setting(unknown_value_message("compress", name, Method::names()))
                })?;
                Some(Compression::new(method))
            }
        };
        if let Some(compression) = &mut options.compression {
            compression.level = level.unwrap_or(compression.level);
            compression.threshold_bytes = threshold;
            compression.min_saving_percent = min_saving;
        }
        options.decompressed_bytes_max = decompressed_bytes_max;
        options.pickle = pickle;
        options.migrate_from =
            migrate_from.map(|name| dialect_of("migrate_from", name)).transpose()?;
        let inner =
            value::Codec::new(options).map_err(|error| error::from_value_error(py, &error))?;
        let plain_flags = inner.encode_unchanged(&ValueRef::Bytes(b"")).map(|(flags, _)| flags);
        Ok(Self {
            plain_flags: plain_flags.filter(|&flags| inner.is_raw(flags)),
            plain_text_flags: inner.plain_text_flags(),
            inner,
            dump,
            kind_and_payload_of,
            load,
            retained_numbers: RetainedNumbers::default(),
        })
    }
}

/// Decoding values of fewer bytes takes less time than reading the clock.
const TIMED_BYTES_MIN: usize = 512;

impl Codec {
    /// Whether decoding a value takes long enough to be timed.
    ///
    /// Plain bytes only have to be copied, like those that are received into their object; so do short plain values.
    pub(crate) fn is_slow(&self, flags: u32, value_bytes: usize) -> bool {
        self.plain_flags != Some(flags)
            && (value_bytes >= TIMED_BYTES_MIN || !self.inner.is_cheap_to_decode(flags))
    }
}

/// Return the index of each key's server in the list under a placement.
#[pyfunction(name = "server_of")]
pub(crate) fn server_indices(
    py: Python<'_>,
    placement: &str,
    servers: Vec<String>,
    keys: Vec<Vec<u8>>,
) -> PyResult<Vec<usize>> {
    let client = build_client(py, &servers, placement, Options::default())?;
    Ok(keys.iter().map(|key| client.slot_of(key)).collect())
}

/// The Rust client of the servers and the placement that Python names.
pub(crate) fn build_client(
    py: Python<'_>,
    servers: &[String],
    placement: &str,
    options: Options,
) -> PyResult<Client> {
    parse_addresses(servers)
        .and_then(|addresses| Client::new(&addresses, parse_placement(placement)?, options))
        .map_err(|error| error::from_client_error(py, &error))
}

pub(crate) fn parse_addresses(servers: &[String]) -> Result<Vec<Address>, Error> {
    let lists: Result<Vec<_>, _> = servers.iter().map(|text| Address::parse_list(text)).collect();
    let addresses = lists?.concat();
    if addresses.is_empty() {
        return Err(Error::BadSetting("no server: Client(\"host:port\")".into()));
    }
    Ok(addresses)
}

/// The error for a setting with an unknown value, which lists the known ones.
fn unknown_value_message(
    setting: &str,
    value: &str,
    known_values: impl Iterator<Item = &'static str>,
) -> String {
    let quoted_names: Vec<String> = known_values.map(|name| format!("{name:?}")).collect();
    format!("{setting}={value:?}: one of {}", quoted_names.join(", "))
}

/// The names in a table.
fn names_of<T>(table: &'static [(T, &'static str)]) -> impl Iterator<Item = &'static str> {
    table.iter().map(|(_, name)| *name)
}

fn parse_placement(placement: &str) -> Result<Placement, Error> {
    placement.parse().map_err(|_| {
        Error::BadSetting(unknown_value_message("placement", placement, names_of(&PLACEMENTS)))
    })
}

/// Servers that a client's `repr` names; for more it gives their number.
const DISPLAYED_SERVERS_MAX: usize = 4;

/// The `repr` of a client: its servers and placement. Addresses hold no secrets.
pub(crate) fn repr(class: &Bound<'_, PyType>, core: &Client) -> PyResult<String> {
    let servers = core.servers();
    let names: Vec<_> = servers
        .iter()
        .take(DISPLAYED_SERVERS_MAX)
        .map(|(_, server)| server.name.as_str())
        .collect();
    let remaining_text = match servers.len().saturating_sub(DISPLAYED_SERVERS_MAX) {
        0 => String::new(),
        remaining_count => format!(" and {remaining_count} more"),
    };
    let (class_name, joined_names) = (class.name()?, names.join(", "));
    let placement = core.placement();
    Ok(format!("<{class_name} of {joined_names}{remaining_text}, placement {placement}>"))
}
