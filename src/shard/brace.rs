//! Brace patterns as bash expands them: `{000000..000146}`, `{1..10..3}`, `{a,b{1..3}}`.
//!
//! It makes strings of a string and looks at no file; variables, `~` and globs are not its business.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};

/// The most names that patterns may stand for.
pub const EXPANSIONS_MAX: usize = 1_000_000;

/// The most bytes that the names of one pattern may take together: a long pattern reaches it with fewer names.
const EXPANSIONS_BYTES_MAX: u128 = 256 << 20;

/// The deepest nesting of alternatives.
const DEPTH_MAX: usize = 32;

/// The strings that `pattern` stands for, in bash's order: what is on the left changes slowest.
///
/// Braces without a comma or a range between them, and such as have no partner, stay as they are. A backslash takes
/// the meaning from the character after it and vanishes.
///
/// # Errors
/// [`ErrorKind::Limit`] for more than [`EXPANSIONS_MAX`] strings, more than 256 MiB of them, or alternatives nested
/// deeper than 32.
pub fn expand_braces(pattern: &str) -> Result<Vec<String>> {
    let mut words = expand(pattern, EXPANSIONS_MAX)?;
    for word in &mut words {
        if word.contains('\\') {
            *word = unescape(word);
        }
    }
    Ok(words)
}

/// As [`expand_braces`], but up to `limit` strings, and backslashes stay where they are.
pub(super) fn expand(pattern: &str, limit: usize) -> Result<Vec<String>> {
    let pieces = Parser { pattern, braces: Brace::all(pattern) }.parse(0, pattern.len(), 0)?;
    let count = count(&pieces);
    if count > limit as u128 {
        let message = format!("the pattern '{pattern}' stands for {count} names, more than {EXPANSIONS_MAX} in all");
        return Err(Error::new(ErrorKind::Limit, message).with_hint("check the ends of its ranges"));
    }
    // No name is longer than its pattern: what a range makes is not longer than what it is written with.
    if count.saturating_mul(pattern.len() as u128) > EXPANSIONS_BYTES_MAX {
        let message = format!("a pattern of {} bytes stands for {count} names, too many for its length", pattern.len());
        return Err(Error::new(ErrorKind::Limit, message).with_hint("shorten what stands beside its braces"));
    }
    Ok(words(&pieces))
}

/// Whether a brace has no partner, which is a slip more often than a name.
pub(super) fn has_lone_brace(pattern: &str) -> bool {
    let mut open = 0_usize;
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => _ = chars.next(),
            '{' => open += 1,
            '}' if open == 0 => return true,
            '}' => open -= 1,
            _ => {}
        }
    }
    open > 0
}

/// `word` without its backslashes, what they protect kept.
pub(super) fn unescape(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut chars = word.chars();
    while let Some(char) = chars.next() {
        // A backslash at the very end protects nothing and stays.
        text.push(if char == '\\' { chars.next().unwrap_or(char) } else { char });
    }
    text
}

/// A part of a pattern.
enum Piece<'a> {
    Text(&'a str),
    Numbers { first: i64, last: i64, step: u64, width: usize },
    Letters { first: usize, last: usize, step: u64 },
    Alternatives(Vec<Vec<Piece<'a>>>),
}

/// The letters in the order that ranges run through them.
const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl Piece<'_> {
    fn words(&self) -> Vec<Cow<'_, str>> {
        match self {
            Self::Text(text) => vec![Cow::Borrowed(text)],
            Self::Numbers { first, last, step, width } => {
                steps((*first).into(), (*last).into(), *step).map(|n| format!("{n:0width$}").into()).collect()
            }
            Self::Letters { first, last, step } => steps(*first as i128, *last as i128, *step)
                .map(|place| char::from(LETTERS[place as usize]).to_string().into())
                .collect(),
            Self::Alternatives(all) => all.iter().flat_map(|pieces| words(pieces)).map(Cow::Owned).collect(),
        }
    }

    fn count(&self) -> u128 {
        match self {
            Self::Text(_) => 1,
            Self::Numbers { first, last, step, .. } => u128::from(first.abs_diff(*last) / step) + 1,
            Self::Letters { first, last, step } => u128::from(first.abs_diff(*last) as u64 / step) + 1,
            Self::Alternatives(all) => all.iter().map(|pieces| count(pieces)).fold(0, u128::saturating_add),
        }
    }
}

