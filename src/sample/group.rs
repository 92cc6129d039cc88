//! Joins members into samples: neighbours with one key, by webdataset's rule.
//!
//! It never joins across shards, never looks ahead further than one member, and reads no data.

use bytes::Bytes;

use super::grouping::{Grouper, Grouping};
use super::report::GroupReport;
use super::{Field, Key, Sample};
use crate::error::{Error, Result};
use crate::shard::{Member, MemberKind};

/// What grouping needs to know of a member, and what it keeps of it.
pub trait Entry {
    /// What becomes the value of a field.
    type Value;
    /// The member's name as stored.
    fn name(&self) -> &Bytes;
    /// Size of its data in bytes.
    fn size(&self) -> u64;
    /// Whether it is a regular file; other members take no part.
    fn is_file(&self) -> bool;
    /// The value of the field.
    fn into_value(self) -> Self::Value;
}

/// A member with whatever belongs to it, such as its data.
impl<T> Entry for (Member, T) {
    type Value = T;
    fn name(&self) -> &Bytes {
        &self.0.name
    }
    fn size(&self) -> u64 {
        self.0.size
    }
    fn is_file(&self) -> bool {
        self.0.kind == MemberKind::File
    }
    fn into_value(self) -> T {
        self.1
    }
}

/// A bare member stands for itself.
impl Entry for Member {
    type Value = Self;
    fn name(&self) -> &Bytes {
        &self.name
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn is_file(&self) -> bool {
        self.kind == MemberKind::File
    }
    fn into_value(self) -> Self {
        self
    }
}

/// Groups the members of **one** shard, in their order, into samples.
///
/// A failing source ends the sample in work: whether more fields would have come is unknown, so it is dropped and
/// counted, the error is handed on, and grouping continues with whatever the source yields next.
pub fn group_by_key<I, E>(members: I, grouping: &Grouping) -> Groups<I::IntoIter, E>
where
    I: IntoIterator<Item = Result<E>>,
    E: Entry,
{
    Groups { members: members.into_iter(), grouper: Grouper::new(*grouping), sample: None, waiting: None }
}

/// The iterator that [`group_by_key`] makes: `Item = Result<Sample<E::Value>>`.
#[derive(Debug)]
pub struct Groups<I, E: Entry> {
    members: I,
    grouper: Grouper,
    /// The sample in work.
    sample: Option<Sample<E::Value>>,
    /// An error that must come out after a sample that it does not belong to.
    waiting: Option<Error>,
}

impl<I, E: Entry> Groups<I, E> {
    /// What was met so far.
    pub fn report(&self) -> GroupReport {
        self.grouper.report()
    }

    /// Where the members come from.
    pub fn source(&self) -> &I {
        &self.members
    }

    /// Ends the sample in work; `None` if there is none or if it is to be dropped.
    fn finish_sample(&mut self) -> Option<Sample<E::Value>> {
        let sample = self.sample.take()?;
        self.grouper.close().then_some(sample)
    }

