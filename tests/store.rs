//! Stores whose files change under them, and the guard that must not end the process then nor keep others from it.
//!
//! What may end a process runs in a child: this same binary, told by a variable of its environment which part to play.

#![expect(unsafe_code, reason = "plays another library that handles SIGBUS, and a process that is hit by it")]

use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use brimful::ErrorKind;
use brimful::shard::map::MapStore;
use brimful::shard::read::ReadStore;
use brimful::shard::{IoMethod, Shard, ShardOptions, ShardSet, Store};

#[test]
fn a_file_that_shrinks_in_mid_read_is_an_error_and_no_signal() {
    assert_success(play("shrinks"));
}

#[test]
fn threads_that_read_a_file_while_it_shrinks_all_survive() {
    assert_success(play("shrinks_under_threads"));
}

#[test]
fn a_fault_that_is_not_ours_still_ends_the_process() {
    assert_killed(play("foreign_fault"));
}

#[test]
fn a_handler_from_before_the_guard_gets_the_faults_that_are_not_ours() {
    assert_eq!(play("handler_before").code(), Some(EXIT_OF_HANDLER));
}

#[test]
fn a_handler_from_after_the_guard_gets_the_faults_that_are_not_ours_and_only_those() {
    assert_eq!(play("handler_after_then_open").code(), Some(EXIT_OF_HANDLER));
    assert_eq!(play("handler_after_then_check").code(), Some(EXIT_OF_HANDLER));
}

#[test]
fn a_handler_that_calls_the_one_it_replaced_makes_no_ring() {
    assert_killed(play("handler_calls_back"));
    assert_killed(play("handler_in_a_ring"));
}

#[test]
fn a_handler_that_restores_the_one_it_replaced_and_raises_ends_the_process() {
    assert_killed(play("handler_raises"));
}

#[test]
fn an_ignored_signal_that_was_sent_stays_ignored() {
    assert_success(play("sent_and_ignored"));
}

#[test]
fn two_hundred_shards_are_served_under_a_limit_of_64_descriptors() {
    assert_success(play("descriptors"));
}

#[test]
fn a_full_table_of_maps_means_reads() {
    assert_success(play("full_table"));
}

/// What [`exit_at_once`] ends the process with.
const EXIT_OF_HANDLER: c_int = 42;
const PAGE: usize = 4096;
const ROLE: &str = "BRIMFUL_TEST_ROLE";

fn play(role: &str) -> ExitStatus {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["the_child", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    let output = child.output().unwrap();
    if output.status.code().is_some_and(|code| code != 0 && code != EXIT_OF_HANDLER) {
        panic!("{role}: {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    output.status
}

fn assert_success(status: ExitStatus) {
    assert!(status.success(), "{status}");
}

fn assert_killed(status: ExitStatus) {
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

/// Not a test of its own: what the children of the others run.
#[test]
fn the_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let no_core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, no_core).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    match role.as_str() {
        "shrinks" => shrinks(folder),
        "shrinks_under_threads" => shrinks_under_threads(folder),
        "foreign_fault" => {
            survive_own_fault(folder);
            foreign_fault(folder);
        }
        "handler_before" => {
            install(exit_at_once);
            survive_own_fault(folder);
            foreign_fault(folder);
        }
        "handler_after_then_open" => {
            survive_own_fault(folder);
            install(exit_at_once);
            survive_own_fault(folder);
            foreign_fault(folder);
        }
        "handler_after_then_check" => {
            let (store, path) = mapped(folder, "a.tar", 8);
            install(exit_at_once);
            store.check().unwrap();
            let bytes = store.read(0..store.len()).unwrap();
            shrink(&path, 1);
            assert_eq!(sum(&bytes), 1);
            foreign_fault(folder);
        }
        "handler_calls_back" => {
            survive_own_fault(folder);
            install(call_back);
            survive_own_fault(folder);
            foreign_fault(folder);
        }
        "handler_in_a_ring" => {
            survive_own_fault(folder);
            install(call_back);
            survive_own_fault(folder);
            // Now the guard passes on to `call_back`, and `call_back` will call that same guard.
            install(call_back);
            foreign_fault(folder);
        }
        "handler_raises" => {
            survive_own_fault(folder);
            install(restore_and_raise);
            survive_own_fault(folder);
            foreign_fault(folder);
        }
        "sent_and_ignored" => {
            // SAFETY: ignoring a signal and raising it have no conditions.
            unsafe { libc::signal(libc::SIGBUS, libc::SIG_IGN) };
            survive_own_fault(folder);
            for _ in 0..100 {
                // SAFETY: as above.
                unsafe { libc::raise(libc::SIGBUS) };
            }
            survive_own_fault(folder);
        }
        "descriptors" => descriptors(folder),
        "full_table" => full_table(folder),
        _ => panic!("no such role: {role}"),
    }
}

fn shrinks(folder: &Path) {
    let (store, path) = mapped(folder, "a.tar", 64);
    let bytes = store.read(0..store.len()).unwrap();
    assert_eq!(sum(&bytes), 64);
    shrink(&path, 10);
    assert_eq!(sum(&bytes), 10, "pages that are gone read as zeros");
    for (what, result) in
        [("check", store.check()), ("read", store.read(0..1).map(drop)), ("populate", store.populate(0..1))]
    {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ShardChanged, "{what}");
    }
    // Even when the file looks as before again, the zeros that were given out are not forgotten.
    drop(store);
    assert_eq!(sum(&bytes), 10, "the view is alive still");

    let (store, path) = mapped(folder, "b.tar", 64);
    shrink(&path, 10);
    store.prefetch(0..store.len());
    store.populate(0..10 * PAGE as u64).unwrap();
    assert_eq!(store.populate(0..11 * PAGE as u64).unwrap_err().kind(), ErrorKind::ShardChanged);
    store.read(0..1).unwrap();
    assert_eq!(store.check().unwrap_err().kind(), ErrorKind::ShardChanged);

    let path = file(folder, "c.tar", 64);
    let shard = Shard::open(&path, &ShardOptions { io: IoMethod::Mmap, ..ShardOptions::default() }).unwrap();
    shrink(&path, 0);
    let error = shard.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ShardChanged);
    assert_eq!(error.place().shard.as_deref(), path.to_str());
}

