//! Fields of samples as columns of a batch.

use brimful::ErrorKind;
use brimful::batch::{Column, Dtype, Layout};
use brimful::decode::{ColorMode, DecodeOptions};
use brimful::device::Device;
use brimful::loader::{DatasetOptions, Loader, RouteMode};
use brimful::transform::{Compose, Transform};

use super::made::{Made, jpeg, made, numbers, options, pixels, shard_path, write_shard};

/// Samples with one field of each kind.
fn mixed() -> Made {
    let data = made(&[]);
    let rows = (0..4).map(|number: usize| {
        let npy = {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }");
            bytes.extend((header.len() as u16).to_le_bytes());
            bytes.extend(header.bytes());
            bytes.extend([number as f32, 0.5].iter().flat_map(|x| x.to_le_bytes()));
            bytes
        };
        let fields = vec![
            ("jpg".to_owned(), jpeg(number, 20)),
            ("cls".to_owned(), format!(" {number}\n").into_bytes()),
            ("txt".to_owned(), format!("caption {number}").into_bytes()),
            ("json".to_owned(), format!(r#"{{"meta": {{"label": {number}}}, "boxes": [1, {number}]}}"#).into_bytes()),
            ("npy".to_owned(), npy),
            ("bin".to_owned(), vec![number as u8; number]),
        ];
        (format!("dir/{number}"), fields)
    });
    write_shard(&shard_path(data.folder.path(), 0), rows);
    data
}

fn columns_of(fields: &[&str]) -> Vec<Column> {
    let data = mixed();
    let fields = fields.iter().map(|&field| field.to_owned()).collect();
    let dataset = data.dataset(DatasetOptions { fields, ..options() }).unwrap();
    let loader = Loader::builder(dataset).batch_size(4).build().unwrap();
    loader.epoch().unwrap().next().unwrap().unwrap().columns
}

#[test]
fn numbers_and_arrays_become_tensors() {
    let columns = columns_of(&["cls", "json:meta.label", "npy"]);
    assert_eq!(numbers(&columns[0]), [0, 1, 2, 3]);
    assert_eq!(numbers(&columns[1]), [0, 1, 2, 3]);
    let Column::Tensor(array) = &columns[2] else { panic!("no tensor") };
    assert_eq!((array.dtype, array.shape.as_slice()), (Dtype::F32, &[4, 2][..]));
    assert_eq!(array.bytes()[8..12], 1f32.to_le_bytes());
}

#[test]
fn texts_json_and_bytes_stay_lists() {
    let columns = columns_of(&["txt", "json", "bin", "__key__", "__url__", "jpg:bytes"]);
    let Column::Texts(texts) = &columns[0] else { panic!("no texts") };
    assert_eq!(texts[2], "caption 2");
    let Column::Json(json) = &columns[1] else { panic!("no json") };
    assert_eq!(json[3]["boxes"][1], 3);
    let Column::Bytes(bytes) = &columns[2] else { panic!("no bytes") };
    assert_eq!(bytes[3], vec![3u8; 3]);
    let Column::Names(keys) = &columns[3] else { panic!("no keys") };
    assert_eq!(keys[1], "dir/1");
    let Column::Names(urls) = &columns[4] else { panic!("no urls") };
    assert!(urls[0].ends_with(b"train-000000.tar"));
    let Column::Bytes(images) = &columns[5] else { panic!("no bytes") };
    assert_eq!(images[1], jpeg(1, 20));
}

/// A tar archive of one member, without the writer, which takes keys of text alone.
fn archive_of(name: &[u8], data: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, data).unwrap();
    archive.into_inner().unwrap()
}

#[test]
fn keys_and_paths_that_are_no_text_stay_the_bytes_they_are() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9.tar"));
    std::fs::write(&path, archive_of(b"caf\xe9.cls", b"7")).unwrap();
    let list = brimful::shard::ShardList::parse(folder.path().to_str().unwrap()).unwrap();
    for access in [brimful::loader::Access::Indexed, brimful::loader::Access::Stream] {
        let fields = ["__key__", "__url__", "cls"].map(str::to_owned).to_vec();
        let dataset_options = DatasetOptions { fields, access, ..DatasetOptions::default() };
        let dataset = brimful::loader::Dataset::open(&list, dataset_options, &|_, _| {}).unwrap();
        let batch = Loader::builder(dataset).build().unwrap().epoch().unwrap().next().unwrap().unwrap();
        let (Column::Names(keys), Column::Names(urls)) = (&batch.columns[0], &batch.columns[1]) else {
            panic!("no names")
        };
        assert_eq!(keys[0], &b"caf\xe9"[..]);
        assert_eq!(urls[0], path.as_os_str().as_bytes());
        assert_eq!(numbers(&batch.columns[2]), [7]);
    }
}

