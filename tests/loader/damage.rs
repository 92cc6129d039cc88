//! Bad samples: raised, skipped or replaced, counted and listed; never silent, never a panic.

use brimful::ErrorKind;
use brimful::loader::{DatasetOptions, ErrorBudget, OnError};
use brimful::sample::{Remainder, Shuffle, Split};

use super::made::{Made, epoch_labels, jpeg, labels, made, options, sample, shard_path, write_shard};

/// 20 samples, of which 3 is no image, 9 is cut and 14 has no label.
fn damaged() -> Made {
    let data = made(&[]);
    let samples = (0..20).map(|number| {
        let (key, mut fields) = sample(number);
        match number {
            3 => fields[0].1 = b"<html>not found</html>".to_vec(),
            9 => fields[0].1 = jpeg(9, 24)[..300].to_vec(),
            14 => drop(fields.pop()),
            _ => {}
        }
        (key, fields)
    });
    write_shard(&shard_path(data.folder.path(), 0), samples);
    data
}

const BAD: [i64; 3] = [3, 9, 14];

#[test]
fn a_bad_sample_is_an_error_that_names_shard_key_and_field() {
    let data = damaged();
    let loader = data.loader(|b| b);
    let mut epoch = loader.epoch().unwrap();
    let error = epoch.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(error.place().key.as_deref(), Some("000003"));
    assert_eq!(error.place().field.as_deref(), Some("jpg"));
    assert!(error.place().shard.as_deref().unwrap().ends_with("train-000000.tar"));
    assert!(error.place().offset.is_some());
    assert!(epoch.next().is_none(), "the epoch ends at its first error");
}

#[test]
fn skipped_samples_leave_short_batches_and_a_list() {
    let data = damaged();
    let list = data.folder.path().join("bad.jsonl");
    let loader = data.loader(|b| b.on_error(OnError::Skip, ErrorBudget::Count(3)).quarantine(Some(list.clone())));
    let batches: Vec<Vec<i64>> = loader.epoch().unwrap().map(|batch| labels(&batch.unwrap())).collect();
    assert_eq!(batches.len(), 5);
    let all: Vec<i64> = batches.concat();
    assert_eq!(all, (0..20).filter(|label| !BAD.contains(label)).collect::<Vec<i64>>());
    let stats = loader.stats();
    assert_eq!((stats.skipped, stats.replaced), (3, 0));
    let mut kinds: Vec<ErrorKind> = loader.bad_samples().iter().map(|bad| bad.kind).collect();
    kinds.sort_by_key(|kind| kind.as_str());
    assert_eq!(kinds, [ErrorKind::Decode, ErrorKind::MissingField, ErrorKind::Truncated]);
    assert_eq!(std::fs::read_to_string(list).unwrap().lines().count(), 3);
}

#[test]
fn replaced_samples_keep_batches_full_and_do_not_depend_on_threads() {
    let data = damaged();
    let run = |threads: usize| {
        let replace = |b: brimful::loader::LoaderBuilder| b.on_error(OnError::Replace, ErrorBudget::Unlimited);
        let loader = data.loader(|b| replace(b).threads(threads).shuffle(Shuffle::Global).seed(2));
        let labels = epoch_labels(&loader);
        assert_eq!(labels.len(), 20);
        assert!(labels.iter().all(|label| !BAD.contains(label)));
        assert!(loader.stats().replaced >= 3);
        labels
    };
    assert_eq!(run(1), run(4));
}

#[test]
fn what_replaces_a_bad_sample_does_not_depend_on_ranks_or_batches() {
    let data = damaged();
    let run = |world_size: usize, batch_size: usize| {
        let ranks = (0..world_size).flat_map(|rank| {
            let split = Split { rank, world_size, remainder: Remainder::Pad };
            let replace = |b: brimful::loader::LoaderBuilder| b.on_error(OnError::Replace, ErrorBudget::Unlimited);
            epoch_labels(&data.loader(|b| replace(b).batch_size(batch_size).split(split).shuffle(Shuffle::Global)))
        });
        let mut labels: Vec<i64> = ranks.collect();
        labels.sort_unstable();
        labels
    };
    let one = run(1, 4);
    assert_eq!(one.len(), 20);
    for (world_size, batch_size) in [(1, 7), (2, 3), (5, 4)] {
        assert_eq!(run(world_size, batch_size), one, "{world_size} ranks, batches of {batch_size}");
    }
}

#[test]
fn a_budget_that_is_used_up_ends_the_epoch() {
    let data = damaged();
    let loader = data.loader(|b| b.on_error(OnError::Skip, ErrorBudget::Share(0.1)));
    let error = loader.epoch().unwrap().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::TooManyErrors);
    assert!(error.hint().is_some());
}

#[test]
fn a_data_set_of_nothing_but_damage_ends_instead_of_looping() {
    let data = made(&[]);
    let rows = (0..6)
        .map(|number| (number.to_string(), vec![("jpg".to_owned(), b"x".to_vec()), ("cls".into(), b"1".to_vec())]));
    write_shard(&shard_path(data.folder.path(), 0), rows);
    let replace = data.loader(|b| b.on_error(OnError::Replace, ErrorBudget::Unlimited));
    let error = replace.epoch().unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyErrors);
    let skip = data.loader(|b| b.on_error(OnError::Skip, ErrorBudget::Unlimited));
    assert_eq!(skip.epoch().unwrap().count(), 0, "a batch without a single sample is passed over");
    assert_eq!(skip.stats().skipped, 6);
}

