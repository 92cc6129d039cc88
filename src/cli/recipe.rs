//! How the demo and the bench load: images through the transform of an ImageNet training, labels where there are some. It
//! is no training recipe beyond that.

use std::path::PathBuf;

use crate::decode::{Backend, DecodeOptions};
use crate::loader::DatasetOptions;
use crate::shard::{ShardList, ShardOptions};
use crate::transform::{Compose, Transform};
use crate::{Error, ErrorKind, Result};

/// Side of the crops in pixels.
pub(super) const CROP: u32 = 224;

/// The images: the first of these extensions that a sample has.
pub(super) const IMAGE: &str = "jpg;jpeg;png;webp";

/// Means and deviations of ImageNet's colours, as everyone uses them.
const MEAN: [f64; 3] = [0.485, 0.456, 0.406];
const STD: [f64; 3] = [0.229, 0.224, 0.225];

/// A random crop resized to 224 pixels, a flip, floats, normalised.
pub(super) fn training_transform() -> Result<Compose> {
    Compose::new(vec![
        Transform::random_resized_crop(CROP),
        Transform::random_horizontal_flip(0.5),
        Transform::ToTensor {},
        Transform::normalize(&MEAN, &STD),
    ])
}

/// Images alone, or images and labels.
pub(super) fn dataset_options(
    with_labels: bool,
    backend: Backend,
    shards: ShardOptions,
    index_cache: Option<PathBuf>,
) -> Result<DatasetOptions> {
    let fields = [IMAGE, "cls"].into_iter().take(if with_labels { 2 } else { 1 });
    Ok(DatasetOptions {
        fields: fields.map(str::to_owned).collect(),
        transform: training_transform()?,
        decode: DecodeOptions { backend, ..DecodeOptions::default() },
        shards,
        index_cache,
        ..DatasetOptions::default()
    })
}

/// The library's list of shards that exist.
///
/// # Errors
/// For names that are not UTF-8.
pub(super) fn list_of(paths: &[PathBuf]) -> Result<ShardList> {
    let name = |path: &PathBuf| {
        let not_text = || Error::new(ErrorKind::InvalidOption, format!("the name '{}' is not UTF-8", path.display()));
        path.to_str().map(str::to_owned).ok_or_else(not_text)
    };
    ShardList::from_patterns(&paths.iter().map(name).collect::<Result<Vec<_>>>()?)
}
