//! Which file system a path lies on, and whether its bytes may come over a network.
//!
//! It looks at the type that the kernel reports, measures nothing, and reads no mount table.

use std::borrow::Cow;
use std::io;
use std::path::Path;

/// The file system that a path lies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filesystem {
    /// Its name as `mount` spells it; an unknown type as its number in hexadecimal.
    pub name: Cow<'static, str>,
    /// Whether pages may come over a network or from another process, so that a map can fail in mid-read. A type
    /// that this table does not know counts as one.
    pub is_network: bool,
}

/// The file system that `path`, which must exist, lies on.
///
/// # Errors
/// Those of `statfs(2)`.
#[cfg(target_os = "linux")]
pub fn filesystem_of(path: &Path) -> io::Result<Filesystem> {
    let stat = rustix::fs::statfs(path)?;
    // The kernel's numbers are 32 bits wide, and some platforms extend their sign.
    Ok(Filesystem::from_magic(stat.f_type as u32))
}

/// The file system that `path`, which must exist, lies on: not told apart on this system.
///
/// # Errors
/// Never.
#[cfg(not(target_os = "linux"))]
pub fn filesystem_of(_path: &Path) -> io::Result<Filesystem> {
    Ok(Filesystem { name: "unknown".into(), is_network: true })
}

#[cfg(target_os = "linux")]
impl Filesystem {
    fn from_magic(magic: u32) -> Self {
        let known = |table: &'static [(u32, &'static str)]| {
            table.iter().find(|(number, _)| *number == magic).map(|(_, name)| Cow::Borrowed(*name))
        };
        if let Some(name) = known(LOCAL) {
            return Self { name, is_network: false };
        }
        Self { name: known(NETWORK).unwrap_or_else(|| format!("{magic:#010x}").into()), is_network: true }
    }
}

/// Types whose pages come from a disk or memory of this machine.
#[cfg(target_os = "linux")]
const LOCAL: &[(u32, &str)] = &[
    (0x0000_EF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x794C_7630, "overlay"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x7371_7368, "squashfs"),
    (0xE0F5_E1E2, "erofs"),
    (0x0000_9660, "iso9660"),
    (0x1501_3346, "udf"),
    (0x0000_4D44, "vfat"),
    (0x2011_BAB0, "exfat"),
    (0x7366_746E, "ntfs3"),
    (0x3153_464A, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x3434_7342, "nilfs2"),
];

/// Types served over a network, by a cluster, or by a process of user space.
#[cfg(target_os = "linux")]
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "nfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x0000_517B, "smb"),
    (0x6573_5546, "fuse"),
    (0x0102_1997, "9p"),
    (0x0BD0_0BD0, "lustre"),
    (0x00C3_6400, "ceph"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0xAAD7_AAEA, "panfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "kafs"),
    (0x7375_7245, "coda"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
    (0x7C7C_6673, "prl_fs"),
];

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_local_network_or_unknown_and_then_counts_as_network() {
        let check = |magic, name: &str, is_network| {
            assert_eq!(Filesystem::from_magic(magic), Filesystem { name: name.to_owned().into(), is_network });
        };
        check(0xEF53, "ext4", false);
        check(0x0102_1994, "tmpfs", false);
        check(0x6969, "nfs", true);
        check(0xFF53_4D42, "cifs", true);
        check(0x6573_5546, "fuse", true);
        check(0x0BD0_0BD0, "lustre", true);
        check(0x0000_00AB, "0x000000ab", true);
    }

    #[test]
    fn no_type_stands_in_both_tables_or_twice() {
        let mut numbers: Vec<u32> = LOCAL.iter().chain(NETWORK).map(|(number, _)| *number).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }

    #[test]
    fn a_missing_path_is_an_error() {
        assert!(filesystem_of(Path::new("/no/such/path")).is_err());
        assert!(!filesystem_of(Path::new("/")).unwrap().name.is_empty());
    }
}
