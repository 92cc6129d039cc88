//! Planted offences: each rule must see the bad source, and must leave the good one beside it alone.
//!
//! A check that cannot fail is worth nothing; these are its tests.

use std::collections::BTreeSet;

use crate::rules::{EDGES, check, exports};
use crate::source::Source;

const LIB: &str =
    "//! Root.\npub use error::{Error, Result};\npub use loader::Loader;\npub use shard::{Shard, ShardList};\n";

fn offences(path: &str, code: &str) -> Vec<String> {
    let exports = exports(&Source::new("src/lib.rs", LIB));
    check(&Source::new(path, &format!("//! A module.\n{code}\n")), &exports)
}

/// Expects one offence that holds `part`, on line 2 where it has a line.
fn bad(path: &str, code: &str, part: &str) {
    let found = offences(path, code);
    assert_eq!(found.len(), 1, "{path}: {code}: {found:?}");
    assert!(found[0].contains(part), "{}: no '{part}'", found[0]);
    assert!(found[0].starts_with(&format!("{path}:2: ")) || found[0].starts_with(&format!("{path}: ")), "{}", found[0]);
}

fn good(path: &str, code: &str) {
    assert_eq!(offences(path, code), Vec::<String>::new(), "{path}: {code}");
}

#[test]
fn an_import_against_the_direction_is_seen_however_it_is_written() {
    bad("src/shard/tar.rs", "use crate::sample::Key;", "'shard' may not import 'sample::Key'");
    bad("src/shard/tar.rs", "use crate::{error::Error, sample::Key};", "'sample::Key'");
    bad("src/shard/tar.rs", "use crate::{error::{Error, Result}, sample::{Key}};", "'sample::Key");
    bad("src/decode/mod.rs", "pub(crate) use crate::transform::*;", "'transform::*'");
    bad("src/decode/mod.rs", "fn f() -> crate::batch::HostBatch { loop {} }", "'batch::HostBatch'");
    bad("src/decode/turbo.rs", "use super::super::shard::Shard;", "'shard::Shard'");
    bad("src/decode/mod.rs", "use super::shard::Shard;", "'shard::Shard'");
    bad("src/decode/mod.rs", "use crate::{Error, Shard};", "'shard::Shard'");
    bad("src/storage/mod.rs", "use crate::Loader;", "'loader::Loader'");
    bad("src/loader/mod.rs", "use crate::encode::photo;", "'encode::photo'");
    bad("src/report/mod.rs", "use crate::cli::Table;", "'cli::Table'");
    bad("src/device/cpu.rs", "use crate::decode::ImageDecoder;", "from 'decode'");
    bad("src/device/mod.rs", "use crate::transform::Resampler;", "from 'transform'");
    bad("src/device/mod.rs", "use crate::transform; fn f(r: transform::Resampler) {}", "from 'transform'");
    bad("src/device/mod.rs", "use crate::transform::{self}; fn f(r: transform::Resampler) {}", "from 'transform'");
    bad("src/decode/mod.rs", "use crate::shard;", "may not import 'shard'");
    bad("src/batch/mod.rs", "use crate::nowhere::Thing;", "'nowhere::Thing'");
    bad("src/cache/mod.rs", "", "'cache' is not in the table");
}

#[test]
fn allowed_imports_are_left_alone() {
    good("src/shard/tar.rs", "use crate::error::Error; use crate::{Result, Shard}; use super::list::ShardList;");
    good("src/decode/turbo.rs", "use super::Region; use crate::decode::{ImageInfo, Pixels};");
    good("src/batch/mod.rs", "use crate::{decode::Pixels, sample::Key, transform::Geometry};");
    good("src/device/mod.rs", "use crate::decode::ImageInfo; use crate::transform::{Geometry, ValueOps};");
    good("src/device/cpu.rs", "use crate::transform::{self, ValueOps}; fn f(d: transform::Dtype) {}");
    good("src/cli/mod.rs", "use crate::loader::Loader; use crate::report::Table; use crate::storage;");
    good("src/decode/mod.rs", "// use crate::shard::Shard;\n/* crate::batch::B /* nested */ crate::loader::L */");
    good("src/decode/mod.rs", "fn f() -> &'static str { \"crate::shard::Shard\" }");
    good("src/decode/mod.rs", "const A: &str = r#\"a \" crate::shard::Shard\"#; const B: char = '\"'; fn f<'a>() {}");
    good("src/decode/mod.rs", "#[cfg(test)]\nmod tests { use crate::encode::photo; fn f() { println!(); } }");
    good("src/decode/tests.rs", "use crate::encode::photo;");
}

