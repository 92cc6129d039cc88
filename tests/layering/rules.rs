//! The rules: who may import whom, what the library never does, where `unsafe` may stand, how files look.
//!
//! Each rule takes one file and returns what it breaks, as sentences that begin with the place.

use std::collections::BTreeMap;

use crate::source::{Source, text_at};

/// Who may import whom; `error` may be imported by all.
pub(crate) const EDGES: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("shard", &[]),
    ("sample", &["shard"]),
    ("decode", &[]),
    ("encode", &[]),
    ("transform", &["decode"]),
    ("batch", &["transform", "decode", "sample"]),
    ("device", &["batch", "transform", "decode"]),
    ("tune", &[]),
    ("report", &[]),
    ("loader", &["shard", "sample", "decode", "transform", "batch", "device", "tune"]),
    ("convert", &["shard", "sample", "decode", "encode", "transform"]),
    ("storage", &["shard"]),
];

/// Edges that carry these names only: headers, geometry and the arithmetic of values may reach the device, decoders and
/// resamplers may not.
const NARROW: &[(&str, &str, &[&str])] = &[
    ("device", "decode", &["ImageInfo", "JpegInfo", "JpegProcess", "Orientation"]),
    (
        "device",
        "transform",
        &["Geometry", "SingleResample", "ResampledAxis", "Filter", "ValueOps", "ValueTable", "Dtype"],
    ),
];

/// Files in which `unsafe` may stand, or in the folder of the same name.
const UNSAFE: &[&str] = &[
    "src/shard/map.rs",
    "src/decode/turbo.rs",
    "src/decode/baseline.rs",
    "src/transform/resize.rs",
    "src/batch/buffer.rs",
    "src/device/pinned.rs",
    "src/device/stream.rs",
    "src/device/kernels.rs",
    "src/device/transfer.rs",
    "src/device/lease.rs",
    "src/device/nvtx.rs",
    "src/device/nvjpeg.rs",
    "src/tune/nvml.rs",
    "src/storage/uring.rs",
    "src/storage/direct.rs",
    "src/storage/residency.rs",
    "bindings/python/src/dlpack.rs",
    "tests/store.rs",
];

/// The one place with global mutable state: the table of mapped ranges, which a signal handler reads.
const GLOBAL_STATE: &[&str] = &["src/shard/map.rs"];

/// Crates that only the command line knows.
const EDGE_CRATES: &[&str] = &["anyhow", "clap", "comfy_table", "indicatif", "pyo3"];

/// Macros that print.
const PRINTING: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

/// Functions of rayon that run on its global pool when called outside one of our own.
const POOL_FUNCTIONS: &[&str] = &["join", "scope", "scope_fifo", "in_place_scope", "spawn", "spawn_fifo", "broadcast"];

/// Types that make a `static` mutable.
const CELLS: &[&str] =
    &["Cell", "LazyCell", "LazyLock", "Mutex", "OnceCell", "OnceLock", "RefCell", "RwLock", "UnsafeCell", "Condvar"];

/// File names that say nothing.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "misc", "common", "helper", "helpers", "types", "manager", "managers", "stuff"];

/// Files whose names are those that other people's programs import.
const NAMED_BY_OTHERS: &[&str] = &["bindings/python/brimful/webdataset/utils.py"];

const LINES_MAX: usize = 600;

/// What lib.rs exports at its root: name to module.
pub(crate) type Exports = BTreeMap<String, String>;

/// Reads the exports out of lib.rs.
pub(crate) fn exports(lib: &Source) -> Exports {
    let modules = EDGES.iter().map(|(module, _)| *module).chain(["cli"]);
    let paths = modules.flat_map(|module| lib.paths_from(module));
    let export = |path: crate::source::Path| Some((path.segments.last()?.clone(), path.segments.first()?.clone()));
    paths.filter_map(export).collect()
}

/// Every sentence that one file earns.
pub(crate) fn check(source: &Source, exports: &Exports) -> Vec<String> {
    let mut broken = Vec::new();
    if source.path.starts_with("src/") {
        check_imports(source, exports, &mut broken);
        check_bans(source, &mut broken);
    }
    if source.path.ends_with(".rs") {
        check_unsafe(source, &mut broken);
        if !source.text.starts_with("//!") {
            broken.push(format!("{}: does not open with `//!`: what it is, what it is not", source.path));
        }
    }
    check_shape(source, &mut broken);
    broken
}

/// The module a file of `src` belongs to; the edges have none.
fn module_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    let module = inside.split('/').next()?.trim_end_matches(".rs");
    (!matches!(module, "lib" | "main" | "cli")).then_some(module)
}

fn check_imports(source: &Source, exports: &Exports, broken: &mut Vec<String>) {
    let Some(module) = module_of(&source.path) else { return };
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == module) else {
        broken.push(format!("{}: module '{module}' is not in the table of allowed edges", source.path));
        return;
    };
    for (line, mut path) in paths_from_root(source) {
        if let Some(home) = path.first().and_then(|name| exports.get(name)) {
            path.insert(0, home.clone());
        }
        let [target, names @ ..] = path.as_slice() else { continue };
        let place = format!("{}:{line}", source.path);
        if target == module || target == "error" {
            continue;
        }
        if !allowed.contains(&target.as_str()) {
            broken.push(format!("{place}: '{module}' may not import '{}'", path.join("::")));
        } else if let Some((.., only)) = NARROW.iter().find(|(from, to, _)| *from == module && to == target)
            && !names.first().is_some_and(|name| only.contains(&name.as_str()))
        {
            broken.push(format!("{place}: '{module}' may take only {} from '{target}'", only.join(", ")));
        }
    }
}