#[test]
fn layouts_hold_the_same_values_in_another_order() {
    let data = made(&[4]);
    let batch = |layout| {
        let loader = data.loader(|b| b.layout(layout));
        loader.epoch().unwrap().next().unwrap().unwrap()
    };
    let planes = batch(Layout::Nchw);
    let interleaved = batch(Layout::Nhwc);
    let float = |bytes: &[u8], i: usize| f32::from_le_bytes(bytes[i * 4..i * 4 + 4].try_into().unwrap());
    for (row, channel, pixel) in [(0, 0, 0), (1, 2, 37), (3, 1, 255)] {
        let a = float(pixels(&planes), (row * 3 + channel) * 256 + pixel);
        let b = float(pixels(&interleaved), (row * 256 + pixel) * 3 + channel);
        assert_eq!(a, b);
    }
    let last = batch(Layout::ChannelsLast);
    assert_eq!(pixels(&last), pixels(&interleaved));
    let (Column::Tensor(a), Column::Tensor(b)) = (&last.columns[0], &planes.columns[0]) else { panic!("no tensors") };
    assert_eq!(a.shape, b.shape);
    assert_eq!(a.strides, [768, 1, 48, 3]);
}

#[test]
fn without_a_transform_images_keep_their_size_and_bytes() {
    let data = mixed();
    let loader = Loader::builder(data.dataset(DatasetOptions::default()).unwrap()).batch_size(4).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let Column::Tensor(images) = &batch.columns[0] else { panic!("no tensor") };
    assert_eq!((images.dtype, images.shape.as_slice()), (Dtype::U8, &[4, 3, 20, 20][..]));
}

#[test]
fn images_of_unequal_size_cannot_share_a_batch_but_come_alone() {
    let data = made(&[]);
    let rows = [20, 24].into_iter().enumerate().map(|(number, size)| {
        (number.to_string(), vec![("jpg".to_owned(), jpeg(number, size)), ("cls".to_owned(), b"1".to_vec())])
    });
    write_shard(&shard_path(data.folder.path(), 0), rows);
    let loader = |batch_size| {
        let dataset = data.dataset(DatasetOptions::default()).unwrap();
        Loader::builder(dataset).batch_size(batch_size).build().unwrap()
    };
    let error = loader(2).epoch().unwrap().next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.hint().unwrap().contains("RandomResizedCrop"));
    assert_eq!(loader(1).epoch().unwrap().filter_map(Result::ok).count(), 2);
}

#[test]
fn several_image_columns_are_augmented_independently() {
    let data = mixed();
    let fields = vec!["jpg".to_owned(), "jpg".to_owned(), "cls".to_owned()];
    let dataset = data.dataset(DatasetOptions { fields, ..options() }).unwrap();
    let loader = Loader::builder(dataset).batch_size(4).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let (Column::Tensor(a), Column::Tensor(b)) = (&batch.columns[0], &batch.columns[1]) else { panic!("no tensors") };
    assert_ne!(a.bytes(), b.bytes());
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let data = made(&[2]);
    let builder = |options| Loader::builder(data.dataset(options).unwrap());
    for loader in [
        builder(options()).batch_size(0),
        builder(options()).dtype(Dtype::U8),
        builder(options()).dtype(Dtype::I64),
        builder(options()).batch_size((1 << 20) + 1),
        builder(options()).prefetch(100_000),
        builder(options()).shuffle(brimful::sample::Shuffle::Window { shards: 0 }),
        builder(options()).quarantine(Some("bad.jsonl".into())),
    ] {
        assert_eq!(loader.build().unwrap_err().kind(), ErrorKind::InvalidOption);
    }
    let no_fields = DatasetOptions { fields: Vec::new(), ..options() };
    assert_eq!(data.dataset(no_fields).unwrap_err().kind(), ErrorKind::InvalidOption);
}

#[test]
fn engines_alone_are_refused_for_samples_that_they_do_not_serve() {
    let data = made(&[2]);
    let grey = DecodeOptions { mode: ColorMode::Grey, ..DecodeOptions::default() };
    let cropped = Compose::new(vec![Transform::center_crop(16)]).unwrap();
    let two = ["jpg", "jpg"].map(str::to_owned).to_vec();
    let cases = [
        (DatasetOptions { decode: grey, transform: cropped, ..options() }, "mode=\"L\""),
        (DatasetOptions { fields: two, ..options() }, "this data set has 2"),
    ];
    for (options, reason) in cases {
        let builder = Loader::builder(data.dataset(options).unwrap()).device(Device::Cuda(0)).route(RouteMode::Engine);
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn bytes_of_an_image_may_be_asked_for_as_u8() {
    let data = made(&[4]);
    let transform = Compose::new(vec![Transform::center_crop(16)]).unwrap();
    let dataset = data.dataset(DatasetOptions { transform, ..DatasetOptions::default() }).unwrap();
    let loader = Loader::builder(dataset).batch_size(4).layout(Layout::Nhwc).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let Column::Tensor(images) = &batch.columns[0] else { panic!("no tensor") };
    assert_eq!((images.dtype, images.shape.as_slice()), (Dtype::U8, &[4, 16, 16, 3][..]));
}
