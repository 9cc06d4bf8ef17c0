//! The names of compressors, such as `zstd 3`, and what each of them has to save.

use glasscache_client::value::Method;

/// What compression must save for the compressed form to be used, in per cent: the client's default.
pub(super) const SAVING_PERCENT_MIN: usize = 10;

/// The name of a compressor: its level is left out where there is one.
pub(super) fn name_compressor(method_and_level: Option<(Method, i32)>) -> String {
    match method_and_level {
        None => "none".to_owned(),
        Some((method, level)) if method.levels() == [level; 3] => method.name().to_owned(),
        Some((Method::QuickLz, 1)) => Method::QuickLz.name().to_owned(),
        Some((method, level)) => format!("{} {level}", method.name()),
    }
}

/// The compressor of that name.
pub(super) fn read_compressor_name(name: &str) -> Option<(Method, i32)> {
    if let Some((method_name, level)) = name.split_once(' ') {
        return Some((Method::from_name(method_name)?, level.parse().ok()?));
    }
    let method = Method::from_name(name)?;
    let [_, usual_level, _] = method.levels();
    Some((method, usual_level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_compressor_is_read_back() {
        for (method, level, name) in [
            (Method::Zstd, -5, "zstd -5"),
            (Method::Zlib, 6, "zlib 6"),
            (Method::Lz4, 1, "lz4"),
            (Method::QuickLz, 1, "quicklz"),
        ] {
            assert_eq!(name_compressor(Some((method, level))), name);
            assert_eq!(read_compressor_name(name), Some((method, level)));
        }
        assert_eq!(read_compressor_name(&name_compressor(None)), None);
        assert_eq!(read_compressor_name("zstd 3 with dictionary"), None);
    }
}
