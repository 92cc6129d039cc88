//! What this process used so far: processor time and resident memory, as the kernel counts them. Where the kernel does not
//! tell there is no number.

use std::time::Duration;

use serde::Serialize;

use super::system::System;

/// Memory in use, file pages apart: pages of mapped shards are no memory that the process asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct ResidentMemory {
    pub(super) anonymous_bytes: u64,
    pub(super) file_bytes: u64,
}

/// Memory of this process now.
pub(super) fn resident_memory() -> Option<ResidentMemory> {
    resident_memory_of(&System::here())
}

fn resident_memory_of(system: &System) -> Option<ResidentMemory> {
    Some(ResidentMemory {
        anonymous_bytes: system.kilobytes("proc/self/status", "RssAnon")?,
        file_bytes: system.kilobytes("proc/self/status", "RssFile")?,
    })
}

/// Processor time of this process so far, all threads together, in user and kernel mode.
pub(super) fn cpu_time() -> Option<Duration> {
    let stat = System::here().text("proc/self/stat")?;
    let ticks = ticks(&stat)?;
    Some(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// The sum of fields 14 and 15. The second field is the program's name in brackets, which may hold blanks and brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::system::fake;

    #[test]
    fn the_programs_name_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 100 200";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(ticks("7 (a) R 1"), None);
    }

    #[test]
    fn file_pages_are_told_apart() {
        let (_folder, system) =
            fake::machine(&[("proc/self/status", "VmRSS:\t 30 kB\nRssAnon:\t 10 kB\nRssFile:\t 20 kB\n")]);
        let memory = resident_memory_of(&system).unwrap();
        assert_eq!((memory.anonymous_bytes, memory.file_bytes), (10 << 10, 20 << 10));
    }
}
