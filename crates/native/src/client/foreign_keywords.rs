//! Keywords of other clients' calls: each is a parameter that refuses its argument, with an error that names ours.
//!
//! They are parameters because a method that takes any keyword gets its arguments from Python as a tuple and a
//! dictionary, which costs 750 instructions for `ttl=` (docs/decisions/python.md, 0182). They follow the positional
//! parameters: there the search for a keyword does not pass them. The signature that Python reports has none of them.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The keywords of `glasscache._suggestions.KEYWORDS`, in its order.
const FOREIGN_KEYWORDS: [&str; 21] = [
    "expire",
    "expires",
    "expires_in",
    "expire_after",
    "expiration",
    "exptime",
    "ex",
    "exp",
    "time",
    "timeout",
    "px",
    "nx",
    "xx",
    "cas_unique",
    "cas_id",
    "no_reply",
    "value_default",
    "default_value",
    "key_prefix",
    "flags",
    "min_compress_len",
];

/// A parameter whose argument is always refused: the keyword at `INDEX` of the list, or beyond it one positional argument too many.
pub(super) struct ForeignKeyword<const INDEX: usize>;

/// The first of them by position, so that it gets the argument that a call has too many.
pub(super) type SurplusArgument = ForeignKeyword<{ FOREIGN_KEYWORDS.len() }>;

impl<const INDEX: usize> FromPyObject<'_, '_> for ForeignKeyword<INDEX> {
    type Error = PyErr;

    // Not part of the callers: what is left of it there is one comparison for each parameter.
    #[cold]
    #[inline(never)]
    fn extract(argument: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Err(PyTypeError::new_err(match FOREIGN_KEYWORDS.get(INDEX) {
            Some(keyword) => {
                let replacement = replacement_for(argument.py(), keyword)?;
                format!("unexpected keyword argument '{keyword}': write {replacement}")
            }
            None => "the call has more positional arguments than the method takes".to_owned(),
        }))
    }
}

/// What is written here for a keyword of other clients.
fn replacement_for(py: Python<'_>, keyword: &str) -> PyResult<String> {
    let replacements = py.import("glasscache._suggestions")?.getattr("KEYWORDS")?;
    replacements.get_item(keyword)?.extract()
}

/// Declares a method of [`Client`](super::Client) that has the keywords of other clients as parameters, too.
macro_rules! method_refusing_foreign_keywords {
    (
        positional($($positional:tt)*) keyword_only($($keyword_only:tt)*);
        $(#[$($attribute:tt)*])*
        fn $method:ident $(<$lifetime:lifetime>)? ($($parameters:tt)*)
            keywords($($keyword_parameters:tt)*) -> $result:ty { $($body:tt)* }
    ) => {
        #[pymethods]
        impl Client {
            $(#[$($attribute)*])*
            #[pyo3(signature = ($($positional)*,
                surplus=ForeignKeyword, expire=ForeignKeyword, expires=ForeignKeyword,
                expires_in=ForeignKeyword, expire_after=ForeignKeyword, expiration=ForeignKeyword,
                exptime=ForeignKeyword, ex=ForeignKeyword, exp=ForeignKeyword, time=ForeignKeyword,
                timeout=ForeignKeyword, px=ForeignKeyword, nx=ForeignKeyword, xx=ForeignKeyword,
                cas_unique=ForeignKeyword, cas_id=ForeignKeyword, no_reply=ForeignKeyword,
                value_default=ForeignKeyword, default_value=ForeignKeyword, key_prefix=ForeignKeyword,
                flags=ForeignKeyword, min_compress_len=ForeignKeyword,
                *, $($keyword_only)*))]
            #[expect(clippy::too_many_arguments, unused_variables, reason = "those of other clients, which are refused")]
            fn $method $(<$lifetime>)? (
                $($parameters)*
                surplus: SurplusArgument,
                expire: ForeignKeyword<0>, expires: ForeignKeyword<1>, expires_in: ForeignKeyword<2>,
                expire_after: ForeignKeyword<3>, expiration: ForeignKeyword<4>, exptime: ForeignKeyword<5>,
                ex: ForeignKeyword<6>, exp: ForeignKeyword<7>, time: ForeignKeyword<8>,
                timeout: ForeignKeyword<9>, px: ForeignKeyword<10>, nx: ForeignKeyword<11>,
                xx: ForeignKeyword<12>, cas_unique: ForeignKeyword<13>, cas_id: ForeignKeyword<14>,
                no_reply: ForeignKeyword<15>, value_default: ForeignKeyword<16>,
                default_value: ForeignKeyword<17>, key_prefix: ForeignKeyword<18>, flags: ForeignKeyword<19>,
                min_compress_len: ForeignKeyword<20>,
                $($keyword_parameters)*
            ) -> $result { $($body)* }
        }
    };
}

pub(super) use method_refusing_foreign_keywords;