fn steps(first: i128, last: i128, step: u64) -> impl Iterator<Item = i128> {
    let step = if first <= last { i128::from(step) } else { -i128::from(step) };
    std::iter::successors(Some(first), move |n| Some(n + step))
        .take_while(move |n| if step > 0 { *n <= last } else { *n >= last })
}

fn count(pieces: &[Piece<'_>]) -> u128 {
    pieces.iter().map(Piece::count).fold(1, u128::saturating_mul)
}

fn words(pieces: &[Piece<'_>]) -> Vec<String> {
    let mut words = vec![String::new()];
    for piece in pieces {
        if let Piece::Text(text) = piece {
            words.iter_mut().for_each(|word| word.push_str(text));
            continue;
        }
        let tails = piece.words();
        words = words.iter().flat_map(|word| tails.iter().map(move |tail| format!("{word}{tail}"))).collect();
    }
    words
}

/// An opening brace that has a partner.
#[derive(Default)]
struct Brace {
    close: usize,
    /// The commas between the two that no inner brace encloses.
    commas: Vec<usize>,
}

impl Brace {
    /// All of them by their position.
    fn all(pattern: &str) -> HashMap<usize, Self> {
        let mut braces = HashMap::new();
        let mut open: Vec<(usize, Self)> = Vec::new();
        let mut bytes = pattern.bytes().enumerate();
        while let Some((at, byte)) = bytes.next() {
            match (byte, open.last_mut()) {
                (b'\\', _) => {
                    bytes.next();
                }
                (b'{', _) => open.push((at, Self::default())),
                (b',', Some((_, brace))) => brace.commas.push(at),
                (b'}', Some(_)) => {
                    if let Some((start, brace)) = open.pop() {
                        braces.insert(start, Self { close: at, ..brace });
                    }
                }
                _ => {}
            }
        }
        braces
    }
}

struct Parser<'a> {
    pattern: &'a str,
    braces: HashMap<usize, Brace>,
}

impl<'a> Parser<'a> {
    /// The pieces between two positions, which are inside the pattern and next to ASCII.
    fn parse(&self, start: usize, end: usize, depth: usize) -> Result<Vec<Piece<'a>>> {
        if depth > DEPTH_MAX {
            let message = format!("the braces of '{}' are nested deeper than {DEPTH_MAX}", self.pattern);
            return Err(Error::new(ErrorKind::Limit, message));
        }
        let bytes = self.pattern.as_bytes();
        let mut pieces = Vec::new();
        let (mut at, mut text_start) = (start, start);
        while at < end {
            let found = match bytes[at] {
                b'{' => self.braces.get(&at).map(|brace| self.piece(at, brace, depth).map(|p| (p, brace.close))),
                _ => None,
            };
            let Some((Some(piece), close)) = found.transpose()? else {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
                continue;
            };
            if text_start < at {
                pieces.push(Piece::Text(&self.pattern[text_start..at]));
            }
            pieces.push(piece);
            at = close + 1;
            text_start = at;
        }
        if text_start < end {
            pieces.push(Piece::Text(&self.pattern[text_start..end]));
        }
        Ok(pieces)
    }

    /// What the brace at `open` stands for; `None` for itself.
    fn piece(&self, open: usize, brace: &Brace, depth: usize) -> Result<Option<Piece<'a>>> {
        if brace.commas.is_empty() {
            return Ok(range(&self.pattern[open + 1..brace.close]));
        }
        let ends = brace.commas.iter().copied().chain([brace.close]);
        let mut start = open + 1;
        let mut alternatives = Vec::with_capacity(brace.commas.len() + 1);
        for end in ends {
            alternatives.push(self.parse(start, end, depth + 1)?);
            start = end + 1;
        }
        Ok(Some(Piece::Alternatives(alternatives)))
    }
}

