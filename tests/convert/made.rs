//! Sources that tests make, and what is in the shards that become of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use brimful::Result;
use brimful::convert::{Conversion, ConvertOptions, Dataset, Outcome, ShardLimit, SourceKind};
use brimful::sample::{Grouping, group_by_key};
use brimful::shard::{Shard, ShardOptions};
use tempfile::TempDir;

/// A folder with a source `src` and room for destinations.
pub(crate) struct Made {
    folder: TempDir,
}

impl Made {
    /// An empty source.
    pub(crate) fn new() -> Self {
        let made = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(made.path("src")).unwrap();
        made
    }

    /// `classes` classes of `pictures` pictures each, of different sizes.
    pub(crate) fn with_pictures(classes: usize, pictures: usize) -> Self {
        let made = Self::new();
        for class in 0..classes {
            for picture in 0..pictures {
                let bytes = vec![(class * 31 + picture) as u8; 100 + (class * pictures + picture) * 37 % 1500];
                made.write(&format!("class{class:02}/img{picture:03}.jpg"), &bytes);
            }
        }
        made
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of the source.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path("src").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn plan(&self, destination: &str, options: ConvertOptions) -> Result<Conversion> {
        Conversion::plan(&SourceKind::of(&self.path("src"))?, &self.path(destination), options)
    }

    pub(crate) fn run(&self, destination: &str, options: ConvertOptions) -> Result<Outcome> {
        self.plan(destination, options)?.run(&|_, _| {})
    }

    /// Converts all of the source.
    #[track_caller]
    pub(crate) fn convert(&self, destination: &str, options: ConvertOptions) -> Dataset {
        match self.run(destination, options).unwrap() {
            Outcome::Complete(dataset) => *dataset,
            Outcome::Part { .. } => panic!("a part only"),
        }
    }
}

pub(crate) fn by_samples(samples: u64) -> ConvertOptions {
    ConvertOptions { limit: ShardLimit::Samples(samples), threads: 3, ..ConvertOptions::default() }
}

/// All files of a folder with the hashes of their bytes.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, u128> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let hash = |path: &Path| twox_hash::XxHash3_128::oneshot(&fs::read(path).unwrap());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), hash(&path))).collect()
}

/// The list of samples that were left out.
pub(crate) fn left_out(folder: &Path) -> String {
    fs::read_to_string(folder.join("left_out.jsonl")).unwrap()
}

/// A field: extension and bytes.
pub(crate) type Field = (String, Vec<u8>);

/// The samples of a shard in order: key, and fields with their bytes.
pub(crate) fn samples(path: &Path) -> Vec<(String, Vec<Field>)> {
    let shard = Shard::open(path, &ShardOptions::default()).unwrap();
    let members = shard.members().map(|member| {
        let member = member.unwrap();
        let bytes = shard.read(member.offset..member.offset + member.size).unwrap();
        Ok((member, bytes))
    });
    let samples = group_by_key(members, &Grouping::default()).map(|sample| {
        let sample = sample.unwrap();
        let fields = sample.fields.iter().map(|field| (field.ext.to_string(), field.value.to_vec())).collect();
        (sample.key.to_str().unwrap().to_owned(), fields)
    });
    samples.collect()
}

/// The keys of all shards of a split, in order.
pub(crate) fn keys(folder: &Path, dataset: &Dataset, split: &str) -> Vec<String> {
    let split = dataset.splits.iter().find(|found| found.name == split).unwrap();
    split.shards.iter().flat_map(|shard| samples(&folder.join(&shard.name))).map(|(key, _)| key).collect()
}
