//! Whole epochs over many shards where the system allows a process 64 open files.

use std::process::Command;

use brimful::loader::{Access, DatasetOptions, Loader};
use brimful::sample::Shuffle;
use brimful::shard::{IoMethod, ShardOptions};
use rustix::process::{Resource, Rlimit, setrlimit};

use super::made::{epoch_labels, made, options};

/// Set in the process that is held to the limit: the other tests of this program keep theirs.
const CHILD: &str = "BRIMFUL_TEST_FEW_DESCRIPTORS";
const SHARDS: usize = 150;
const SAMPLES: i64 = 2 * SHARDS as i64;

#[test]
fn whole_epochs_over_150_shards_work_under_64_descriptors() {
    let program = std::env::current_exe().unwrap();
    let arguments = ["descriptors::the_child", "--exact", "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(arguments).env(CHILD, "1").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains("1 passed"), "{stdout}");
}

/// Not a test of its own: what the child of the other runs.
#[test]
fn the_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: Some(64) }).unwrap();
    let data = made(&[2; SHARDS]);
    for io in [IoMethod::Mmap, IoMethod::Read] {
        for access in [Access::Indexed, Access::Stream] {
            let shards = ShardOptions { io, ..ShardOptions::default() };
            let dataset = data.dataset(DatasetOptions { shards, access, index_threads: 8, ..options() }).unwrap();
            // Far more samples in flight than descriptors, each of another shard.
            let loader = Loader::builder(dataset).batch_size(25).prefetch(8).threads(8).readers(8);
            let loader = loader.shuffle(Shuffle::Global).build().unwrap();
            for _ in 0..2 {
                let mut labels = epoch_labels(&loader);
                labels.sort_unstable();
                assert_eq!(labels, (0..SAMPLES).collect::<Vec<_>>(), "{io:?}, {access:?}");
            }
        }
    }
}
