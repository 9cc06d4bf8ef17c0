//! Prefixes of keys as people name them: without what a framework puts in front.

/// The bytes of a key up to the end of the longest of these prefixes that it has, at its start or after the key prefix and
/// version that Django puts in front (`shop:1:`).
pub fn longest_prefix(prefixes: &[String], key: &[u8]) -> Option<usize> {
    if prefixes.is_empty() {
        return None;
    }
    let django_key = after_django_version(key);
    let prefix_end = |prefix: &String| {
        let after_version = django_key.filter(|key| key.starts_with(prefix.as_bytes()));
        let preceding = after_version.map(|django_key| key.len() - django_key.len());
        Some(preceding.or(key.starts_with(prefix.as_bytes()).then_some(0))? + prefix.len())
    };
    prefixes.iter().filter_map(prefix_end).max()
}

/// A key of Django without `KEY_PREFIX:VERSION:`.
pub fn after_django_version(key: &[u8]) -> Option<&[u8]> {
    let mut parts = key.splitn(3, |&byte| byte == b':');
    let (_, version, application_key) = (parts.next()?, parts.next()?, parts.next()?);
    let is_version = !version.is_empty() && version.iter().all(u8::is_ascii_digit);
    is_version.then_some(application_key)
}
