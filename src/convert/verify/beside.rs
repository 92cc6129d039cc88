//! The indexes that lie beside a shard, brimful's and DALI's, compared with the members that the shard has.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::shard::{Member, ShardIndex, Unfit, index_beside};

/// The largest DALI index that is looked at, in bytes.
const DALI_BYTES_MAX: u64 = 1 << 30;

/// What is known of the indexes beside one shard.
pub(super) struct Beside {
    /// brimful's, and the number of its members that the shard had so far.
    own: Option<(ShardIndex, usize)>,
    /// DALI's, without the fields that the shard had so far.
    dali: Option<Dali>,
    wrong: Vec<String>,
}

impl Beside {
    /// Reads what lies beside the shard at `path`.
    pub(super) fn of(path: &Path) -> Self {
        let mut beside = Self { own: None, dali: None, wrong: Vec::new() };
        let name = index_beside(path).display().to_string();
        match ShardIndex::read_beside(path) {
            Ok(index) => beside.own = Some((index, 0)),
            Err(Unfit::Missing) => {}
            Err(Unfit::Unreadable) => beside.wrong.push(format!("'{name}' is damaged or no index")),
            Err(Unfit::Stale) => beside.wrong.push(format!("'{name}' is the index of another state of the shard")),
        }
        let dali = path.with_extension("idx");
        if fs::metadata(&dali).is_ok_and(|found| found.is_file() && found.len() <= DALI_BYTES_MAX) {
            match fs::read_to_string(&dali).ok().and_then(|text| read_dali(&text)) {
                Some(fields) => beside.dali = Some(fields),
                None => beside.wrong.push(format!("'{}' is no index of DALI's", dali.display())),
            }
        }
        beside
    }

    /// A file of the shard, in order.
    pub(super) fn take(&mut self, member: &Member) {
        if let Some((index, at)) = &mut self.own {
            let fits = *at < index.len() && {
                let known = index.member(*at);
                (known.name, known.offset, known.size) == (&member.name[..], member.offset, member.size)
            };
            *at = if fits { *at + 1 } else { usize::MAX };
        }
        if let Some(dali) = &mut self.dali {
            dali.fields.remove(&(member.offset, member.size));
        }
    }

    /// What is wrong with them, a sentence each, beside a shard of so many samples.
    pub(super) fn finish(mut self, samples: u64) -> Vec<String> {
        if self.own.is_some_and(|(index, at)| at != index.len()) {
            self.wrong.push("the index beside the shard has other members than the shard".into());
        }
        match self.dali {
            Some(Dali { fields, .. }) if !fields.is_empty() => {
                let left = fields.len();
                self.wrong.push(format!("DALI's index beside the shard has {left} fields that the shard has not"));
            }
            // It may have more: what is no field for loaders is one for DALI's script.
            Some(dali) if dali.samples < samples => {
                let known = dali.samples;
                self.wrong.push(format!("DALI's index beside the shard has {known} samples, the shard {samples}"));
            }
            _ => {}
        }
        self.wrong
    }
}

/// What a DALI index has.
#[derive(Debug)]
struct Dali {
    /// Offsets and sizes of fields.
    fields: HashSet<(u64, u64)>,
    samples: u64,
}

/// The contents of a DALI index, versions 1.1 and 1.2; `None` if it is none.
fn read_dali(text: &str) -> Option<Dali> {
    let mut lines = text.lines();
    let (version, count) = lines.next()?.split_once(' ')?;
    let words = match version {
        "v1.1" => 3,
        "v1.2" => 4,
        _ => return None,
    };
    let mut fields = HashSet::new();
    let mut samples = 0;
    for line in lines {
        let parts: Vec<&str> = line.split(' ').collect();
        if !parts.len().is_multiple_of(words) {
            return None;
        }
        for field in parts.chunks_exact(words) {
            fields.insert((field[1].parse().ok()?, field[2].parse().ok()?));
        }
        samples += 1;
    }
    (count.trim().parse() == Ok(samples)).then_some(Dali { fields, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_of_dali_are_read_or_refused() {
        let check = |text: &str, fields: Option<&[(u64, u64)]>| {
            let found = read_dali(text).map(|dali| dali.fields);
            assert_eq!(found, fields.map(|fields| fields.iter().copied().collect()), "{text:?}");
        };
        check("v1.2 1\njpg 512 10 a.jpg cls 1536 1 a.cls\n", Some(&[(512, 10), (1536, 1)]));
        check("v1.1 2\njpg 512 10\njpg 1536 9\n", Some(&[(512, 10), (1536, 9)]));
        for text in ["", "v1.2 2\njpg 512 10 a.jpg\n", "v1.2 1\njpg 512 10\n", "v1.1 1\njpg x 1\n", "v2 0\n"] {
            check(text, None);
        }
    }
}
