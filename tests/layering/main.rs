//! The rules of the house, checked over every source file of the repository.
//!
//! It reads text, not types: what it cannot see, the compiler's lints and the review must.

mod source;
mod rules;
mod planted;

use std::fs;
use std::path::Path;

use source::Source;

#[test]
fn every_file_keeps_the_rules_of_the_house() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in ["src", "bindings/python", "tests", "benches", "examples"] {
        read_folder(root, &root.join(folder), &mut sources);
    }
    let lib = sources.iter().find(|source| source.path == "src/lib.rs").expect("src/lib.rs");
    let exports = rules::exports(lib);
    assert!(sources.len() > 10 && exports.contains_key("Error"), "the tree was not read");
    let broken: Vec<String> = sources.iter().flat_map(|source| rules::check(source, &exports)).collect();
    assert!(broken.is_empty(), "{} broken rules:\n{}", broken.len(), broken.join("\n"));
}

/// Reads every Rust and Python file below `folder`, in order, except what tools put there.
fn read_folder(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "target" | "__pycache__" | "corpus" | "artifacts") && !name.starts_with('.') {
                read_folder(root, &path, sources);
            }
        } else if name.ends_with(".rs") || name.ends_with(".py") {
            let inside = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
            // Python's words would confuse the tokens: only the shape of its files is checked.
            let text = fs::read_to_string(&path).expect("a readable file");
            sources.push(Source::new(&inside, &text));
        }
    }
}
