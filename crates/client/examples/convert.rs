//! Encodes and decodes values on standard input, a line each, for `make dialects` to compare with other clients.
//!
//! `encode DIALECT METHOD TYPE PAYLOAD` prints `FLAGS HEX`; `decode DIALECT FLAGS HEX` prints `TYPE PAYLOAD`. METHOD is
//! a compression method or `-`. A payload is hex for text and bytes, else decimal. A refusal prints `refused` and the reason.

use std::io::{BufRead, Write};

use glasscache_client::value::{
    Codec, CodecOptions, Compression, Decoded, Dialect, Method, ValueError, ValueRef,
};

type Response = Result<String, Box<dyn std::error::Error>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let response = match line.split(' ').collect::<Vec<_>>()[..] {
            ["encode", dialect, method, type_name, payload] => {
                encode(dialect, method, type_name, payload)
            }
            ["decode", dialect, flags, hex] => decode(dialect, flags, hex),
            _ => Err(format!("unknown command {line:?}").into()),
        };
        match response {
            Ok(response) => writeln!(out, "{response}")?,
            Err(error) if error.is::<ValueError>() => writeln!(out, "refused {error}")?,
            Err(error) => return Err(error),
        }
        out.flush()?;
    }
    Ok(())
}

fn encode(dialect: &str, method: &str, type_name: &str, payload: &str) -> Response {
    let dialect: Dialect = dialect.parse()?;
    let compression = Method::from_name(method).map(Compression::new);
    let codec = Codec::new(CodecOptions { compression, ..CodecOptions::of(dialect) })?;
    let payload_bytes = || from_hex(payload);
    let encoded = match type_name {
        "str" => codec
            .encode(&ValueRef::Str(std::str::from_utf8(&payload_bytes()?)?))
            .map(flags_and_bytes),
        "bytes" => codec.encode(&ValueRef::Bytes(&payload_bytes()?)).map(flags_and_bytes),
        "json" => codec.encode(&ValueRef::Json(&payload_bytes()?)).map(flags_and_bytes),
        "int" => codec.encode(&ValueRef::Int(payload.parse()?)).map(flags_and_bytes),
        "float" => codec.encode(&ValueRef::Float(payload.parse()?)).map(flags_and_bytes),
        "bool" => codec.encode(&ValueRef::Bool(payload == "1")).map(flags_and_bytes),
        "none" => codec.encode(&ValueRef::None).map(flags_and_bytes),
        _ => return Err(format!("unknown type {type_name:?}").into()),
    };
    let (flags, bytes) = encoded?;
    Ok(format!("{flags} {}", to_hex(&bytes)))
}

fn flags_and_bytes(encoded: glasscache_client::value::Encoded<'_>) -> (u32, Vec<u8>) {
    (encoded.flags, encoded.bytes.into_owned())
}

fn decode(dialect: &str, flags: &str, hex: &str) -> Response {
    let codec = Codec::new(CodecOptions::of(dialect.parse()?))?;
    let bytes = from_hex(hex)?;
    let (decoded, _) = codec.decode(flags.parse()?, &bytes)?;
    Ok(match decoded {
        Decoded::Str(text) => format!("str {}", to_hex(text.as_bytes())),
        Decoded::Bytes(bytes) => format!("bytes {}", to_hex(&bytes)),
        Decoded::Json(bytes) => format!("json {}", to_hex(&bytes)),
        Decoded::Int(number) => format!("int {number}"),
        Decoded::BigInt(digits) => format!("int {digits}"),
        Decoded::Float(number) => format!("float {number:?}"),
        Decoded::Bool(value) => format!("bool {}", i32::from(value)),
        Decoded::None => "none ".to_owned(),
        Decoded::DateMs(ms) => format!("date {ms}"),
        unprintable => format!("other {unprintable:?}"),
    })
}

fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, std::num::ParseIntError> {
    let pairs = text.as_bytes().chunks(2).map(String::from_utf8_lossy);
    pairs.map(|pair| u8::from_str_radix(&pair, 16)).collect()
}
