//! The machine that runs the commands: its description, its processors and limits.

use crate::sh;

/// Returns the date, the commit and the machine.
pub fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let commit = sh::read(&mut sh::cmd("git", &["rev-parse", "--short", "HEAD"]));
    let date = sh::read(&mut sh::cmd("date", &["-u", "+%F"])).unwrap_or_default();
    format!(
        "{}, commit {}; {} × {}, Linux {}",
        date.trim(),
        commit.unwrap_or_default().trim(),
        cores(),
        model.trim_start_matches(['\t', ' ', ':']),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// Returns processor `wanted`, if there are at least two.
pub fn core(wanted: usize) -> Option<usize> {
    let count = cores();
    (count > wanted && count > 1).then_some(wanted)
}

/// Returns the number of processors of the machine, regardless of this process's affinity.
pub fn cores() -> usize {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count().max(1)
}

/// Returns the largest limit of open files that this process, and those it starts, may have.
pub fn files_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.maximum.unwrap_or(u64::MAX)
}

/// Raises the limit of open files to its maximum; servers and wrk inherit it.
pub fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Pins this process, which is the client, to one processor.
pub fn pin(core: Option<usize>) {
    if let Some(core) = core {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
