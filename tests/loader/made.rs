//! Small data sets for the tests: shards of tiny JPEGs whose label tells which sample they are.

use std::path::{Path, PathBuf};

use brimful::batch::Column;
use brimful::loader::{Batch, Dataset, DatasetOptions, Loader, LoaderBuilder};
use brimful::shard::{Headers, ShardList, ShardWriter, WriterOptions};
use brimful::transform::{Compose, Transform};

/// A folder of shards, removed at the end of the test.
pub(crate) struct Made {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) pattern: String,
}

/// One JPEG of `size` x `size`, its colours derived from `number`.
pub(crate) fn jpeg(number: usize, size: u16) -> Vec<u8> {
    let pixels: Vec<u8> = (0..usize::from(size) * usize::from(size))
        .flat_map(|i| [(number * 37 + i) as u8, (number * 11 + i / 7) as u8, (i * number) as u8])
        .collect();
    let mut bytes = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
    encoder.encode(&pixels, size, size, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

/// Writes one shard of samples numbered from `first`.
pub(crate) fn write_shard(path: &Path, samples: impl Iterator<Item = (String, Vec<(String, Vec<u8>)>)>) {
    let options = WriterOptions { headers: Headers::Pax, ..WriterOptions::default() };
    let mut writer = ShardWriter::new(path.to_str().unwrap(), options).unwrap();
    for (key, fields) in samples {
        let fields: Vec<(&str, &[u8])> = fields.iter().map(|(ext, bytes)| (ext.as_str(), bytes.as_slice())).collect();
        writer.write_sample(&key, &fields).unwrap();
    }
    writer.finish().unwrap();
}

/// The sample numbered `number`: an image of 24 x 24 and its number as the label.
pub(crate) fn sample(number: usize) -> (String, Vec<(String, Vec<u8>)>) {
    let fields = vec![("jpg".into(), jpeg(number, 24)), ("cls".into(), number.to_string().into_bytes())];
    (format!("{number:06}"), fields)
}

/// Shards with the numbers of samples given, numbered through.
pub(crate) fn made(shard_lens: &[usize]) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let mut first = 0;
    for (shard, &len) in shard_lens.iter().enumerate() {
        write_shard(&shard_path(folder.path(), shard), (first..first + len).map(sample));
        first += len;
    }
    let pattern = folder.path().join("*.tar").to_str().unwrap().to_owned();
    Made { folder, pattern }
}

pub(crate) fn shard_path(folder: &Path, shard: usize) -> PathBuf {
    folder.join(format!("train-{shard:06}.tar"))
}

/// Options with a random crop to 16 x 16 and normalisation.
pub(crate) fn options() -> DatasetOptions {
    let transform = Compose::new(vec![
        Transform::random_resized_crop(16),
        Transform::random_horizontal_flip(0.5),
        Transform::ToTensor {},
        Transform::normalize(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225]),
    ]);
    DatasetOptions { transform: transform.unwrap(), ..DatasetOptions::default() }
}

impl Made {
    pub(crate) fn dataset(&self, options: DatasetOptions) -> brimful::Result<Dataset> {
        Dataset::open(&ShardList::parse(&self.pattern)?, options, &|_, _| {})
    }

    /// A loader of batches of 4 on 2 threads, changed by `with`.
    pub(crate) fn loader(&self, with: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
        let builder = Loader::builder(self.dataset(options()).unwrap()).batch_size(4).threads(2);
        with(builder).build().unwrap()
    }
}

/// The labels of a batch.
pub(crate) fn labels(batch: &Batch) -> Vec<i64> {
    numbers(&batch.columns[1])
}

pub(crate) fn numbers(column: &Column) -> Vec<i64> {
    let Column::Tensor(tensor) = column else { panic!("no tensor: {column:?}") };
    tensor.bytes().chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// The bytes of a batch's images.
pub(crate) fn pixels(batch: &Batch) -> &[u8] {
    let Column::Tensor(tensor) = &batch.columns[0] else { panic!("no tensor") };
    tensor.bytes()
}

/// The labels of a whole epoch.
pub(crate) fn epoch_labels(loader: &Loader) -> Vec<i64> {
    loader.epoch().unwrap().flat_map(|batch| labels(&batch.unwrap())).collect()
}
