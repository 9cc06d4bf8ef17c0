//! The names that a Python source declares: functions, classes, parameters, and targets of assignments and loops.

/// Ends a statement, as a token.
const END_OF_STATEMENT: &str = "\n";

/// The declared names, in their order.
pub(super) fn list_declared_names(text: &str) -> Vec<&str> {
    let tokens = split_into_tokens(text);
    let mut names = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let next_tokens = &tokens[index + 1..];
        let starts_statement = index == 0 || tokens[index - 1] == END_OF_STATEMENT;
        match *token {
            "def" => {
                names.extend(next_tokens.first());
                names.extend(list_parameters(next_tokens));
            }
            "class" | "for" | "as" => names.extend(next_tokens.first()),
            "self" if starts_statement && next_tokens.first() == Some(&".") => {
                names.extend(find_assigned_name(&next_tokens[1..]));
            }
            _ if starts_statement => names.extend(find_assigned_name(&tokens[index..])),
            _ => {}
        }
    }
    names.retain(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'));
    names
}

/// The name that a statement annotates or assigns.
fn find_assigned_name<'t>(statement: &[&'t str]) -> Option<&'t str> {
    match statement {
        [name, ":", next, ..] if *next != END_OF_STATEMENT => Some(name),
        [name, "=", next, ..] if *next != "=" => Some(name),
        _ => None,
    }
}

/// The parameters of a function: the names after its bracket and after the commas in it.
fn list_parameters<'t>(tokens_after_def: &[&'t str]) -> Vec<&'t str> {
    let mut depth = 0;
    let mut names = Vec::new();
    for (index, token) in tokens_after_def.iter().enumerate() {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ if depth == 1 && matches!(tokens_after_def[index - 1], "(" | "," | "*") => {
                names.push(*token);
            }
            _ => {}
        }
        if index > 0 && depth == 0 {
            break;
        }
    }
    names
}

/// Identifiers, punctuation and ends of statements, without comments and strings.
fn split_into_tokens(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut depth = 0_i32;
    let mut index = 0;
    while index < bytes.len() {
        let rest = &bytes[index..];
        let length = match rest[0] {
            b'#' => length_until(rest, |rest| rest[0] == b'\n'),
            b'"' | b'\'' => string_length(rest),
            b'\n' if depth <= 0 => {
                tokens.push(END_OF_STATEMENT);
                1
            }
            c if c.is_ascii_alphanumeric() || c == b'_' => {
                let is_end = |rest: &[u8]| !rest[0].is_ascii_alphanumeric() && rest[0] != b'_';
                let length = length_until(rest, is_end);
                tokens.push(&text[index..index + length]);
                length
            }
            c if c.is_ascii_punctuation() => {
                depth += match c {
                    b'(' | b'[' | b'{' => 1,
                    b')' | b']' | b'}' => -1,
                    _ => 0,
                };
                tokens.push(&text[index..=index]);
                1
            }
            _ => 1,
        };
        index += length;
    }
    tokens
}

fn length_until(bytes: &[u8], is_end: impl Fn(&[u8]) -> bool) -> usize {
    let end = (0..bytes.len()).find(|index| is_end(&bytes[*index..]));
    end.unwrap_or(bytes.len())
}

/// The length of a string, quotes included.
fn string_length(bytes: &[u8]) -> usize {
    let quote = [bytes[0]; 3];
    let quote_length = if bytes.starts_with(&quote) { 3 } else { 1 };
    let mut index = quote_length;
    while index < bytes.len() {
        match bytes[index] {
            b'\\' => index += 2,
            _ if bytes[index..].starts_with(&quote[..quote_length]) => return index + quote_length,
            _ => index += 1,
        }
    }
    bytes.len()
}

#[test]
fn finds_the_declared_names_of_every_kind_and_no_others() {
    let text = r#"
"""place = 1"""
class Part(Base):
    width: int = 3  # turn = 2

    def read(self, key: str, *keys: str, limit: int = f(other=1), **options: Any) -> None:
        self.state = call(argument=key)
        if key == limit:
            with open(key) as file:
                for line in file:
                    count = "it's = so"
"#;
    let expected = [
        "Part", "width", "read", "self", "key", "keys", "limit", "options", "state", "file",
        "line", "count",
    ];
    assert_eq!(list_declared_names(text), expected);
}
