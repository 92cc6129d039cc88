//! Any bytes as a list of pictures, in each of its three forms: no panic, the shards are whole, and pictures come with their own
//! bytes.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

#[path = "convert/sound.rs"]
#[expect(dead_code, reason = "there is no good list to be changed")]
mod sound;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    let good: [(&str, &[u8]); 2] = [("a.jpg", b"the first picture"), ("b.png", b"the second")];
    good.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).expect("a file"));
    for (name, head) in
        [("a.csv", "path,label,x\na.jpg,1,y\n"), ("a.tsv", "image\tlabel\n"), ("a.jsonl", "{\"path\": \"a.jpg\"}\n")]
    {
        let path = folder.path().join(name);
        for head in ["", head] {
            fs::write(&path, [head.as_bytes(), bytes].concat()).expect("a file");
            for (name, bytes) in sound::convert(&path).unwrap_or_default() {
                let is_picture = !name.ends_with(b".cls") && !name.ends_with(b".json");
                assert!(!is_picture || good.iter().any(|(_, good)| *good == bytes), "{bytes:?}");
            }
        }
    }
});
