//! System calls allowed to the compiling child: to allocate memory, to read and write open files,
//! to read the clock, to exit. All others fail with `EPERM`.

use libc::{PROT_EXEC, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// Calls allowed with any arguments.
const CALLS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls allowed for non-executable memory, according to the third argument.
const MEMORY: &[c_long] = &[libc::SYS_mmap, libc::SYS_mprotect];

/// Forbids all calls outside of the lists to this thread, and to those that it starts.
pub(super) fn apply() -> Result<(), String> {
    let explain = |error: seccompiler::Error| format!("no filter of system calls: {error}");
    seccompiler::apply_filter(&program().map_err(explain)?).map_err(explain)
}

fn program() -> Result<BpfProgram, seccompiler::Error> {
    let no_code = || {
        let mask = SeccompCmpOp::MaskedEq(PROT_EXEC as u64);
        condition(2, mask, 0)
    };
    let to_itself = || condition(0, SeccompCmpOp::Eq, u64::from(std::process::id()));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    rules.extend(CALLS.iter().map(|call| (*call, Vec::new())));
    for call in MEMORY {
        rules.insert(*call, vec![no_code()?]);
    }
    // For a panic that aborts.
    rules.insert(libc::SYS_tgkill, vec![to_itself()?]);
    let otherwise = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch)?.try_into()?)
}

fn condition(
    argument: u8,
    how: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::Error> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, test_kill_process};
    use std::io::ErrorKind::PermissionDenied;

    /// The filter applies to the calling thread.
    #[test]
    fn the_seccomp_filter_refuses_other_system_calls() {
        let inside = std::thread::Builder::new().spawn(|| {
            super::apply().expect("a filter");
            let large = vec![1_u8; 32 << 20];
            let kinds = [
                std::fs::File::open("/").err(),
                std::net::UdpSocket::bind("127.0.0.1:0").err(),
                std::process::Command::new("/bin/true").spawn().err(),
                std::os::unix::net::UnixStream::pair().err(),
                test_kill_process(Pid::INIT).err().map(Into::into),
            ];
            (kinds.map(|error| error.map(|error| error.kind())), large.len())
        });
        let (kinds, _) = inside.expect("a thread").join().expect("it ends");
        assert_eq!(kinds, [Some(PermissionDenied); 5]);
    }
}