#[test]
fn a_shard_that_shrinks_while_mapped_is_an_error() {
    let data = made(&[40]);
    let loader = data.loader(|b| b.batch_size(2).prefetch(1));
    let mut epoch = loader.epoch().unwrap();
    epoch.next().unwrap().unwrap();
    let file = std::fs::File::options().write(true).open(shard_path(data.folder.path(), 0)).unwrap();
    file.set_len(4096).unwrap();
    let error = epoch.find_map(Result::err).expect("the loss is told");
    assert_eq!(error.kind(), ErrorKind::ShardChanged);
}

#[test]
fn a_shard_that_is_rewritten_between_epochs_is_an_error() {
    let data = made(&[8]);
    let loader = data.loader(|b| b.prefetch(1));
    epoch_labels(&loader);
    write_shard(&shard_path(data.folder.path(), 0), (100..108).map(sample));
    let errors: Vec<ErrorKind> =
        (0..2).filter_map(|_| loader.epoch().unwrap().find_map(Result::err)).map(|error| error.kind()).collect();
    assert!(errors.contains(&ErrorKind::ShardChanged), "{errors:?}");
}

#[test]
fn a_shard_that_is_rewritten_before_it_is_first_read_is_an_error() {
    let data = made(&[8]);
    let loader = data.loader(|b| b);
    write_shard(&shard_path(data.folder.path(), 0), (100..108).map(sample));
    let error = loader.epoch().unwrap().find_map(Result::err).expect("the index is of another file");
    assert_eq!(error.kind(), ErrorKind::ShardChanged);
}

#[test]
fn bytes_that_were_delivered_do_not_change_with_their_shard() {
    let data = made(&[4]);
    let fields = vec!["jpg:bytes".to_owned(), "cls".to_owned()];
    let dataset = data.dataset(brimful::loader::DatasetOptions { fields, ..options() }).unwrap();
    let loader = brimful::loader::Loader::builder(dataset).batch_size(4).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let file = std::fs::File::options().write(true).open(shard_path(data.folder.path(), 0)).unwrap();
    file.set_len(0).unwrap();
    let brimful::batch::Column::Bytes(images) = &batch.columns[0] else { panic!("no bytes") };
    assert_eq!(images[2], jpeg(2, 24));
}

#[test]
fn images_of_free_size_stay_beside_their_labels_when_samples_are_left_out() {
    let data = made(&[]);
    let rows = (0..6).map(|number| {
        let right = if number == 3 { b"no image".to_vec() } else { jpeg(number, 24) };
        let label = number.to_string().into_bytes();
        let fields =
            vec![("left.jpg".to_owned(), jpeg(number, 24)), ("right.jpg".to_owned(), right), ("cls".to_owned(), label)];
        (number.to_string(), fields)
    });
    write_shard(&shard_path(data.folder.path(), 0), rows);
    let run = |on_error| {
        let fields = ["left.jpg", "right.jpg", "cls"].map(str::to_owned).to_vec();
        let options = brimful::loader::DatasetOptions { fields, ..Default::default() };
        let builder = brimful::loader::Loader::builder(data.dataset(options).unwrap()).batch_size(6).prefetch(1);
        let loader = builder.on_error(on_error, ErrorBudget::Unlimited).build().unwrap();
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        let labels = super::made::numbers(&batch.columns[2]);
        let rows = |column: usize| {
            let brimful::batch::Column::Tensor(tensor) = &batch.columns[column] else { panic!("no tensor") };
            tensor.bytes().chunks(24 * 24 * 3).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        assert_eq!(rows(0), rows(1), "{on_error:?}: both images of a sample are the same here");
        assert_eq!(rows(0).len(), labels.len());
        labels
    };
    assert_eq!(run(OnError::Skip), [0, 1, 2, 4, 5]);
    let replaced = run(OnError::Replace);
    assert!(replaced.len() == 6 && !replaced.contains(&3), "{replaced:?}");
}

#[test]
fn a_transform_that_does_not_fit_an_image_names_the_sample() {
    let data = made(&[2]);
    let mut options = options();
    options.transform = brimful::transform::Compose::new(vec![brimful::transform::Transform::random_crop(64)]).unwrap();
    let loader = brimful::loader::Loader::builder(data.dataset(options).unwrap()).build().unwrap();
    let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.place().key.as_deref(), Some("000000"));
}

#[test]
fn an_epoch_whose_samples_are_all_bad_is_told() {
    let data = made(&[]);
    let samples = (0..6).map(|number| {
        let (key, mut fields) = sample(number);
        fields[0].1 = b"no image".to_vec();
        (key, fields)
    });
    write_shard(&shard_path(data.folder.path(), 0), samples);
    let loader = data.loader(|b| b.on_error(OnError::Skip, ErrorBudget::Unlimited));
    assert_eq!(loader.epoch().unwrap().count(), 0);
    let told = loader.notices();
    assert!(told.contains(&"epoch 0 gave no batch: all of its 6 samples were bad".to_owned()), "{told:?}");
}

#[test]
fn a_batch_size_beyond_the_data_set_costs_no_memory() {
    let data = made(&[6]);
    let loader = data.loader(|b| b.batch_size(1 << 20));
    assert_eq!(loader.batch_size(), 6);
    assert_eq!(epoch_labels(&loader).len(), 6);
    // A batch that is never full is left out, and a share of none is no batch.
    let dropping = data.loader(|b| b.batch_size(1 << 20).drop_last(true));
    assert_eq!((dropping.len(), epoch_labels(&dropping).len()), (Some(0), 0));
}

#[test]
fn an_index_that_cannot_be_kept_is_told() {
    let data = made(&[3]);
    let file = data.folder.path().join("file");
    std::fs::write(&file, b"no folder").unwrap();
    let dataset = data.dataset(DatasetOptions { index_cache: Some(file), ..options() }).unwrap();
    assert!(dataset.warnings().iter().any(|told| told.starts_with("index not kept in")), "{:?}", dataset.warnings());
}
