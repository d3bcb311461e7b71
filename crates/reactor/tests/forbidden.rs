//! In an environment that forbids io_uring, as many containers do, the probe reports this, and the
//! other form works.
#![allow(unsafe_code)]

use base::Reactor;
use reactor::{Config, Form, World};

/// Forbids `io_uring_setup` to this thread, like container runtimes: by a seccomp filter that
/// returns `EPERM`.
fn forbid() {
    let load_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let setup = u32::try_from(libc::SYS_io_uring_setup).expect("a small number");
    let is_setup = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: setup };
    let refuse = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x0005_0000 | 1 };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 };
    let mut filter = [load_number, is_setup, refuse, allow];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live across the calls; both concern this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn a_container_that_forbids_io_uring_is_reported_and_threads_work() {
    let test = std::thread::Builder::new().spawn(|| {
        assert_eq!(reactor::probe(), Ok(()));
        forbid();
        let reason = reactor::probe().unwrap_err();
        assert!(reason.contains("not permitted"), "{reason}");
        assert!(World::new(Form::Uring, &Config::default()).is_err());
        let mut world = World::new(Form::Threads, &Config::default()).unwrap();
        let (deadline, mut events) = (world.now(), Vec::new());
        world.wait(Some(deadline), &mut events);
        assert!(events.is_empty());
    });
    test.unwrap().join().unwrap();
}
