//! Patterns such as `course:{id}/lesson:{n}`, by which the parent of a key is found in the key itself.

/// Patterns of keys that have a parent, tried in order.
///
/// A pattern is literal text with placeholders `{name}`, each of which stands for one or more bytes other than `/`. The
/// parent of a key that matches is the part before its last `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParentPatterns(Vec<Pattern>);

/// The literal texts around the placeholders: one more than there are placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern(Vec<String>);

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parent pattern `{pattern}` {problem}; an example is course:{{id}}/lesson:{{n}}")]
pub struct PatternError {
    pattern: String,
    problem: &'static str,
}

impl ParentPatterns {
    /// Reads patterns.
    pub fn parse<S: AsRef<str>>(
        patterns: impl IntoIterator<Item = S>,
    ) -> Result<Self, PatternError> {
        let parsed = patterns.into_iter().map(|pattern| Pattern::parse(pattern.as_ref()));
        Ok(Self(parsed.collect::<Result<_, _>>()?))
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key of the parent, if a pattern matches the key.
    pub fn parent_of<'k>(&self, key: &'k str) -> Option<&'k str> {
        if !self.0.iter().any(|pattern| pattern.matches(key)) {
            return None;
        }
        key.rsplit_once('/').map(|(parent, _)| parent)
    }
}

impl Pattern {
    fn parse(pattern: &str) -> Result<Self, PatternError> {
        let invalid = |problem| {
            let pattern = pattern.to_owned();
            Err(PatternError { pattern, problem })
        };
        let mut literals = Vec::new();
        let mut remaining = pattern;
        while let Some(brace_index) = remaining.find(['{', '}']) {
            let (literal, from_brace) = remaining.split_at(brace_index);
            let Some(end) = from_brace.find('}').filter(|&end| end > 1) else {
                return invalid("has a brace that does not enclose a name");
            };
            if from_brace[1..end].contains('{') {
                return invalid("has a brace within braces");
            }
            literals.push(literal.to_owned());
            remaining = &from_brace[end + 1..];
        }
        let has_adjacent_placeholders = literals.iter().skip(1).any(String::is_empty);
        literals.push(remaining.to_owned());
        if has_adjacent_placeholders {
            return invalid("has two placeholders without text between them");
        }
        if !literals.iter().any(|literal| literal.contains('/')) {
            return invalid("has no `/`, before which the parent would end");
        }
        Ok(Self(literals))
    }

    /// Whether the whole key matches: each placeholder takes the shortest text up to the next literal, the last one the
    /// rest; a literal at the end is compared with the end of the key.
    fn matches(&self, key: &str) -> bool {
        let Some(mut remaining) = key.strip_prefix(self.0[0].as_str()) else {
            return false;
        };
        let is_value = |text: &str| !text.is_empty() && !text.contains('/');
        for (index, literal) in self.0.iter().enumerate().skip(1) {
            let is_last = index + 1 == self.0.len();
            let end = if is_last {
                remaining
                    .len()
                    .checked_sub(literal.len())
                    .filter(|&end| remaining.is_char_boundary(end))
            } else {
                let start = remaining.chars().next().map_or(0, char::len_utf8);
                remaining[start..].find(literal.as_str()).map(|offset| start + offset)
            };
            let Some((value, tail)) = end.and_then(|end| remaining.split_at_checked(end)) else {
                return false;
            };
            if !is_value(value) || !tail.starts_with(literal.as_str()) {
                return false;
            }
            remaining = &tail[literal.len()..];
        }
        remaining.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_matches_has_the_part_before_its_last_slash_as_parent() {
        let patterns =
            ParentPatterns::parse(["course:{id}/lesson:{n}", "{a}/{b}/{c}.html"]).unwrap();
        for (key, parent) in [
            ("course:7/lesson:3", Some("course:7")),
            ("course:äö/lesson:ü", Some("course:äö")),
            ("course:/lesson:3", None),
            ("course:7/lesson:", None),
            ("course:7/8/lesson:3", None),
            ("course:7/lesson:3/4", None),
            ("x/y/z.html", Some("x/y")),
            ("x/y/z.htm", None),
            ("course:7", None),
            ("", None),
        ] {
            assert_eq!(patterns.parent_of(key), parent, "{key}");
        }
    }

    #[test]
    fn a_pattern_without_slash_or_with_open_braces_is_an_error() {
        for invalid_pattern in ["course:{id}", "a/{", "a/}", "a/{}", "a/{x}{y}", "a/{x{y}}"] {
            let error = ParentPatterns::parse([invalid_pattern]).unwrap_err();
            assert!(error.to_string().contains(invalid_pattern), "{error}");
        }
    }
}
