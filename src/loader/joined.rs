//! Several data sets as one, and parts of them: which number is which sample of which. It reads nothing itself.

use std::path::PathBuf;

use super::dataset::{Dataset, RawSample};
use crate::sample::Key;
use crate::transform::SampleRng;
use crate::{Error, ErrorKind, Result};

/// A data set, or the samples of it with certain numbers.
#[derive(Debug)]
pub(crate) struct Part {
    dataset: Dataset,
    /// Numbers in `dataset`, in order; `None` for all of it.
    numbers: Option<Vec<usize>>,
    len: usize,
}

impl Part {
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for a stream, and for a number that the data set does not have.
    pub(crate) fn new(dataset: Dataset, numbers: Option<Vec<usize>>) -> Result<Self> {
        let Some(samples) = dataset.len() else {
            let error = Error::new(ErrorKind::InvalidOption, "a stream has no samples that could be named by number");
            return Err(error.with_hint("open it with access=\"indexed\""));
        };
        if let Some(number) = numbers.iter().flatten().find(|&&number| number >= samples) {
            let message = format!("there is no sample {number}: the data set has {samples}");
            return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("give numbers that it has"));
        }
        let len = numbers.as_ref().map_or(samples, Vec::len);
        Ok(Self { dataset, numbers, len })
    }

    fn number(&self, place: usize) -> Option<usize> {
        match &self.numbers {
            Some(numbers) => numbers.get(place).copied(),
            None => (place < self.len).then_some(place),
        }
    }

    /// Lengths of runs of samples that lie in one shard.
    fn shard_lens(&self) -> Vec<usize> {
        let lens = self.dataset.shard_lens();
        let Some(numbers) = &self.numbers else { return lens };
        let ends: Vec<usize> = lens
            .iter()
            .scan(0, |end, len| {
                *end += len;
                Some(*end)
            })
            .collect();
        let shard_of = |number: &usize| ends.partition_point(|end| end <= number);
        numbers.chunk_by(|a, b| shard_of(a) == shard_of(b)).map(<[usize]>::len).collect()
    }
}

/// Parts, one after the other.
#[derive(Debug)]
pub(crate) struct Joined {
    parts: Vec<Part>,
    /// Number of the first sample, and of the first shard, of each part.
    starts: Vec<(usize, usize)>,
    len: usize,
    paths: Vec<PathBuf>,
    fingerprint: u64,
}

