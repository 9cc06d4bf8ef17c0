//! The codec that an application uses, as Python prints it: `Codec(objects='msgpack', compress='zstd', level=3)`.

use std::str::FromStr;

use glasscache_client::value::{Codec, CodecOptions, Compression, Method};

use super::compressor_name::{SAVING_PERCENT_MIN, name_compressor};

/// The codec with which every form is compared.
#[derive(Debug, Clone)]
pub struct CodecInUse {
    /// As it was given.
    pub(super) expression: String,
    /// The name of its serialiser in [`super::python::SERIALISERS`].
    pub(super) serialiser: &'static str,
    pub(super) compression: Option<Compression>,
}

impl Default for CodecInUse {
    /// What a client uses without settings.
    fn default() -> Self {
        Self {
            expression: "Codec()".to_owned(),
            serialiser: "Codec",
            compression: CodecOptions::default().compression,
        }
    }
}

impl CodecInUse {
    /// The name and level of its compressor, or that of none.
    pub(super) fn compressor_name(&self) -> String {
        name_compressor(self.compression.map(|compression| (compression.method, compression.level)))
    }

    /// Takes one argument of the expression.
    fn set_argument(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<usize>().map_err(|_| format!("{name}={value}: a number"));
        match (name, unquote(value)) {
            ("dialect", given) if given != Some("own") => {
                return Err(format!("the forms of dialect={value} are not measured: leave it out"));
            }
            ("objects", Some("json")) => self.serialiser = "Codec",
            ("objects", Some("msgpack")) => self.serialiser = "Codec msgpack",
            ("objects", Some("pickle")) => self.serialiser = "pickle",
            ("compress", None) if value == "None" => self.compression = None,
            ("dialect", Some("own"))
            | ("compress", Some("default"))
            | ("decompressed_bytes_max" | "migrate_from" | "types", _) => {}
            ("compress", Some(method_name)) => {
                let method = Method::from_name(method_name);
                let method = method.ok_or_else(|| format!("compress={value}: no compressor"))?;
                self.compression = Some(Compression::new(method));
            }
            ("level", _) if value == "None" => {}
            ("level", _) => {
                let level = value.parse().map_err(|_| format!("level={value}: a number"))?;
                self.compressed(name)?.level = level;
            }
            ("threshold", _) => {
                let threshold_bytes = number()?;
                if let Some(compression) = &mut self.compression {
                    compression.threshold_bytes = threshold_bytes;
                }
            }
            ("min_saving", _) if number()? == SAVING_PERCENT_MIN => {}
            ("min_saving", _) => {
                return Err(format!("forms are measured with min_saving={SAVING_PERCENT_MIN}"));
            }
            _ => return Err(format!("{name}={value}: no argument of Codec")),
        }
        Ok(())
    }

    fn compressed(&mut self, name: &str) -> Result<&mut Compression, String> {
        self.compression.as_mut().ok_or_else(|| format!("{name} has no effect without compression"))
    }
}

impl FromStr for CodecInUse {
    type Err = String;

    /// Reads an expression of Python; the arguments may be in any order.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "{text:?}: expected what Python prints, such as Codec(compress='zstd', level=3)"
            )
        };
        let call = text.trim().strip_prefix("glasscache.").unwrap_or(text.trim());
        let list = call.strip_prefix("Codec(").and_then(|call| call.strip_suffix(')'));
        let mut codec = Self { expression: call.to_owned(), ..Self::default() };
        let mut arguments = Vec::new();
        for argument in split_arguments(list.ok_or_else(expected)?) {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.trim(), value.trim()),
                None if arguments.is_empty() => ("dialect", argument.trim()),
                None => return Err(expected()),
            };
            arguments.push((name, value));
        }
        // The level and the threshold are those of the compressor, wherever it is named.
        arguments.sort_by_key(|(name, _)| *name != "compress");
        for (name, value) in arguments {
            codec.set_argument(name, value)?;
        }
        let options = CodecOptions { compression: codec.compression, ..CodecOptions::default() };
        Codec::new(options).map_err(|error| error.to_string())?;
        Ok(codec)
    }
}

/// The arguments of a call, divided at the commas outside of quotes and brackets.
fn split_arguments(list: &str) -> Vec<&str> {
    let (mut depth, mut quote) = (0_i32, None);
    let arguments = list.split(|character: char| {
        match (quote, character) {
            (Some(open), _) => quote = quote.filter(|_| open != character),
            (None, '\'' | '"') => quote = Some(character),
            (None, '[' | '(' | '{') => depth += 1,
            (None, ']' | ')' | '}') => depth -= 1,
            (None, ',') => return depth == 0,
            _ => {}
        }
        false
    });
    arguments.filter(|argument| !argument.trim().is_empty()).collect()
}

/// The text of a literal in quotes.
fn unquote(value: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_prints_is_read_and_anything_else_refused() {
        let read = |text: &str| text.parse::<CodecInUse>();
        let default = read("Codec()").unwrap();
        assert_eq!((default.serialiser, default.compressor_name().as_str()), ("Codec", "zstd 1"));
        let codec = read(
            "glasscache.Codec('own', level=7, objects=\"msgpack\", compress='zstd', threshold=64)",
        )
        .unwrap();
        assert_eq!(codec.compression.map(|compression| compression.threshold_bytes), Some(64));
        assert_eq!(
            (codec.serialiser, codec.compressor_name().as_str()),
            ("Codec msgpack", "zstd 7")
        );
        let plain = read("Codec(compress=None, threshold=5, types=['a.B', 'c,D'])").unwrap();
        assert_eq!((plain.compressor_name().as_str(), plain.compression), ("none", None));
        for (text, part) in [
            ("zstd", "what Python prints"),
            ("Codec(zstd", "what Python prints"),
            ("Codec(objects='json', 'own')", "what Python prints"),
            ("Codec('pylibmc')", "dialect"),
            ("Codec(compress='brotli')", "no compressor"),
            ("Codec(compress=None, level=1)", "has no effect"),
            ("Codec(level=99)", "level"),
            ("Codec(min_saving=5)", "min_saving=10"),
            ("Codec(size=5)", "no argument"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
