//! Any bytes as a Parquet file, and a good one with some bytes changed: no panic comes through, and the shards are whole.
#![no_main]

use std::fs;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

#[path = "convert/sound.rs"]
mod sound;

const SCHEMA: &str = "message s {
    optional group image { optional binary bytes; }
    required int32 label;
    optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }
}";

static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let schema = Arc::new(parse_message_type(SCHEMA).expect("a schema"));
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).expect("a file");
    for _ in 0..2 {
        let mut group = writer.next_row_group().expect("a group");
        let pictures = [ByteArray::from(&b"\xff\xd8\xffone"[..]), ByteArray::from(&b"BMtwo"[..])];
        let mut column = group.next_column().expect("a group").expect("a column");
        column.typed::<ByteArrayType>().write_batch(&pictures, Some(&[2, 0, 2]), None).expect("values");
        column.close().expect("a column");
        let mut column = group.next_column().expect("a group").expect("a column");
        column.typed::<Int32Type>().write_batch(&[1, 2, 3], None, None).expect("values");
        column.close().expect("a column");
        let tags = [ByteArray::from(&b"x"[..]), ByteArray::from(&b"y"[..])];
        let mut column = group.next_column().expect("a group").expect("a column");
        column.typed::<ByteArrayType>().write_batch(&tags, Some(&[3, 3, 0, 1]), Some(&[0, 1, 0, 0])).expect("values");
        column.close().expect("a column");
        group.close().expect("a group");
    }
    writer.into_inner().expect("a file")
});

/// The reader's panics are caught, but the fuzzer's hook would end the process before: they are let through, since what they
/// become is an error.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let made = work();
    std::panic::set_hook(hook);
    made
}

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.parquet");
    for bytes in [bytes.to_vec(), sound::changed(&GOOD, bytes)] {
        fs::write(&path, bytes).expect("a file");
        let made = quietly(|| std::panic::catch_unwind(|| sound::convert(&path)));
        assert!(made.is_ok(), "a panic came through");
    }
});