/// Every path that leads to the root of the crate, without its beginning: `crate::..`, `super::..` where it climbs high
/// enough, and `module::..` where the module itself was imported.
fn paths_from_root(source: &Source) -> Vec<(usize, Vec<String>)> {
    let inside = source.path.trim_start_matches("src/").trim_end_matches(".rs");
    let depth = inside.split('/').filter(|part| *part != "mod").count();
    let from_crate = source.paths_from("crate").into_iter().map(|path| (path.line, path.segments[1..].to_vec()));
    let from_super = source.paths_from("super").into_iter().filter_map(|path| {
        let climbed = path.segments.iter().take_while(|segment| *segment == "super").count();
        (climbed >= depth).then(|| (path.line, path.segments[climbed..].to_vec()))
    });
    let mut paths = Vec::new();
    for (line, path) in from_crate.chain(from_super) {
        match path.as_slice() {
            [module] | [module, _] if path.len() == 1 || path[1] == "self" => {
                let uses: Vec<_> =
                    source.paths_from(module).into_iter().map(|path| (path.line, path.segments)).collect();
                paths.extend(if uses.is_empty() { vec![(line, path)] } else { uses });
            }
            _ => paths.push((line, path)),
        }
    }
    paths
}

fn check_bans(source: &Source, broken: &mut Vec<String>) {
    if module_of(&source.path).is_none() && source.path != "src/lib.rs" {
        return;
    }
    let tokens = &source.library;
    let own_pool = tokens.windows(2).any(|pair| pair[0].text == "." && pair[1].text == "install");
    for (at, token) in tokens.iter().enumerate() {
        let (word, next) = (token.text.as_str(), text_at(tokens, at + 1));
        let mut ban = |what: &str| broken.push(format!("{}:{}: {what}", source.path, token.line));
        if EDGE_CRATES.contains(&word) {
            ban(&format!("'{word}' belongs to the command line or the bindings"));
        }
        if PRINTING.contains(&word) && next == "!" {
            ban(&format!("'{word}!': the library never prints"));
        }
        if word == "build_global" || (word.starts_with("par_") || word == "into_par_iter") && !own_pool {
            ban(&format!("'{word}' runs on rayon's global pool: install a pool of our own"));
        }
        if word == "static" && next == "mut" {
            ban("'static mut': no global mutable state");
        }
        if word == "static" && text_at(tokens, at + 2) == ":" && !is_among(&source.path, GLOBAL_STATE) {
            let cell = tokens[at + 3..].iter().take_while(|token| !matches!(token.text.as_str(), "=" | ";"));
            if cell.into_iter().any(|part| CELLS.contains(&part.text.as_str()) || part.text.starts_with("Atomic")) {
                ban(&format!("static '{next}': no global mutable state"));
            }
        }
    }
    for path in source.paths_from("std") {
        let segments: Vec<&str> = path.segments.iter().map(String::as_str).collect();
        if let ["std", "env", ..] | ["std", "process", "exit" | "abort"] = segments[..] {
            let path_text = segments.join("::");
            broken.push(format!("{}:{}: '{path_text}' belongs to the edges", source.path, path.line));
        }
    }
    for path in source.paths_from("rayon") {
        if path.segments.get(1).is_some_and(|name| POOL_FUNCTIONS.contains(&name.as_str())) && !own_pool {
            let path_text = path.segments.join("::");
            broken.push(format!("{}:{}: '{path_text}' runs on rayon's global pool", source.path, path.line));
        }
    }
}

fn check_unsafe(source: &Source, broken: &mut Vec<String>) {
    // Tests may: a test of a signal or of a foreign mapping has no safe way.
    let is_shipped = source.path.starts_with("src/") || source.path.starts_with("bindings/");
    if !is_shipped || is_among(&source.path, UNSAFE) {
        return;
    }
    for token in source.tokens.iter().filter(|token| token.text == "unsafe") {
        broken.push(format!("{}:{}: 'unsafe' outside the files that may hold it", source.path, token.line));
    }
}

/// Whether `path` is one of `files`, or lies in the folder of such a module.
fn is_among(path: &str, files: &[&str]) -> bool {
    let inside = |file: &str| path.strip_prefix(file.trim_end_matches(".rs")).is_some_and(|rest| rest.starts_with('/'));
    files.iter().any(|file| path == *file || inside(file))
}

fn check_shape(source: &Source, broken: &mut Vec<String>) {
    let lines = source.text.lines().count();
    if lines > LINES_MAX {
        broken.push(format!("{}: {lines} lines, more than {LINES_MAX}: split it by nouns", source.path));
    }
    let parts = source.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    for name in parts.filter(|part| EMPTY_NAMES.contains(part) && !NAMED_BY_OTHERS.contains(&source.path.as_str())) {
        broken.push(format!("{}: the name '{name}' says nothing: name it after a noun of the field", source.path));
    }
}