impl Joined {
    /// # Errors
    /// [`ErrorKind::InvalidOption`] for parts whose samples have other fields, transforms or decoding than those of the
    /// first.
    pub(crate) fn new(parts: Vec<Part>) -> Result<Self> {
        if let Some(other) = parts.iter().find_map(|part| difference(&parts[0].dataset, &part.dataset)) {
            let error = Error::new(ErrorKind::InvalidOption, format!("data sets of unequal {other} cannot be joined"));
            return Err(error.with_hint("open them alike"));
        }
        let (mut len, mut starts) = (0, Vec::with_capacity(parts.len()));
        let (mut paths, mut mixer) = (Vec::new(), Mixer::default());
        for part in &parts {
            starts.push((len, paths.len()));
            len += part.len;
            paths.extend_from_slice(part.dataset.paths());
            mixer.number(part.dataset.fingerprint());
            mixer.number(part.len as u64);
            mixer.number(u64::from(part.numbers.is_some()));
            part.numbers.iter().flatten().for_each(|&number| mixer.number(number as u64));
        }
        Ok(Self { parts, starts, len, paths, fingerprint: mixer.finish() })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn shard_lens(&self) -> Vec<usize> {
        self.parts.iter().flat_map(Part::shard_lens).collect()
    }

    pub(crate) fn opens_each_sample(&self) -> bool {
        self.parts.iter().any(|part| part.dataset.opens_each_sample())
    }

    pub(crate) fn key(&self, ordinal: usize) -> Option<Key> {
        let (dataset, number, _) = self.place(ordinal)?;
        dataset.key(number)
    }

    pub(crate) fn prefetch(&self, ordinal: usize) {
        if let Some((dataset, number, _)) = self.place(ordinal) {
            dataset.prefetch(number);
        }
    }

    /// Reads sample `ordinal`; `None` where there is none. `check` is asked of shards as they are numbered here.
    pub(crate) fn read(&self, ordinal: usize, check: &mut dyn FnMut(usize) -> bool) -> Option<Result<RawSample>> {
        let (dataset, number, first_shard) = self.place(ordinal)?;
        let read = dataset.read_checked(number, &mut |shard| check(first_shard + shard));
        Some(read.map(|sample| RawSample {
            ordinal: ordinal as u64,
            shard_number: first_shard + sample.shard_number,
            ..sample
        }))
    }

    /// The data set that has sample `ordinal`, its number there, and the number of that data set's first shard here.
    fn place(&self, ordinal: usize) -> Option<(&Dataset, usize, usize)> {
        let part = self.starts.partition_point(|&(start, _)| start <= ordinal).checked_sub(1)?;
        let (start, first_shard) = self.starts[part];
        let part = &self.parts[part];
        Some((&part.dataset, part.number(ordinal - start)?, first_shard))
    }
}

/// In what two data sets differ that would show in their samples' values.
fn difference(first: &Dataset, other: &Dataset) -> Option<&'static str> {
    let (ours, theirs) = (first.options(), other.options());
    if ours.fields != theirs.fields {
        Some("fields")
    } else if ours.transform != theirs.transform {
        Some("transforms")
    } else if ours.decode != theirs.decode {
        Some("decoding options")
    } else {
        None
    }
}

/// Mixes numbers into one that changes with each of them, the same in every version: a sample's random stream does that.
#[derive(Debug, Default)]
pub(crate) struct Mixer(u64);

impl Mixer {
    pub(crate) fn number(&mut self, part: u64) {
        self.0 = SampleRng::new(self.0, part, 0).next_u64();
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::loader::DatasetOptions;

    fn files(names: &[&str]) -> Dataset {
        let paths = names.iter().map(|name| Path::new("/root").join(name)).collect();
        let classes = (0..names.len() as i64).collect();
        Dataset::of_files(Path::new("/root"), paths, classes, DatasetOptions::default()).unwrap()
    }

    fn keys(dataset: &Dataset) -> Vec<String> {
        (0..dataset.len().unwrap()).map(|number| dataset.key(number).unwrap().to_string()).collect()
    }

    #[test]
    fn numbers_go_through_parts_and_their_selections_and_nest() {
        let (first, second) = (files(&["a", "b", "c"]), files(&["d", "e"]));
        let joined = Dataset::join(vec![(first.clone(), Some(vec![2, 0, 2])), (second, None)]).unwrap();
        assert_eq!(keys(&joined), ["c", "a", "c", "d", "e"]);
        assert!(joined.key(5).is_none());
        let nested = Dataset::join(vec![(joined.clone(), Some(vec![4, 1])), (first, Some(vec![]))]).unwrap();
        assert_eq!(keys(&nested), ["e", "a"]);
        assert_eq!(joined.shard_lens(), [3, 2]);
        assert_ne!(joined.fingerprint(), nested.fingerprint());
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refused = |parts: Vec<(Dataset, Option<Vec<usize>>)>| Dataset::join(parts).unwrap_err().to_string();
        assert!(refused(Vec::new()).contains("no data set"));
        assert!(refused(vec![(files(&["a"]), Some(vec![1]))]).contains("no sample 1"));
        let other = DatasetOptions {
            transform: crate::transform::Compose::new(vec![crate::transform::Transform::ToTensor {}]).unwrap(),
            ..DatasetOptions::default()
        };
        let other = Dataset::of_files(Path::new("/"), Vec::new(), Vec::new(), other).unwrap();
        assert!(refused(vec![(files(&["a"]), None), (other, None)]).contains("transforms"));
    }
}
