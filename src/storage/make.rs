//! Test shards: samples of random bytes, which nothing can compress, in sizes drawn from a distribution. They are removed
//! when their owner goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pattern::Random;
use crate::error::{Error, ErrorKind, Result};
use crate::shard::{Headers, ShardWriter, WriterOptions};

/// Bytes of a sample at most.
const SAMPLE_BYTES_MAX: u64 = 1 << 30;

/// Share of the free space that stays free.
const KEPT_FREE: f64 = 0.02;

/// Bytes of headers and padding around a sample, at most.
const AROUND_BYTES: f64 = 2048.0;

/// Standard deviations beyond which a drawn size is cut.
const DEVIATIONS_MAX: f64 = 4.0;

/// The sizes of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sizes {
    /// All the same, in bytes.
    Fixed(u64),
    /// Any between two, in bytes, each as likely as the other.
    Uniform(u64, u64),
    /// Sizes whose logarithms are normally distributed: the median in bytes, and the deviation of the natural logarithm.
    /// Photos are like that.
    LogNormal(u64, f64),
}

impl Default for Sizes {
    /// Files as ImageNet's: a mean of 115 kB.
    fn default() -> Self {
        Self::LogNormal(101_000, 0.5)
    }
}

impl Sizes {
    fn draw(&self, random: &mut Random) -> u64 {
        let size = match *self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform(low, high) => low + random.below(high - low + 1),
            Self::LogNormal(median, deviation) => {
                // Box and Muller: two even draws make a normal one.
                let (a, b) = (1.0 - random.share(), random.share());
                let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
                (median as f64 * (deviation * normal.clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX)).exp()) as u64
            }
        };
        size.clamp(1, SAMPLE_BYTES_MAX)
    }

    /// What a sample has on average, in bytes.
    fn mean(&self) -> f64 {
        match *self {
            Self::Fixed(bytes) => bytes as f64,
            Self::Uniform(low, high) => (low as f64 + high as f64) / 2.0,
            Self::LogNormal(median, deviation) => median as f64 * (deviation * deviation / 2.0).exp(),
        }
    }

    fn check(self) -> Result<Self> {
        let fits = |bytes: u64| (1..=SAMPLE_BYTES_MAX).contains(&bytes);
        let is_legal = match self {
            Self::Fixed(bytes) => fits(bytes),
            Self::Uniform(low, high) => fits(low) && fits(high) && low <= high,
            Self::LogNormal(median, deviation) => fits(median) && (0.0..=2.0).contains(&deviation),
        };
        match is_legal {
            true => Ok(self),
            false => {
                let message = format!("{self:?} is no distribution of sizes from 1 to {SAMPLE_BYTES_MAX} bytes");
                Err(Error::new(ErrorKind::InvalidOption, message).with_hint(SIZES_HINT))
            }
        }
    }
}

const SIZES_HINT: &str =
    "give a size (115kB), a range (50kB-200kB), or a median and a deviation of its logarithm (100kB~0.5)";

impl FromStr for Sizes {
    type Err = Error;

    /// `115kB`, `50kB-200kB`, `100kB~0.5`.
    fn from_str(text: &str) -> Result<Self> {
        if let Some((median, deviation)) = text.split_once('~') {
            let wrong = || Error::new(ErrorKind::InvalidOption, format!("'{deviation}' is no number"));
            let deviation = deviation.parse().map_err(|_| wrong().with_hint(SIZES_HINT))?;
            return Self::LogNormal(parse_bytes(median)?, deviation).check();
        }
        match text.split_once('-') {
            Some((low, high)) => Self::Uniform(parse_bytes(low)?, parse_bytes(high)?).check(),
            None => Self::Fixed(parse_bytes(text)?).check(),
        }
    }
}

