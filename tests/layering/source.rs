//! A source file as tokens: enough of Rust to see paths, macros and keywords, without comments, text and tests.
//!
//! It is no parser: it does not know what a name stands for, only how it is written.

/// A word or one sign of the source, with the line it stands on. `::` counts as one sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A path as it is written, such as `crate::shard::Shard`, with the line it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

/// One file of the tree.
pub(crate) struct Source {
    /// Relative to the root of the repository, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
    /// All code, tests included.
    pub(crate) tokens: Vec<Token>,
    /// The code that is not there for tests alone.
    pub(crate) library: Vec<Token>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let tokens = tokens(text);
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        let library = if is_test { Vec::new() } else { without_tests(&tokens) };
        Self { path: path.to_owned(), text: text.to_owned(), tokens, library }
    }

    /// Every path in the library's code that begins with `root`, groups taken apart.
    pub(crate) fn paths_from(&self, root: &str) -> Vec<Path> {
        let mut paths = Vec::new();
        for (at, token) in self.library.iter().enumerate() {
            let begins = at == 0 || self.library[at - 1].text != "::";
            if begins && token.text == root && text_at(&self.library, at + 1) == "::" {
                path_tree(&self.library, at, &[], &mut paths);
            }
        }
        paths
    }
}

/// The text at `at`, empty past the end.
pub(crate) fn text_at(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

/// Reads the path or tree of paths at `at`, adds its paths behind `before`, and returns where it ends.
fn path_tree(tokens: &[Token], mut at: usize, before: &[String], paths: &mut Vec<Path>) -> usize {
    let line = tokens.get(at).map_or(0, |token| token.line);
    let mut segments = before.to_vec();
    loop {
        match text_at(tokens, at) {
            "{" => {
                at += 1;
                while !matches!(text_at(tokens, at), "}" | "") {
                    let end = path_tree(tokens, at, &segments, paths);
                    // Whatever is no path is stepped over: an alias, a comma.
                    at = end.max(at + 1);
                }
                return at + 1;
            }
            "*" => {
                segments.push("*".to_owned());
                paths.push(Path { segments, line });
                return at + 1;
            }
            word if is_word(word) => segments.push(word.to_owned()),
            _ => return at,
        }
        at += 1;
        if text_at(tokens, at) != "::" || !matches!(text_at(tokens, at + 1), "{" | "*") && !is_word_at(tokens, at + 1) {
            paths.push(Path { segments, line });
            return at;
        }
        at += 1;
    }
}

fn is_word_at(tokens: &[Token], at: usize) -> bool {
    is_word(text_at(tokens, at))
}

fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Drops every item behind `#[cfg(test)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_test =
            (0..).zip(["#", "[", "cfg", "(", "test", ")", "]"]).all(|(i, text)| text_at(tokens, at + i) == text);
        if is_test {
            at = item_end(tokens, at + 7);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// The end of the item at `at`: behind its block, or behind its semicolon.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0usize;
    while at < tokens.len() {
        let text = text_at(tokens, at);
        at += 1;
        match text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && text == "}" {
                    return at;
                }
            }
            ";" if depth == 0 => return at,
            _ => {}
        }
    }
    at
}

fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let (mut index, mut line) = (0, 1);
    while index < chars.len() {
        let start = index;
        let first = chars[index];
        if first.is_whitespace() {
            index += 1;
        } else if first == '/' && at(index + 1) == '/' {
            index += chars[index..].iter().take_while(|c| **c != '\n').count();
        } else if first == '/' && at(index + 1) == '*' {
            index = comment_end(&chars, index);
        } else if let Some(end) = text_end(&chars, index) {
            index = end;
        } else if first.is_alphanumeric() || first == '_' {
            index += chars[index..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
            tokens.push(Token { text: chars[start..index].iter().collect(), line });
        } else {
            index += if first == ':' && at(index + 1) == ':' { 2 } else { 1 };
            tokens.push(Token { text: chars[start..index].iter().collect(), line });
        }
        line += chars[start..index.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

/// The end of a block comment; they nest.
fn comment_end(chars: &[char], mut index: usize) -> usize {
    let mut depth = 0;
    while index + 1 < chars.len() {
        match (chars[index], chars[index + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                index += 1;
                continue;
            }
        }
        index += 2;
        if depth == 0 {
            return index;
        }
    }
    chars.len()
}

/// The end of the string, raw string, character or lifetime that begins at `index`, if one does.
fn text_end(chars: &[char], index: usize) -> Option<usize> {
    let prefix = chars[index..].iter().take(2).take_while(|c| matches!(c, 'b' | 'c' | 'r')).count();
    let raw = chars[index..index + prefix].contains(&'r');
    let open = index + prefix;
    if raw {
        let hashes = chars[open..].iter().take_while(|c| **c == '#').count();
        if chars.get(open + hashes) != Some(&'"') {
            return None;
        }
        let body = open + hashes + 1;
        let closes =
            |at: &usize| chars[*at] == '"' && chars[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        return Some((body..chars.len()).find(closes).map_or(chars.len(), |at| at + 1 + hashes));
    }
    match chars.get(open)? {
        '"' => Some(quoted_end(chars, open)),
        // A quote one or two characters on closes a character; anything else is a lifetime.
        '\'' if chars.get(open + 1) == Some(&'\\') => Some(quoted_end(chars, open)),
        '\'' if chars.get(open + 2) == Some(&'\'') => Some(open + 3),
        '\'' if prefix == 0 => {
            Some(open + 1 + chars[open + 1..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count())
        }
        _ => None,
    }
}

fn quoted_end(chars: &[char], open: usize) -> usize {
    let mut index = open + 1;
    while index < chars.len() && chars[index] != chars[open] {
        index += if chars[index] == '\\' { 2 } else { 1 };
    }
    (index + 1).min(chars.len())
}
