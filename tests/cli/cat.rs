//! `brimful cat`.

use crate::archive::{SAMPLE_BYTES, archive, damaged, samples};
use crate::program::Program;

#[test]
fn a_field_is_printed_byte_by_byte() {
    let program = Program::new();
    program.write("a.tar", &archive(&[("n01/x.JPG", b"\xFF\xD8\0"), ("n01/x.seg.png", b"p"), ("n01/y.cls", b"7")]));
    let check = |args: &[&str], expected: &[u8]| {
        assert_eq!(program.run(&[&["cat", "a.tar"], args].concat()).ends_quietly().stdout, expected, "{args:?}");
    };
    check(&["n01/x.jpg"], b"\xFF\xD8\0");
    check(&["n01/x.JPG"], b"\xFF\xD8\0");
    check(&["n01/x.seg.png"], b"p");
    check(&["--field", "jpg", "n01/x"], b"\xFF\xD8\0");
    check(&["--field", "png;jpg", "n01/x"], b"\xFF\xD8\0");
    check(&["n01/y"], b"7");
    check(&["--list-fields", "n01/x"], b"jpg  3\nseg.png  1\n");
}

#[test]
fn what_is_not_there_is_told_with_advice() {
    let program = Program::new();
    program.write("a.tar", &samples(5));
    let check = |args: &[&str], error: &str, hint: &str| {
        let run = program.run(&[&["cat", "a.tar"], args].concat()).ends_with(2);
        run.tells_error(error);
        assert!(run.stdout.is_empty());
        assert!(run.stderr.contains(hint), "{}", run.stderr);
    };
    check(&["nothing"], "'nothing'", "hint: keys look like 000000, 000001, 000002");
    check(&["000001"], "several fields: jpg, cls", "hint: add the field's extension");
    check(&["--field", "png", "000001"], "no field 'png'", "only jpg, cls");
}

#[test]
fn damage_further_on_does_not_matter_and_damage_before_is_told() {
    let program = Program::new();
    program.write("bad.tar", &damaged(4, 2 * SAMPLE_BYTES));
    assert_eq!(program.run(&["cat", "bad.tar", "000001.cls"]).ends_quietly().text(), "1");
    let run = program.run(&["cat", "bad.tar", "000003.cls"]).ends_with(2);
    run.tells_error("'000003.cls'");
    assert_eq!(run.stderr.matches("error: ").count(), 2, "{}", run.stderr);
    assert_eq!(program.run(&["cat", "--resync", "bad.tar", "000003.cls"]).ends_with(0).text(), "3");
}
