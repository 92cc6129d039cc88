//! Any pattern: no panic, a bounded number of names, and what is written beside the pattern is beside every name.
#![no_main]

use brimful::shard::expand_braces;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|pattern: &str| {
    // Patterns that stand for a few names, or for more than anybody may ask for: a million of them would take seconds.
    let digits = pattern.split(|char: char| !char.is_ascii_digit()).map(|run| run.trim_start_matches('0').len());
    let bits = 8 * pattern.matches("..").count() + pattern.matches(',').count();
    if bits > 18 || digits.into_iter().any(|digits| (3..12).contains(&digits)) {
        return;
    }
    let Ok(names) = expand_braces(pattern) else { return };
    assert!(!names.is_empty());
    if !pattern.contains('{') {
        assert_eq!(names.len(), 1);
    }
    // A name has no more in it than the pattern: what a range makes is not longer than the range.
    assert!(names.iter().all(|name| name.len() <= pattern.len()));

    if names.len() > 10_000 || pattern.ends_with('\\') {
        return;
    }
    let words = |pattern: String| expand_braces(&pattern).expect("a few more names");
    let around = words(format!("x{pattern}y"));
    assert!(around.iter().zip(&names).all(|(word, name)| *word == format!("x{name}y")) && around.len() == names.len());
    let behind = words(format!("{pattern}{{1..2}}"));
    assert!(
        behind.iter().eq(&names.iter().flat_map(|name| [format!("{name}1"), format!("{name}2")]).collect::<Vec<_>>())
    );
    let before = words(format!("{{b,a}}{pattern}"));
    let twice = ["b", "a"].iter().flat_map(|first| names.iter().map(move |name| format!("{first}{name}")));
    assert!(before.into_iter().eq(twice));
});
