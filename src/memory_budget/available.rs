//! The memory that the process may use: the lowest limit of its control groups, or all memory of the machine.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// The memory that the process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailableMemory {
    pub bytes: u64,
    /// The file with the control group's limit. `None`: all memory of the machine.
    pub limited_by: Option<PathBuf>,
}

impl fmt::Display for AvailableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limited_by {
            Some(file) => write!(f, "{}", file.display()),
            None => write!(f, "the machine"),
        }
    }
}

/// The memory that the process may use now. `None`: the system does not tell.
pub fn available() -> Option<AvailableMemory> {
    read(&|path| fs::read_to_string(path).ok())
}

/// The same, with `file` as the reader of files.
fn read(file: &dyn Fn(&Path) -> Option<String>) -> Option<AvailableMemory> {
    let machine = file(Path::new("/proc/meminfo")).and_then(|text| total(&text));
    let machine = machine.map(|bytes| AvailableMemory { bytes, limited_by: None });
    let mounts = file(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let groups = file(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = mounts.lines().filter_map(Mount::parse).flat_map(|mount| mount.limits(&groups, file));
    // `min_by_key` prefers the first, the machine: a group without a limit has a larger number.
    machine.into_iter().chain(limits).min_by_key(|available| available.bytes)
}

/// `MemTotal` of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// A hierarchy of control groups that may limit memory.
struct Mount<'a> {
    version: CgroupVersion,
    /// The group whose directory is `point`.
    root: &'a str,
    /// The mount point.
    point: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

impl CgroupVersion {
    /// Files of a group that contain a limit in bytes. Above `memory.high`, a group is throttled heavily.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::V1 => &["memory.limit_in_bytes"],
            Self::V2 => &["memory.max", "memory.high"],
        }
    }
}

impl<'a> Mount<'a> {
    /// Parses a line of `/proc/self/mountinfo` (proc(5)). `None`: not a hierarchy that may limit memory.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut filesystem = filesystem.split(' ');
        let version = match (filesystem.next()?, filesystem.nth(1)?) {
            ("cgroup2", _) => CgroupVersion::V2,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => CgroupVersion::V1,
            _ => return None,
        };
        Some(Self { version, root, point })
    }

    /// The limits of the process' own group and of its visible ancestors.
    fn limits(&self, groups: &str, file: &dyn Fn(&Path) -> Option<String>) -> Vec<AvailableMemory> {
        let Some(directory) = self.directory(groups) else { return Vec::new() };
        let up = directory.ancestors().take_while(|directory| directory.starts_with(self.point));
        let limits = up.flat_map(|directory| self.version.files().iter().map(|name| directory.join(name)));
        let limits = limits.filter_map(|path| {
            // `max` means no limit.
            let bytes = file(&path)?.trim().parse().ok()?;
            Some(AvailableMemory { bytes, limited_by: Some(path) })
        });
        limits.collect()
    }

    /// The directory of the process' own group, according to `/proc/self/cgroup` (cgroups(7)).
    fn directory(&self, groups: &str) -> Option<PathBuf> {
        let group = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_own = match self.version {
                CgroupVersion::V1 => controllers.split(',').any(|controller| controller == "memory"),
                CgroupVersion::V2 => number == "0" && controllers.is_empty(),
            };
            is_own.then_some(path)
        })?;
        // Only directories below the mounted group are visible. A path with `..` leads to a group outside it.
        let below = Path::new(group).strip_prefix(self.root).ok();
        let below = below.filter(|below| below.components().all(|part| part.as_os_str() != ".."));
        Some(Path::new(self.point).join(below.unwrap_or(Path::new(""))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\n");
    const V1_MOUNT: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const NO_LIMIT: &str = "9223372036854771712\n";

    #[track_caller]
    fn assert_available(files: &[(&str, &str)], bytes: u64, limited_by: Option<&str>) {
        let file = |path: &Path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(read(&file), Some(AvailableMemory { bytes, limited_by: limited_by.map(PathBuf::from) }));
    }

    #[test]
    fn without_a_control_group_it_is_what_the_machine_has() {
        assert_available(&[MACHINE], 16_000_000 << 10, None);
        assert_eq!(read(&|_| None), None);
    }

    #[test]
    fn in_a_container_it_is_what_its_group_allows() {
        // In its own namespace, the container's group is the root.
        let files = [
            MACHINE,
            ("/proc/self/cgroup", "0::/\n"),
            ("/proc/self/mountinfo", V2_MOUNT),
            ("/sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_available(&files, 512 << 20, Some("/sys/fs/cgroup/memory.max"));
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_holds() {
        let own = "/sys/fs/cgroup/system.slice/tollgate.service";
        let files = [
            MACHINE,
            ("/proc/self/cgroup", "0::/system.slice/tollgate.service\n"),
            ("/proc/self/mountinfo", V2_MOUNT),
            (&format!("{own}/memory.max"), "max\n"),
            (&format!("{own}/memory.high"), "800000000\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "700000000\n"),
        ];
        assert_available(&files, 700_000_000, Some("/sys/fs/cgroup/system.slice/memory.max"));
        assert_available(&files[..5], 800_000_000, Some(&format!("{own}/memory.high")));
    }

    #[test]
    fn version_1_of_control_groups_is_read_too() {
        let files = [
            MACHINE,
            ("/proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/docker/abc\n0::/\n"),
            ("/proc/self/mountinfo", V1_MOUNT),
            ("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "268435456\n"),
            ("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", NO_LIMIT),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT),
        ];
        let limited_by = "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes";
        assert_available(&files, 256 << 20, Some(limited_by));
        assert_available(&files[..3], 16_000_000 << 10, None);
    }

    #[test]
    fn a_group_that_is_mounted_as_the_root_is_found() {
        // Docker without a cgroup namespace: the container's group is the mount point.
        let mount = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let files = [
            MACHINE,
            ("/proc/self/cgroup", "4:memory:/docker/abc\n"),
            ("/proc/self/mountinfo", mount),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
        ];
        assert_available(&files, 256 << 20, Some("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    }

    #[test]
    fn a_group_that_cannot_be_seen_leaves_the_one_at_the_mount_point() {
        let files = [
            MACHINE,
            ("/proc/self/cgroup", "0::/../other\n"),
            ("/proc/self/mountinfo", V2_MOUNT),
            ("/sys/fs/cgroup/memory.max", "1000000\n"),
        ];
        assert_available(&files, 1_000_000, Some("/sys/fs/cgroup/memory.max"));
    }
}