/// `first..last` or `first..last..step`, of numbers or of letters.
fn range(body: &str) -> Option<Piece<'static>> {
    let mut parts = body.split("..");
    let (first, last, step) = (parts.next()?, parts.next()?, parts.next());
    if parts.next().is_some() {
        return None;
    }
    // The sign of a step says nothing, and none at all is 1.
    let step = step.map_or(Some(1), |step| step.parse::<i64>().ok().map(|step| step.unsigned_abs().max(1)))?;
    let letter = |text: &str| match text.as_bytes() {
        [byte] => LETTERS.iter().position(|letter| letter == byte),
        _ => None,
    };
    if let (Some(first), Some(last)) = (letter(first), letter(last)) {
        return Some(Piece::Letters { first, last, step });
    }
    let is_padded = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.len() > 1 && digits.starts_with('0')
    };
    let width = if is_padded(first) || is_padded(last) { first.len().max(last.len()) } else { 0 };
    Some(Piece::Numbers { first: first.parse().ok()?, last: last.parse().ok()?, step, width })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn check(pattern: &str, expected: &[&str]) {
        assert_eq!(expand_braces(pattern).unwrap(), expected, "{pattern}");
    }

    #[test]
    fn ranges_are_stepped_padded_and_run_both_ways() {
        check("{1..3}", &["1", "2", "3"]);
        check("a{08..11}b", &["a08b", "a09b", "a10b", "a11b"]);
        check("{01..100..50}", &["001", "051"]);
        check("{0..03}", &["00", "01", "02", "03"]);
        check("{1..10..3}", &["1", "4", "7", "10"]);
        check("{5..1..-2}", &["5", "3", "1"]);
        check("{1..3..0}", &["1", "2", "3"]);
        check("{-01..1}", &["-01", "000", "001"]);
        check("{-1..-03}", &["-01", "-02", "-03"]);
        check("{-0..1}", &["0", "1"]);
        check("{10..-2..04}", &["10", "6", "2", "-2"]);
        check("{+1..3}", &["1", "2", "3"]);
        check("{3..3}", &["3"]);
        check("{a..e..2}", &["a", "c", "e"]);
        check("{e..c}", &["e", "d", "c"]);
        check("{Y..b}", &["Y", "Z", "a", "b"]);
        check("{9223372036854775806..9223372036854775807}", &["9223372036854775806", "9223372036854775807"]);
    }

    #[test]
    fn alternatives_nest_and_the_left_changes_slowest() {
        check("{a,b}{1..2}", &["a1", "a2", "b1", "b2"]);
        check("{a,b{1..3}}", &["a", "b1", "b2", "b3"]);
        check("x{a{b,c}d,e}", &["xabd", "xacd", "xe"]);
        check("{,a}x", &["x", "ax"]);
        check("{x,{y}}", &["x", "{y}"]);
        check("{1..2}..{4..5}", &["1..4", "1..5", "2..4", "2..5"]);
        check("{ä,ö}{ü,é}", &["äü", "äé", "öü", "öé"]);
    }

    #[test]
    fn braces_that_say_nothing_stay() {
        check("plain", &["plain"]);
        check("", &[""]);
        for pattern in
            ["{}", "{a}", "{1..2", "{1...3}", "{1..3..}", "{1..3..x}", "{aa..cc}", "{a..5}", "a}b", "{{}}", "{1.2}"]
        {
            check(pattern, &[pattern]);
        }
        check("{1..9223372036854775808}", &["{1..9223372036854775808}"]);
        check("{a{1,2}}", &["{a1}", "{a2}"]);
        check("{{1..2}}", &["{1}", "{2}"]);
        check("{a,{1..2}", &["{a,1", "{a,2"]);
        check("{a,b}}", &["a}", "b}"]);
        check("{{},a}", &["{}", "a"]);
        check("{a}{b,c}", &["{a}b", "{a}c"]);
    }

    #[test]
    fn a_backslash_takes_the_meaning_away() {
        check(r"\{a,b}", &["{a,b}"]);
        check(r"{a\,b}", &["{a,b}"]);
        check(r"{a,b\}", &["{a,b}"]);
        check(r"a{b,c\,d}", &["ab", "ac,d"]);
        check(r"a\\b\", &[r"a\b\"]);
        check(r"\é{1,2}", &["é1", "é2"]);
    }

    #[test]
    fn too_many_names_and_too_deep_nesting_are_refused_before_they_cost_anything() {
        let kind = |pattern: &str| expand_braces(pattern).unwrap_err().kind();
        assert_eq!(kind("{0..1000000}"), ErrorKind::Limit);
        assert_eq!(kind("{-9223372036854775808..9223372036854775807}"), ErrorKind::Limit);
        assert_eq!(kind(&"{0..9223372036854775807}".repeat(40)), ErrorKind::Limit);
        assert_eq!(kind(&("{a,".repeat(40) + &"}".repeat(40))), ErrorKind::Limit);
        assert_eq!(expand_braces(&"{".repeat(100_000)).unwrap().len(), 1);
        assert_eq!(expand_braces("{000000..999999}").unwrap().len(), EXPANSIONS_MAX);
    }

    #[test]
    fn many_long_names_are_refused_before_they_fill_the_memory() {
        let long = format!("{}{{0..999999}}", "a".repeat(10_000));
        assert_eq!(expand_braces(&long).unwrap_err().kind(), ErrorKind::Limit);
        assert_eq!(expand_braces(&long.replace("999999", "9")).unwrap().len(), 10);
    }

    /// A well-formed pattern and how many names it stands for.
    fn patterns() -> impl Strategy<Value = (String, u128)> {
        let text = "[a-c1-3.]{1,3}".prop_map(|text| (text, 1));
        let numbers = (-20_i64..20, -20_i64..20, 1_i64..5).prop_map(|(first, last, step)| {
            (format!("{{{first}..{last}..{step}}}"), u128::from(first.abs_diff(last)) / step as u128 + 1)
        });
        let padded = (0_u32..12, 0_u32..120)
            .prop_map(|(first, last)| (format!("{{{first:03}..{last}}}"), u128::from(first.abs_diff(last)) + 1));
        prop_oneof![text, numbers, padded].prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| (a.0 + &b.0, a.1 * b.1)),
                proptest::collection::vec(inner.clone(), 2..4).prop_map(|all| {
                    let texts: Vec<_> = all.iter().map(|(text, _)| text.as_str()).collect();
                    (format!("{{{}}}", texts.join(",")), all.iter().map(|(_, count)| count).sum())
                }),
                inner.prop_map(|(text, count)| (format!("x{{{text}}}"), count)),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_count_is_the_product((pattern, expected) in patterns()) {
            // What a pair of braces around a lone text stands for depends on the text: those are told by bash below.
            prop_assume!(!pattern.contains("x{"));
            prop_assume!(expected < 100_000);
            prop_assert_eq!(expand_braces(&pattern).unwrap().len() as u128, expected);
        }

        #[test]
        fn no_pattern_panics(pattern in r"[{},.\\0-3a-cé-]{0,40}") {
            let _ = expand_braces(&pattern);
        }
    }

    #[test]
    fn bash_gives_the_same_names_in_the_same_order() {
        use proptest::strategy::ValueTree;
        use proptest::test_runner::TestRunner;
        let mut runner = TestRunner::deterministic();
        let strategy = patterns().prop_filter("small", |(_, count)| *count < 2_000);
        let patterns: Vec<String> = (0..150).map(|_| strategy.new_tree(&mut runner).unwrap().current().0).collect();
        // Only characters that mean nothing else to a shell are in them.
        let script: String = patterns.iter().map(|pattern| format!("printf '%s\\n' {pattern}; echo --\n")).collect();
        let Ok(output) = Command::new("bash").args(["-f", "-c", &script]).output() else {
            #[expect(clippy::print_stderr, reason = "says that the comparison was left out")]
            {
                eprintln!("no bash here: nothing to compare with");
            }
            return;
        };
        let output = String::from_utf8(output.stdout).unwrap();
        let mut blocks = output.split("--\n");
        for pattern in &patterns {
            let expected: Vec<&str> = blocks.next().unwrap().lines().collect();
            assert_eq!(expand_braces(pattern).unwrap(), expected, "{pattern}");
        }
    }
}