    /// Takes one member in; returns the sample that it ended.
    fn take(&mut self, entry: E) -> Result<Option<Sample<E::Value>>> {
        if !entry.is_file() {
            self.grouper.report.not_files += 1;
            return Ok(None);
        }
        let name = entry.name().clone();
        let Some((key, ext)) = self.grouper.split(&name) else { return Ok(None) };
        let finished = if self.grouper.continues(key) {
            None
        } else {
            let finished = self.finish_sample();
            self.grouper.open(key);
            self.sample = Some(Sample { key: Key::new(name.slice(..key.len())), fields: Vec::new() });
            finished
        };
        match (self.grouper.add_field(ext, entry.size()), &mut self.sample) {
            (Ok(Some(number)), Some(sample)) => {
                let ext = self.grouper.extensions.name(number).clone();
                sample.fields.push(Field { ext, value: entry.into_value() });
            }
            (Err(error), _) if finished.is_some() => self.waiting = Some(error),
            (Err(error), _) => return Err(error),
            _ => {}
        }
        Ok(finished)
    }
}

impl<I, E> Iterator for Groups<I, E>
where
    I: Iterator<Item = Result<E>>,
    E: Entry,
{
    type Item = Result<Sample<E::Value>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.waiting.take() {
            return Some(Err(error));
        }
        loop {
            match self.members.next() {
                Some(Ok(entry)) => {
                    if let Some(result) = self.take(entry).transpose() {
                        return Some(result);
                    }
                }
                Some(Err(error)) => {
                    self.sample = None;
                    self.grouper.cut();
                    return Some(Err(error));
                }
                None => return self.finish_sample().map(Ok),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::sample::{Duplicates, KeySplit};
    use proptest::prelude::*;

    fn member(name: impl Into<Bytes>, size: u64) -> Member {
        Member { name: name.into(), header_offset: 0, offset: 512, size, kind: MemberKind::File }
    }

    fn groups(names: &[&str], grouping: &Grouping) -> (Vec<Result<Sample<u64>>>, GroupReport) {
        let members = names.iter().zip(0..).map(|(name, number)| Ok((member(name.as_bytes().to_vec(), 1), number)));
        let mut groups = group_by_key(members, grouping);
        (groups.by_ref().collect(), groups.report())
    }

    /// Samples as `key: ext ext` lines, errors as their text.
    fn lines(names: &[&str], grouping: &Grouping) -> Vec<String> {
        let (samples, _) = groups(names, grouping);
        let line = |sample: Sample<u64>| {
            let exts: Vec<&str> = sample.fields.iter().map(|field| &*field.ext).collect();
            format!("{}: {}", sample.key, exts.join(" "))
        };
        samples.into_iter().map(|sample| sample.map_or_else(|error| error.to_string(), line)).collect()
    }

    #[test]
    fn neighbours_with_one_key_are_a_sample() {
        let rule = Grouping::default();
        let check = |names: &[&str], expected: &[&str]| assert_eq!(lines(names, &rule), expected, "{names:?}");
        check(&["a.jpg", "a.cls", "b.jpg", "b.cls"], &["a: jpg cls", "b: jpg cls"]);
        check(&["0.a", "1.a", "0.b", "1.b"], &["0: a", "1: a", "0: b", "1: b"]);
        check(&["a.left.jpg", "a.right.jpg"], &["a: left.jpg right.jpg"]);
        check(&["a.jpg", "A.cls", "./a.cls"], &["a: jpg", "A: cls", "./a: cls"]);
        check(&["a.", "a.JPG"], &["a:  jpg"]);
        check(&[], &[]);
    }

    #[test]
    fn a_skipped_member_does_not_end_a_sample() {
        let rule = Grouping::default();
        let names = ["a.jpg", "nodot", "__x__", "__i__/x.json", "._a.cls", "d/__MACOSX/a.txt", ".hidden", "a.cls"];
        let (samples, report) = groups(&names, &rule);
        assert_eq!(samples.len(), 1);
        assert_eq!(samples[0].as_ref().unwrap().fields.len(), 2);
        assert_eq!((report.without_extension, report.metadata, report.appledouble), (2, 2, 2));
        assert_eq!((report.samples, report.fields), (1, 2));
    }

    #[test]
    fn appledouble_files_are_samples_on_request() {
        let rule = Grouping { keep_appledouble: true, ..Grouping::default() };
        assert_eq!(lines(&["d/._0.jpg", "d/0.jpg", "d/0.cls"], &rule), ["d/: _0.jpg", "d/0: jpg cls"]);
    }

    #[test]
    fn only_files_take_part() {
        let directory = Member { kind: MemberKind::Dir, ..member("d.x", 0) };
        let link = Member { kind: MemberKind::Symlink, ..member("a.txt", 0) };
        let members = [member("a.jpg", 1), directory, link, member("a.cls", 1)].map(Ok);
        let mut groups = group_by_key(members, &Grouping::default());
        let sample = groups.next().unwrap().unwrap();
        assert_eq!(sample.fields.iter().map(|field| field.value.size).collect::<Vec<_>>(), [1, 1]);
        assert!(groups.next().is_none());
        assert_eq!(groups.report().not_files, 2);
    }

    #[test]
    fn a_field_given_twice_is_an_error_and_the_first_value_stays() {
        let rule = Grouping::default();
        let names = ["0.cls", "a.jpg", "a.JPG", "a.cls"];
        let (samples, report) = groups(&names, &rule);
        let error = samples[1].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Grouping);
        assert_eq!((error.place().key.as_deref(), error.place().field.as_deref()), (Some("a"), Some("jpg")));
        let sample = samples[2].as_ref().unwrap();
        assert_eq!(sample.get("jpg").map(|field| field.value), Some(1));
        assert_eq!((samples.len(), report.duplicate_fields, report.samples), (3, 1, 2));

        let rule = Grouping { duplicates: Duplicates::KeepFirst, ..rule };
        assert_eq!(lines(&names, &rule), ["0: cls", "a: jpg cls"]);
        assert_eq!(lines(&["a.jpg", "a.__KEY__", "a.__url__"], &rule), ["a: jpg"]);
    }

    #[test]
    fn a_reserved_name_alone_makes_no_sample() {
        let rule = Grouping { duplicates: Duplicates::KeepFirst, ..Grouping::default() };
        let (samples, report) = groups(&["b.__url__"], &rule);
        assert_eq!((samples.len(), report.samples, report.duplicate_fields), (0, 0, 1));
        assert_eq!(lines(&["a.jpg", "b.__url__", "c.jpg"], &rule), ["a: jpg", "c: jpg"]);
        let (samples, _) = groups(&["b.__url__"], &Grouping::default());
        assert!(matches!(&samples[..], [Err(error)] if error.kind() == ErrorKind::Grouping));

        let mut index = crate::sample::SampleIndexBuilder::new(&rule);
        let files = [(&b"a.jpg"[..], 0, 1), (b"b.__url__", 1, 1), (b"c.jpg", 2, 1)];
        index.push_shard("a.tar".into(), 0, files.into_iter()).unwrap();
        let index = index.finish();
        assert_eq!(index.iter().map(|sample| sample.key()).collect::<Vec<_>>(), [b"a", b"c"]);
    }

    #[test]
    fn an_error_of_a_new_sample_comes_after_the_one_before_it() {
        assert_eq!(
            lines(&["a.jpg", "b.__key__", "b.jpg"], &Grouping::default()),
            ["a: jpg", "sample 'b', field '__key__': the field is given twice in one sample", "b: jpg"]
        );
    }

    #[test]
    fn a_key_that_comes_back_is_reported() {
        let (samples, report) = groups(&["a.jpg", "b.jpg", "a.cls", "b.cls", "c.jpg"], &Grouping::default());
        assert_eq!((samples.len(), report.split_keys), (5, 2));
        assert_eq!(report.split_key_names, [Key::new("a"), Key::new("b")]);
        assert!(report.warnings()[0].contains("'a', 'b'"));
    }

    #[test]
    fn dots_in_names_can_end_the_key_at_the_last_one() {
        let names: Vec<String> = (0..20).map(|number| format!("photo.{number:04}.jpg")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (samples, report) = groups(&names, &Grouping::default());
        assert_eq!((samples.len(), report.one_off_extensions().count()), (1, 20));
        assert_eq!(report.warnings().len(), 1);
        let (samples, report) = groups(&names, &Grouping { key_split: KeySplit::LastDot, ..Grouping::default() });
        assert_eq!((samples.len(), report.one_off_extensions().count()), (20, 0));
    }

    #[test]
    fn a_sample_marked_bad_is_dropped() {
        let members = [member("a.__bad__", 1), member("a.jpg", 1), member("b.__bad__", 0), member("b.jpg", 1)];
        let mut groups = group_by_key(members.map(Ok), &Grouping::default());
        let samples: Vec<_> = groups.by_ref().map(|sample| sample.unwrap().key).collect();
        assert_eq!((samples, groups.report().bad_samples), (vec![Key::new("b")], 1));
    }

    #[test]
    fn a_failing_source_drops_the_sample_in_work() {
        let failure = || Err(Error::new(ErrorKind::Truncated, "cut"));
        let members = [Ok(member("a.jpg", 1)), Ok(member("b.jpg", 1)), failure(), Ok(member("c.jpg", 1))];
        let mut groups = group_by_key(members, &Grouping::default());
        assert_eq!(groups.next().unwrap().unwrap().key, Key::new("a"));
        assert_eq!(groups.next().unwrap().unwrap_err().kind(), ErrorKind::Truncated);
        assert_eq!(groups.next().unwrap().unwrap().key, Key::new("c"));
        assert!(groups.next().is_none());
        assert_eq!((groups.report().cut_samples, groups.report().samples), (1, 2));
    }

    proptest! {
        #[test]
        fn every_field_comes_out_once_and_in_order(names in prop::collection::vec("[ab_./\n]{0,6}", 0..40)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let rule = Grouping { duplicates: Duplicates::KeepFirst, ..Grouping::default() };
            let (samples, report) = groups(&names, &rule);
            let numbers: Vec<u64> =
                samples.iter().flatten().flat_map(|sample| sample.fields.iter().map(|field| field.value)).collect();
            prop_assert!(numbers.is_sorted_by(|a, b| a < b));
            prop_assert!(samples.iter().flatten().all(|sample| !sample.fields.is_empty()));
            let skipped = report.metadata + report.appledouble + report.without_extension + report.duplicate_fields;
            prop_assert_eq!(report.fields + skipped, names.len() as u64);
            prop_assert_eq!(report.fields, numbers.len() as u64);
        }
    }
}
