//! What the kernel counts while a run lasts: processor time, faults that waited for storage, and bytes that storage really
//! delivered. Where the kernel does not tell there is no number.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Bytes of a sector in `/proc/diskstats`, whatever the device's own are.
const SECTOR_BYTES: u64 = 512;

/// Counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counters {
    /// Processor time of this process, all threads, in user and kernel mode.
    pub(super) cpu: Duration,
    /// Page faults that had to wait for storage.
    pub(super) major_faults: Option<u64>,
    /// Bytes that this process made storage deliver.
    pub(super) process_bytes: Option<u64>,
    /// Bytes that the device delivered, to anyone.
    pub(super) device_bytes: Option<u64>,
}

/// The device below a path, as `/proc/diskstats` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl DeviceNumber {
    /// The device of the file at `path`; `None` where it has none of its own (network, overlay, several devices).
    pub(super) fn of(path: &Path) -> Option<Self> {
        let device = fs::metadata(path).ok()?.dev();
        let number = Self { major: rustix::fs::major(device), minor: rustix::fs::minor(device) };
        number.read_bytes(&fs::read_to_string("/proc/diskstats").ok()?).map(|_| number)
    }

    /// The sixth field of the device's line is the number of sectors read.
    fn read_bytes(self, diskstats: &str) -> Option<u64> {
        diskstats.lines().find_map(|line| {
            let mut fields = line.split_whitespace();
            let mut number = || fields.next()?.parse::<u32>().ok();
            if (number()?, number()?) != (self.major, self.minor) {
                return None;
            }
            fields.nth(3)?.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
        })
    }
}

impl Counters {
    pub(super) fn now(device: Option<DeviceNumber>) -> Self {
        let device_bytes = device.and_then(|device| device.read_bytes(&fs::read_to_string("/proc/diskstats").ok()?));
        Self {
            cpu: cpu_time(),
            major_faults: fs::read_to_string("/proc/self/stat").ok().and_then(|stat| major_faults(&stat)),
            process_bytes: fs::read_to_string("/proc/self/io").ok().and_then(|io| read_bytes(&io)),
            device_bytes,
        }
    }

    /// What was counted since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let difference = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            major_faults: difference(self.major_faults, before.major_faults),
            process_bytes: difference(self.process_bytes, before.process_bytes),
            device_bytes: difference(self.device_bytes, before.device_bytes),
        }
    }
}

/// What of the kernel's count of bytes is known to be what storage delivered. It counts what block devices deliver to a
/// process; of a network, or of another process, it counts all or nothing.
pub(super) fn delivered(process_bytes: Option<u64>, is_network: bool) -> Option<u64> {
    process_bytes.filter(|bytes| *bytes > 0 || !is_network)
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Field 12 of `/proc/self/stat`. The second field is the program's name in brackets, which may hold blanks and brackets.
fn major_faults(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(9)?.parse().ok()
}

fn read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        let stat = "7 (a) b (c) R 1 2 3 4 5 6 7 8 42 10 250 50 0 0 20 0 3 0 100 200";
        assert_eq!((major_faults(stat), major_faults("7 (a")), (Some(42), None));
        assert_eq!(read_bytes("rchar: 5\nread_bytes: 4096\nwrite_bytes: 1\n"), Some(4096));
        let disks = " 254 0 vda 10 2 800 5 1 1 1 1 0 1 1\n 254 1 vda1 9 1 16 5 1 1 1 1 0 1 1\n";
        let device = |major, minor| DeviceNumber { major, minor }.read_bytes(disks);
        assert_eq!((device(254, 0), device(254, 1), device(8, 0)), (Some(800 * 512), Some(16 * 512), None));
    }

    #[test]
    fn a_network_that_is_not_counted_delivers_an_unknown_number_of_bytes() {
        let all = [(Some(0), true), (Some(7), true), (Some(0), false), (None, false)];
        assert_eq!(all.map(|(bytes, is_network)| delivered(bytes, is_network)), [None, Some(7), Some(0), None]);
    }

    #[test]
    fn time_goes_on() {
        let before = Counters::now(None);
        let mut sum = 0_u64;
        while Counters::now(None).since(&before).cpu.is_zero() {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(sum < u64::MAX);
    }
}