fn shrinks_under_threads(folder: &Path) {
    let (store, path) = mapped(folder, "a.tar", 512);
    let bytes = store.read(0..store.len()).unwrap();
    let (begun, stop) = (Barrier::new(4), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                begun.wait();
                while !stop.load(Ordering::SeqCst) {
                    assert!((1..=512).contains(&sum(&bytes)));
                }
                assert_eq!(sum(&bytes), 1);
            });
        }
        begun.wait();
        for pages in (1..512).rev() {
            shrink(&path, pages);
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert_eq!(store.check().unwrap_err().kind(), ErrorKind::ShardChanged);
}

fn descriptors(folder: &Path) {
    let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let paths: Vec<PathBuf> = (0..200).map(|number| file(folder, &format!("{number}.tar"), 1)).collect();
    for io in [IoMethod::Auto, IoMethod::Mmap, IoMethod::Read] {
        let set = ShardSet::new(paths.clone(), ShardOptions { io, ..ShardOptions::default() });
        for _ in 0..2 {
            for shard in 0..200 {
                assert_eq!(set.get(shard).unwrap().read(0..1).unwrap(), [1][..]);
            }
        }
        let kept: Vec<Shard> = (0..200).filter(|_| io == IoMethod::Mmap).map(|shard| set.get(shard).unwrap()).collect();
        assert!(kept.iter().all(|shard| shard.footprint().files == 0));
    }
}

fn full_table(folder: &Path) {
    let path = file(folder, "a.tar", 1);
    let mut maps = Vec::new();
    let refusal = loop {
        match MapStore::open(&path) {
            Ok(map) => maps.push(map),
            Err(error) => break error,
        }
        assert!(maps.len() < 100_000, "the table has no end");
    };
    assert_eq!(refusal.kind(), ErrorKind::Limit);
    let options = ShardOptions { io: IoMethod::Mmap, ..ShardOptions::default() };
    let shard = Shard::open(&path, &options).unwrap();
    assert_eq!((shard.footprint().files, shard.read(0..1).unwrap()[0]), (1, 1));
    maps.truncate(maps.len() / 2);
    assert_eq!(Shard::open(&path, &options).unwrap().footprint().files, 0);
    assert_eq!(ReadStore::open(&path).unwrap().len(), PAGE as u64);
}

/// A file of pages whose first byte is 1 and whose others are 0.
fn file(folder: &Path, name: &str, pages: usize) -> PathBuf {
    let path = folder.join(name);
    let mut bytes = vec![0; pages * PAGE];
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    fs::write(&path, bytes).unwrap();
    path
}

fn mapped(folder: &Path, name: &str, pages: usize) -> (MapStore, PathBuf) {
    let path = file(folder, name, pages);
    (MapStore::open(&path).unwrap(), path)
}

fn shrink(path: &Path, pages: usize) {
    File::options().write(true).open(path).unwrap().set_len((pages * PAGE) as u64).unwrap();
}

/// How many pages of a [`file`] are still what they were.
fn sum(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| usize::from(*byte)).sum()
}

fn survive_own_fault(folder: &Path) {
    let (store, path) = mapped(folder, "own.tar", 8);
    let bytes = store.read(0..store.len()).unwrap();
    shrink(&path, 1);
    assert_eq!(sum(&bytes), 1);
    assert_eq!(store.check().unwrap_err().kind(), ErrorKind::ShardChanged);
}

/// Looks at a page that is gone, of a map that the library does not know.
fn foreign_fault(folder: &Path) {
    let path = file(folder, "foreign", 2);
    let file = File::open(&path).unwrap();
    // SAFETY: the fault that the map leads to is what the test is for.
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    shrink(&path, 0);
    std::hint::black_box(map[PAGE]);
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The handler that the last [`install`] replaced.
static REPLACED: AtomicUsize = AtomicUsize::new(0);

fn install(handler: Handler) {
    // SAFETY: a zeroed sigaction is valid, and the handlers below call only what a handler may call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        let mut replaced: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, &raw mut replaced), 0);
        REPLACED.store(replaced.sa_sigaction, Ordering::SeqCst);
    }
}

extern "C" fn exit_at_once(_signal: c_int, _info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: a handler may call it.
    unsafe { libc::_exit(EXIT_OF_HANDLER) }
}

extern "C" fn call_back(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: it is the guard that was replaced, and it takes three arguments.
    unsafe { std::mem::transmute::<usize, Handler>(REPLACED.load(Ordering::SeqCst))(signal, info, context) }
}

/// What Python's faulthandler does after it has printed where it was.
extern "C" fn restore_and_raise(signal: c_int, _info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: a zeroed sigaction is valid, and a handler may call both functions.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = REPLACED.load(Ordering::SeqCst);
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        libc::raise(signal);
    }
}
