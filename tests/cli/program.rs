//! Runs the command in a folder of its own, with an environment of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A folder in which the command runs, removed at the end.
pub(crate) struct Program {
    folder: TempDir,
}

/// What one run left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// The command, not yet run.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.confined(Path::new(env!("CARGO_BIN_EXE_brimful")), args)
    }

    /// The command by way of a shell that runs `before` first.
    pub(crate) fn command_after(&self, before: &str, args: &[&str]) -> Command {
        let script = format!("{before}; exec \"$0\" \"$@\"");
        let mut all = vec!["-c", &script, env!("CARGO_BIN_EXE_brimful")];
        all.extend(args);
        self.confined(Path::new("/bin/sh"), &all)
    }

    fn confined(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).env_clear();
        command.env("XDG_CACHE_HOME", self.path("cache")).env("HOME", self.folder.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }
}

impl Run {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("the command ends by itself"),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Expects an exit code; shows everything otherwise.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", String::from_utf8_lossy(&self.stdout), self.stderr);
        self
    }

    /// Expects a success without a word on standard error.
    #[track_caller]
    pub(crate) fn ends_quietly(self) -> Self {
        let run = self.ends_with(0);
        assert_eq!(run.stderr, "");
        run
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.text().lines().collect()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap()
    }

    /// Expects an `error:` line with `part` in it, and returns the rest of standard error.
    #[track_caller]
    pub(crate) fn tells_error(&self, part: &str) {
        let told = self.stderr.lines().any(|line| line.starts_with("error: ") && line.contains(part));
        assert!(told, "no error with '{part}' in: {}", self.stderr);
    }
}

/// Expects what every document carries.
#[track_caller]
pub(crate) fn assert_document(document: &Value) {
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    let machine = &document["machine"];
    assert!(machine["cpu"].is_string() && machine["kernel"].is_string(), "{machine}");
    assert!(machine["cores"].as_u64() >= Some(1) && machine["memory_bytes"].is_u64(), "{machine}");
}

/// Expects a row for each stage of a loader.
#[track_caller]
pub(crate) fn assert_stages(document: &Value) {
    let stages = document["stages"].as_object().unwrap();
    assert_eq!(stages.len(), 6);
    for name in ["read", "decode", "transform", "batch", "copy", "wait"] {
        let stage = &stages[name];
        assert!(stage["items"].is_u64() && stage["failures"].is_u64(), "{name}: {stage}");
        for share in ["busy_share", "wait_share"] {
            assert!((0.0..=1.0).contains(&stage[share].as_f64().unwrap()), "{name}: {stage}");
        }
    }
}
