//! Mounts by programs of others, which run in the foreground until they are unmounted.

use anyhow::{Context, Result, ensure};
use rig::sh;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a program counts as one that does not mount.
const MOUNT_MAX: Duration = Duration::from_secs(120);

/// Time after which a program that is unmounted is killed.
const END_MAX: Duration = Duration::from_secs(10);

/// A mount. Dropping it unmounts, also if it is in use, and waits for the end of the program.
pub(crate) struct PeerMount {
    place: PathBuf,
    child: Child,
}

impl PeerMount {
    /// Starts a program that mounts on a directory; returns when it has.
    pub(crate) fn start(mut command: Command, place: &Path) -> Result<PeerMount> {
        let log = sh::scratch("logs")?.join("peer-mount.log");
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {command:?}"))?;
        let mount = PeerMount { place: place.to_owned(), child };
        let printed = || std::fs::read_to_string(&log).unwrap_or_default();
        mount
            .wait()
            .with_context(|| format!("it does not mount: {}", sh::tail(&printed(), 400)))?;
        Ok(mount)
    }

    /// Waits for the mount. The kernel reports changes of the mount table as exceptions.
    fn wait(&self) -> Result<()> {
        let mounts = File::open("/proc/self/mounts")?;
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let begin = Instant::now();
        while !self.is_there() {
            let left = MOUNT_MAX.saturating_sub(begin.elapsed()).try_into()?;
            let mut events =
                [PollFd::new(&mounts, PollFlags::PRI), PollFd::new(&end, PollFlags::IN)];
            ensure!(poll(&mut events, Some(&left))? > 0, "nothing for {MOUNT_MAX:?}");
            ensure!(events[1].revents().is_empty(), "it has ended");
        }
        Ok(())
    }

    fn is_there(&self) -> bool {
        let place = format!(" {} ", self.place.display());
        std::fs::read_to_string("/proc/self/mounts").is_ok_and(|mounts| mounts.contains(&place))
    }
}

impl Drop for PeerMount {
    fn drop(&mut self) {
        let unmounted = sh::read(sh::cmd("fusermount3", &["-u", "-z", "-q"]).arg(&self.place));
        if unmounted.is_ok()
            && let Ok(end) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())
        {
            let limit = END_MAX.try_into().expect("it is short");
            // What has not ended then is killed.
            let _ = poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