#[test]
fn code_behind_a_test_module_is_still_read() {
    let code = "#[cfg(test)] mod tests { fn f() { [1]; } } fn g() { println!(); }";
    bad("src/decode/mod.rs", code, "never prints");
    bad("src/decode/mod.rs", "#[cfg(test)] use std::env; use std::env::args;", "std::env::args");
}

#[test]
fn what_belongs_to_the_edges_is_banned_elsewhere() {
    for (code, part) in [
        ("use anyhow::Context;", "'anyhow'"),
        ("#[derive(clap::Parser)] struct A;", "'clap'"),
        ("use pyo3::prelude::*;", "'pyo3'"),
        ("fn f() { println!(\"x\"); }", "'println!'"),
        ("fn f() { std::eprintln!(\"x\"); }", "'eprintln!'"),
        ("fn f() { dbg!(1); }", "'dbg!'"),
        ("fn f() { std::env::var(\"HOME\"); }", "'std::env::var'"),
        ("use std::{env, fs};", "'std::env'"),
        ("fn f() { std::process::exit(1) }", "'std::process::exit'"),
        ("fn f(v: &[u8]) { v.par_iter(); }", "'par_iter'"),
        ("fn f(v: &mut [u8]) { v.par_chunks_mut(4); }", "'par_chunks_mut'"),
        ("fn f() { rayon::join(a, b); }", "'rayon::join'"),
        ("use rayon::{ThreadPool, spawn};", "'rayon::spawn'"),
        ("fn f(b: rayon::ThreadPoolBuilder) { b.build_global(); }", "'build_global'"),
        ("static mut COUNT: u32 = 0;", "'static mut'"),
        ("static COUNT: AtomicUsize = AtomicUsize::new(0);", "static 'COUNT'"),
        ("pub static TABLE: std::sync::OnceLock<Vec<u8>> = OnceLock::new();", "static 'TABLE'"),
    ] {
        bad("src/shard/list.rs", code, part);
        bad("src/lib.rs", code, part);
        if code.contains("static") || code.contains("rayon") || code.contains("par_") {
            continue;
        }
        good("src/cli/mod.rs", code);
        good("src/main.rs", code);
    }
    good("src/shard/map.rs", "static RANGES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];");
    good("src/loader/workers.rs", "fn f(p: &rayon::ThreadPool, v: &[u8]) { p.install(|| v.par_iter().count()); }");
    good("src/shard/list.rs", "static NAMES: [&str; 1] = [\"a\"]; const V: &str = env!(\"CARGO_PKG_VERSION\");");
}

#[test]
fn unsafe_stands_only_in_the_marked_files() {
    let code = "fn f() { unsafe { g() } }";
    bad("src/shard/tar.rs", code, "'unsafe'");
    bad("src/decode/mod.rs", "#[cfg(test)] mod tests { fn f() { unsafe { g() } } }", "'unsafe'");
    bad("src/decode/baselines.rs", code, "'unsafe'");
    bad("bindings/python/src/batch.rs", code, "'unsafe'");
    good("src/shard/map.rs", code);
    good("src/shard/map/guard.rs", code);
    good("tests/store.rs", code);
    good("src/decode/baseline/lane.rs", code);
    good("bindings/python/src/dlpack.rs", code);
    good("src/shard/tar.rs", "#[expect(unsafe_code, reason = \"unsafe\")] mod map; // unsafe");
}

#[test]
fn files_have_an_opening_a_length_and_a_name() {
    let check_text =
        |path: &str, text: &str| check(&Source::new(path, text), &exports(&Source::new("src/lib.rs", LIB)));
    assert_eq!(check_text("src/shard/mod.rs", "use std::fs;\n").len(), 1, "no opening");
    assert_eq!(check_text("src/shard/mod.rs", &"//! long\n".repeat(601)).len(), 1, "too long");
    assert_eq!(check_text("src/shard/mod.rs", &"//! long\n".repeat(600)).len(), 0);
    assert_eq!(check_text("bindings/python/brimful/loader.py", &"x = 1\n".repeat(601)).len(), 1, "too long");
    bad("src/shard/utils.rs", "", "'utils' says nothing");
    bad("src/shard/helpers/mod.rs", "", "'helpers'");
    assert_eq!(check_text("bindings/python/brimful/common.py", "").len(), 1);
    good("src/shard/commons.rs", "");
}

#[test]
fn the_table_of_edges_has_no_cycle_and_no_unknown_module() {
    let mut below: BTreeSet<&str> = BTreeSet::new();
    let mut rest: Vec<_> = EDGES.to_vec();
    while !rest.is_empty() {
        let before = rest.len();
        let (ready, waiting): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, allowed)| allowed.iter().all(|module| below.contains(module)));
        below.extend(ready.iter().map(|(module, _)| *module));
        rest = waiting;
        assert!(rest.len() < before, "a cycle or an unknown module among {rest:?}");
    }
}
