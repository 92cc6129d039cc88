//! Parquet files become shards, in builds that read them.

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_the_feature_says_so() {
    use crate::made::{Made, by_samples};
    use brimful::ErrorKind;
    use brimful::convert::{Conversion, SourceKind};
    let made = Made::new();
    made.write("a.parquet", b"PAR1");
    for source in ["src", "src/a.parquet", "src/*.parquet"] {
        let kind = SourceKind::of(&made.path(source)).unwrap();
        let error = Conversion::plan(&kind, &made.path("out"), by_samples(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{source}");
        assert!(error.hint().unwrap().contains("--features parquet"));
    }
}

#[cfg(feature = "parquet")]
mod built_in {
    use std::path::Path;
    use std::sync::Arc;

    use brimful::convert::{Conversion, ConvertOptions, Dataset, ErrorBudget, Outcome, ParquetOptions, SourceKind};
    use brimful::{ErrorKind, Result};
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;

    use crate::made::{Made, by_samples, files, left_out, samples};

    /// As the Hugging Face libraries write it: a picture with its path, a label, and whatever else.
    const SCHEMA: &str = "message schema {
        optional group image { optional binary bytes; optional binary path (UTF8); }
        optional int64 label;
        optional binary caption (UTF8);
        optional group boxes (LIST) {
            repeated group list {
                optional group element (LIST) { repeated group list { optional double element; } }
            }
        }
        required int96 when;
    }";

    const NAMES: &str = r#"{"info": {"features": {"label": {"names": ["cat", "dog", "emu"], "_type": "ClassLabel"}}}}"#;

    /// The picture of a row: the first bytes of a JPEG or PNG file, then what only this row has.
    fn picture(row: usize) -> Vec<u8> {
        let head: &[u8] = if row % 3 == 2 { b"\x89PNG\r\n\x1a\n" } else { b"\xff\xd8\xff" };
        [head, format!("{row}").as_bytes(), &vec![row as u8; 100 + row * 97 % 3000]].concat()
    }

    fn column<T: parquet::data_type::DataType>(
        group: &mut SerializedRowGroupWriter<'_, std::fs::File>,
        values: &[T::T],
        def_levels: Option<&[i16]>,
        rep_levels: Option<&[i16]>,
    ) {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(values, def_levels, rep_levels).unwrap();
        column.close().unwrap();
    }

    fn properties(version: WriterVersion, compression: Compression) -> WriterProperties {
        WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(compression)
            .set_data_page_size_limit(4096)
            .set_dictionary_page_size_limit(8192)
            .set_write_batch_size(4)
            .set_key_value_metadata(Some(vec![KeyValue::new("huggingface".to_owned(), NAMES.to_owned())]))
            .build()
    }

    /// A file of these rows in groups of `group` rows.
    fn write(path: &Path, rows: std::ops::Range<usize>, group: usize, properties: WriterProperties) {
        let file = std::fs::File::create(path).unwrap();
        let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let rows: Vec<usize> = rows.collect();
        for rows in rows.chunks(group) {
            let mut group = writer.next_row_group().unwrap();
            let text = |text: String| ByteArray::from(text.into_bytes());
            let pictures: Vec<ByteArray> = rows.iter().map(|&row| picture(row).into()).collect();
            column::<ByteArrayType>(&mut group, &pictures, Some(&vec![2; rows.len()]), None);
            let paths: Vec<ByteArray> = rows.iter().map(|row| text(format!("p{row}.jpg"))).collect();
            column::<ByteArrayType>(&mut group, &paths, Some(&vec![2; rows.len()]), None);
            let labels: Vec<i64> = rows.iter().map(|&row| row as i64 % 3).collect();
            column::<Int64Type>(&mut group, &labels, Some(&vec![1; rows.len()]), None);
            // Every other row has a caption.
            let captions = rows.iter().filter(|&row| row % 2 == 0).map(|row| text(format!("number {row}")));
            let defined: Vec<i16> = rows.iter().map(|row| i16::from(row % 2 == 0)).collect();
            column::<ByteArrayType>(&mut group, &captions.collect::<Vec<_>>(), Some(&defined), None);
            // Rows in turn: nothing, no boxes, an empty box, two boxes.
            let (mut values, mut def_levels, mut rep_levels) = (Vec::new(), Vec::new(), Vec::new());
            for &row in rows {
                let levels: &[(i16, i16)] = match row % 4 {
                    0 => &[(0, 0)],
                    1 => &[(1, 0)],
                    2 => &[(3, 0)],
                    _ => &[(5, 0), (4, 2), (5, 1)],
                };
                for &(defined, repeated) in levels {
                    def_levels.push(defined);
                    rep_levels.push(repeated);
                    values.extend((defined == 5).then_some(row as f64 + f64::from(repeated) / 10.0));
                }
            }
            column::<DoubleType>(&mut group, &values, Some(&def_levels), Some(&rep_levels));
            let times = vec![parquet::data_type::Int96::default(); rows.len()];
            column::<parquet::data_type::Int96Type>(&mut group, &times, None, None);
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    /// Two files of 40 and 25 rows.
    fn two_files() -> Made {
        let made = Made::new();
        write(
            &made.path("src/train-00000-of-00002.parquet"),
            0..40,
            16,
            properties(WriterVersion::PARQUET_1_0, Compression::SNAPPY),
        );
        write(
            &made.path("src/train-00001-of-00002.parquet"),
            40..65,
            7,
            properties(WriterVersion::PARQUET_2_0, Compression::ZSTD(Default::default())),
        );
        made
    }

    fn convert(made: &Made, source: &str, out: &str, options: ConvertOptions) -> Result<Dataset> {
        let kind = SourceKind::of(&made.path(source))?;
        match Conversion::plan(&kind, &made.path(out), options)?.run(&|_, _| {})? {
            Outcome::Complete(dataset) => Ok(*dataset),
            Outcome::Part { .. } => panic!("a part only"),
        }
    }

    #[test]
    fn rows_become_samples_with_labels_and_the_other_columns_as_json() {
        let made = two_files();
        let kind = SourceKind::of(&made.path("src")).unwrap();
        let conversion = Conversion::plan(&kind, &made.path("out"), by_samples(100)).unwrap();
        assert_eq!(conversion.notes(), ["1 columns have values that JSON lacks and are left out: when"]);
        let dataset = convert(&made, "src", "out", by_samples(100)).unwrap();
        assert_eq!((dataset.samples, dataset.classes), (65, 3));
        let found = samples(&made.path("out/train-000000.tar"));
        let boxes = |row: usize| match row % 4 {
            0 => "null".to_owned(),
            1 => "[]".to_owned(),
            2 => "[[]]".to_owned(),
            _ => format!("[[{row}.0,null],[{row}.1]]"),
        };
        for (row, (key, fields)) in found.iter().enumerate() {
            let ext = if row % 3 == 2 { "png" } else { "jpg" };
            let caption = if row % 2 == 0 { format!("\"number {row}\"") } else { "null".into() };
            let json = format!("{{\"boxes\":{},\"caption\":{caption},\"image.path\":\"p{row}.jpg\"}}", boxes(row));
            let mut expected = vec![
                ("cls".to_owned(), (row % 3).to_string().into_bytes()),
                (ext.to_owned(), picture(row)),
                ("json".to_owned(), json.into_bytes()),
            ];
            expected.sort();
            assert_eq!((key, fields), (&format!("{row:08}"), &expected));
        }
        let classes = std::fs::read_to_string(made.path("out/classes.json")).unwrap();
        assert_eq!(classes, "{\n  \"cat\": 0,\n  \"dog\": 1,\n  \"emu\": 2\n}\n");
    }

    #[test]
    fn any_order_and_number_of_threads_reads_the_same_rows() {
        let made = two_files();
        convert(&made, "src", "plain", by_samples(100)).unwrap();
        let mut plain = samples(&made.path("plain/train-000000.tar"));
        let options = |threads| ConvertOptions { shuffle: Some(5), threads, ..by_samples(20) };
        convert(&made, "src/train-*.parquet", "one", options(1)).unwrap();
        convert(&made, "src", "six", options(6)).unwrap();
        assert_eq!(files(&made.path("one")), files(&made.path("six")));
        let all = (0..4).flat_map(|shard| samples(&made.path(&format!("one/train-{shard:06}.tar"))));
        let mut all: Vec<_> = all.collect();
        assert_ne!(all, plain);
        // It takes its time, which is told.
        let told = |shuffle| {
            let options = ConvertOptions { shuffle, ..by_samples(20) };
            Conversion::plan(&SourceKind::of(&made.path("src")).unwrap(), &made.path("x"), options).unwrap().notes()
        };
        let tells = |shuffle| told(shuffle).iter().any(|note| note.contains("shuffle"));
        assert_eq!((tells(Some(5)), tells(None)), (true, false));
        all.sort();
        plain.sort();
        assert_eq!(all, plain);
        // Sizes of single pictures are means, sums are not.
        let limit = brimful::convert::ShardLimit::Bytes(30_000);
        let dataset = convert(&made, "src", "bytes", ConvertOptions { limit, ..by_samples(1) }).unwrap();
        let planned = Conversion::plan(&SourceKind::of(&made.path("src")).unwrap(), &made.path("x"), by_samples(100));
        let share = planned.unwrap().bytes() as f64 / dataset.bytes as f64;
        assert!(dataset.splits[0].shards.len() > 3 && (0.9..1.1).contains(&share), "{share}");
    }

    /// A file of two rows with the columns of `schema`, all of them bytes or text.
    fn write_texts(path: &Path, schema: &str, columns: &[[&[u8]; 2]]) {
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for values in columns {
            let values = values.map(ByteArray::from);
            column::<ByteArrayType>(&mut group, &values, None, None);
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn columns_are_found_or_named() {
        let made = Made::new();
        let path = made.path("src/a.parquet");
        let schema = "message s { required binary photo; required binary Mask; required binary species (UTF8); }";
        write_texts(&path, schema, &[[b"\xff\xd8\xffone", b"\xff\xd8\xfftwo"], [b"BMx", b"?"], [b"dog", b"cat"]]);
        let with = |image: Option<&str>, label: Option<&str>| {
            let options = ParquetOptions {
                paths: vec![path.clone()],
                image_column: image.map(str::to_owned),
                label_column: label.map(str::to_owned),
                ..ParquetOptions::default()
            };
            Conversion::plan(&SourceKind::Parquet(options), &made.path("out"), by_samples(9))
        };
        for (image, label) in [(None, None), (Some("nothing"), None), (Some("photo"), Some("nothing"))] {
            let error = with(image, label).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
            assert!(error.message().contains("Mask"), "{error}");
        }
        with(Some("photo"), Some("species")).unwrap().run(&|_, _| {}).unwrap();
        let found = samples(&made.path("out/train-000000.tar"));
        let field = |ext: &str, bytes: &[u8]| (ext.to_owned(), bytes.to_vec());
        let expected = [
            (
                "00000000".to_owned(),
                vec![field("cls", b"1"), field("jpg", b"\xff\xd8\xffone"), field("mask.bmp", b"BMx")],
            ),
            (
                "00000001".to_owned(),
                vec![field("cls", b"0"), field("jpg", b"\xff\xd8\xfftwo"), field("mask.bin", b"?")],
            ),
        ];
        assert_eq!(found, expected);
        let classes = std::fs::read_to_string(made.path("out/classes.json")).unwrap();
        assert_eq!(classes, "{\n  \"cat\": 0,\n  \"dog\": 1\n}\n");
    }

    #[test]
    fn labels_that_are_numbers_as_text_stay() {
        let made = Made::new();
        let schema = "message s { required binary image; required binary label (UTF8); }";
        write_texts(&made.path("src/a.parquet"), schema, &[[b"BM1", b"BM2"], [b"70", b"3"]]);
        convert(&made, "src/a.parquet", "out", by_samples(9)).unwrap();
        let labels = samples(&made.path("out/train-000000.tar")).into_iter().map(|(_, fields)| fields[1].1.clone());
        assert_eq!(labels.collect::<Vec<_>>(), [b"70".to_vec(), b"3".to_vec()]);
    }

    #[test]
    fn rows_without_a_picture_are_bad_samples_and_labels_without_a_class_errors() {
        let made = Made::new();
        let schema = "message s { required binary image; required binary label (UTF8); }";
        write_texts(&made.path("src/a.parquet"), schema, &[[b"no picture", b"BM"], [b"x", b"y"]]);
        let error = convert(&made, "src", "a", by_samples(9)).unwrap_err();
        assert!(error.to_string().contains("row 1 of '") && error.to_string().contains("no image"), "{error}");
        let options = ConvertOptions { errors_max: ErrorBudget::Count(1), ..by_samples(9) };
        let dataset = convert(&made, "src", "b", options).unwrap();
        assert_eq!((dataset.samples, dataset.left_out), (1, 1));
        assert!(left_out(&made.path("b")).contains("a.parquet"));
        write_texts(&made.path("src/a.parquet"), schema, &[[b"BM1", b"BM2"], [b"x", b""]]);
        let error = convert(&made, "src", "c", by_samples(9)).unwrap_err();
        assert!(error.kind() == ErrorKind::FieldValue && error.message().contains("row 2 of '"), "{error}");
    }

    #[test]
    fn files_of_other_columns_or_splits_are_told() {
        let made = Made::new();
        let schema = "message s { required binary image; }";
        for split in ["test", "train"] {
            let path = made.path(&format!("src/{split}-00000-of-00001.parquet"));
            write_texts(&path, schema, &[[b"BM1", b"BM2"]]);
        }
        let kind = SourceKind::of(&made.path("src")).unwrap();
        let conversion = Conversion::plan(&kind, &made.path("out"), by_samples(9)).unwrap();
        assert!(
            conversion.notes()[0].contains("several splits, which become one: test, train"),
            "{:?}",
            conversion.notes()
        );
        assert_eq!(convert(&made, "src/train-*.parquet", "out", by_samples(9)).unwrap().samples, 2);
        write_texts(&made.path("src/z.parquet"), "message s { required binary picture; }", &[[b"BM1", b"BM2"]]);
        assert_eq!(convert(&made, "src", "b", by_samples(9)).unwrap_err().kind(), ErrorKind::InvalidOption);
        assert_eq!(convert(&made, "src", "src/b", by_samples(9)).unwrap_err().kind(), ErrorKind::InvalidOption);
    }

    #[test]
    fn a_file_that_changes_is_noticed() {
        let made = two_files();
        let kind = SourceKind::of(&made.path("src")).unwrap();
        let conversion = Conversion::plan(&kind, &made.path("out"), by_samples(100)).unwrap();
        let file = std::fs::File::options().append(true).open(made.path("src/train-00001-of-00002.parquet")).unwrap();
        file.set_len(file.metadata().unwrap().len() + 1).unwrap();
        let error = conversion.run(&|_, _| {}).unwrap_err();
        assert!(error.to_string().contains("changed while it was converted"), "{error}");
    }

    #[test]
    fn damaged_files_are_errors_and_never_more() {
        let made = Made::new();
        let path = made.path("src/a.parquet");
        write(&path, 0..6, 3, properties(WriterVersion::PARQUET_1_0, Compression::SNAPPY));
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 4, 11, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = convert(&made, "src", "out", by_samples(9)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Decode, "{length}: {error}");
        }
        for at in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            std::fs::write(&path, bytes).unwrap();
            let out = format!("out-{at}");
            // Bytes of pictures have no sum in such a file: only that nothing else happens can be seen.
            if let Err(error) = convert(&made, "src", &out, by_samples(9)) {
                let kinds = [
                    ErrorKind::Decode,
                    ErrorKind::FieldValue,
                    ErrorKind::InvalidOption,
                    ErrorKind::NotFound,
                    ErrorKind::Unsupported,
                    ErrorKind::Limit,
                ];
                assert!(kinds.contains(&error.kind()), "byte {at}: {error:?}");
            }
        }
    }
}