/// A number of bytes: `4096`, `64KiB`, `20GB`. Units of 1,000 (`kB`, `MB`, `GB`, `TB`) and of 1,024 (`KiB` and so on, and
/// `K`, `M`, `G` as fio has them); capitals do not matter.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] for what is no such number, and for numbers beyond a u64.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let wrong = || {
        Error::new(ErrorKind::InvalidOption, format!("'{text}' is no number of bytes"))
            .with_hint("write 4096, 64KiB, 115kB, 20GB")
    };
    let text = text.trim();
    let end = text.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| wrong())?;
    let factor: f64 = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let bytes = number * factor;
    (bytes.is_finite() && bytes < 1.8e19).then_some(bytes.round() as u64).ok_or_else(wrong)
}

/// Shards that were made for a measurement, in a folder of their own that goes when this is dropped.
#[derive(Debug)]
pub struct MadeShards {
    folder: PathBuf,
    paths: Vec<PathBuf>,
}

impl MadeShards {
    /// Makes `bytes` of samples below `parent`, about `shard_bytes` in each shard; `progress` is told how many bytes are
    /// made. The same arguments make the same bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] where there is no room for them; [`ErrorKind::Cancelled`] when `stop` is set meanwhile;
    /// [`ErrorKind::InvalidOption`] for sizes out of range; those of writing. Nothing is left behind then.
    pub fn make(
        parent: &Path,
        bytes: u64,
        shard_bytes: u64,
        sizes: Sizes,
        stop: &AtomicBool,
        progress: &dyn Fn(u64),
    ) -> Result<Self> {
        let sizes = sizes.check()?;
        check_room(parent, bytes, sizes)?;
        let folder = parent.join(format!("brimful-storage-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| {
            let is_left = error.kind() == std::io::ErrorKind::AlreadyExists;
            let error = Error::io(format!("cannot make the folder '{}'", folder.display()), error);
            if is_left { error.with_hint("a run that was killed left it: remove it") } else { error }
        })?;
        // From here on the folder goes with `made`, whatever happens.
        let mut made = Self { folder, paths: Vec::new() };
        let pattern = made.folder.join("made-%06d.tar");
        let pattern = pattern.to_str().ok_or_else(|| {
            let message = format!("the name of the folder '{}' is not UTF-8", made.folder.display());
            Error::new(ErrorKind::InvalidOption, message)
        })?;
        let options = WriterOptions { bytes_max: Some(shard_bytes), headers: Headers::Pax, ..WriterOptions::default() };
        let mut writer = ShardWriter::new(pattern, options)?;
        let mut random = Random::new(bytes);
        let (mut written, mut number) = (0, 0_u64);
        let mut sample = Vec::new();
        while written < bytes {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Cancelled, "making test shards was interrupted"));
            }
            let size = sizes.draw(&mut random).min(bytes - written);
            fill(&mut sample, size as usize, &mut random);
            writer.write_sample(&format!("{number:08}"), &[("bin", sample.as_slice())])?;
            written += size;
            number += 1;
            progress(written);
        }
        made.paths = writer.finish()?;
        Ok(made)
    }

    /// The shards, in order.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for MadeShards {
    fn drop(&mut self) {
        // Only what lies in the folder that was made here; what cannot be removed tells by its name what it is.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Refuses what would fill the disk.
fn check_room(parent: &Path, bytes: u64, sizes: Sizes) -> Result<()> {
    let shown = parent.display();
    let stat = rustix::fs::statvfs(parent)
        .map_err(|error| Error::io(format!("cannot ask for the free space of '{shown}'"), error.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let wanted = bytes as f64 * (1.0 + AROUND_BYTES / sizes.mean().max(1.0)) * (1.0 + KEPT_FREE);
    if wanted > free as f64 {
        let message = format!("{bytes} bytes of test samples do not fit into '{shown}', which has {free} bytes free");
        return Err(Error::new(ErrorKind::Limit, message).with_hint("ask for less with --make, or name another folder"));
    }
    Ok(())
}

/// Makes `memory` `len` random bytes.
fn fill(memory: &mut Vec<u8>, len: usize, random: &mut Random) {
    memory.clear();
    memory.reserve(len + 8);
    while memory.len() < len {
        memory.extend_from_slice(&random.next().to_le_bytes());
    }
    memory.truncate(len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{Shard, ShardIndex, ShardOptions};
    use proptest::prelude::*;

    #[test]
    fn bytes_are_read_as_people_write_them() {
        let check = |text: &str, bytes| assert_eq!(parse_bytes(text).ok(), bytes, "{text}");
        check("4096", Some(4096));
        check("64KiB", Some(65536));
        check("64k", Some(65536));
        check("115 kB", Some(115_000));
        check("1.5GB", Some(1_500_000_000));
        check("20gb", Some(20_000_000_000));
        for text in ["", "x", "-1", "1x", "1e9", "99999999TB", "1.2.3"] {
            check(text, None);
        }
    }

    #[test]
    fn sizes_are_read_and_checked() {
        let check = |text: &str, sizes: Option<Sizes>| assert_eq!(text.parse::<Sizes>().ok(), sizes, "{text}");
        check("115kB", Some(Sizes::Fixed(115_000)));
        check("50kB-200kB", Some(Sizes::Uniform(50_000, 200_000)));
        check("100kB~0.5", Some(Sizes::LogNormal(100_000, 0.5)));
        for text in ["0", "2kB-1kB", "1kB~-1", "1kB~x", "1kB~9", "2GB", "~", "1kB-"] {
            check(text, None);
        }
    }

    #[test]
    fn made_shards_are_whole_and_go_with_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let made =
            MadeShards::make(folder.path(), 300_000, 100_000, Sizes::Uniform(1000, 20_000), &stop, &|_| {}).unwrap();
        assert!(made.paths().len() >= 3);
        let (mut bytes, mut samples, mut on_disk) = (0, 0, 0);
        for path in made.paths() {
            on_disk += fs::metadata(path).unwrap().len();
            let shard = Shard::open(path, &ShardOptions::default()).unwrap();
            let index = ShardIndex::build(&shard).unwrap();
            bytes += index.iter().map(|member| member.size).sum::<u64>();
            samples += index.iter().count();
        }
        assert_eq!(bytes, 300_000);
        let ends = 20_480 * made.paths().len() as u64;
        assert!(on_disk <= bytes + samples as u64 * AROUND_BYTES as u64 + ends, "{on_disk} bytes of {samples} samples");
        drop(made);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_has_no_room_or_is_interrupted_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let make = |bytes, sizes| MadeShards::make(folder.path(), bytes, 1 << 20, sizes, &stop, &|_| {});
        let error = make(1 << 62, Sizes::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.message().contains("bytes free"), "{error}");
        assert_eq!(make(1000, Sizes::Fixed(0)).unwrap_err().kind(), ErrorKind::InvalidOption);
        stop.store(true, Ordering::Relaxed);
        let interrupted = MadeShards::make(folder.path(), 1000, 1 << 20, Sizes::default(), &stop, &|_| {});
        assert_eq!(interrupted.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = MadeShards::make(&folder.path().join("no"), 1000, 1 << 20, Sizes::default(), &stop, &|_| {});
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn random_bytes_do_not_compress() {
        let mut bytes = Vec::new();
        fill(&mut bytes, 100_000, &mut Random::new(7));
        assert!(zstd::encode_all(bytes.as_slice(), 3).unwrap().len() > 99_000);
    }

    proptest! {
        #[test]
        fn drawn_sizes_keep_to_their_distribution(seed in any::<u64>(), low in 1_u64..1000, more in 0_u64..1000) {
            let mut random = Random::new(seed);
            for _ in 0..50 {
                let size = Sizes::Uniform(low, low + more).draw(&mut random);
                prop_assert!((low..=low + more).contains(&size));
            }
            let mut drawn: Vec<u64> =
                (0..999).map(|_| Sizes::LogNormal(100_000, 0.5).draw(&mut random)).collect();
            drawn.sort_unstable();
            prop_assert!((85_000..117_000).contains(&drawn[499]), "{}", drawn[499]);
        }
    }
}
