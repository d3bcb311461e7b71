//! Mounts by third-party FUSE clients: rclone of Debian, over HTTP, and mount9p of the Go module
//! go9p, over 9P2000. The kernel of this machine need not support 9P or NFS.

use crate::conformance::mount9p;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// FUSE client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Fetches a page for each directory and the head of each file.
    Rclone,
    /// Reads directories over 9P2000. It returns wrong data for files larger than a message, so it
    /// is used by `find` only.
    Mount9p,
}

impl Client {
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Rclone => "rclone, HTTP",
            Client::Mount9p => "mount9p, 9P2000",
        }
    }
}

/// A mount, unmounted on drop.
pub(super) struct Mount {
    place: PathBuf,
    child: Child,
}

impl Mount {
    /// Mounts the server at a port, without caches of an earlier mount.
    pub(super) fn of(client: Client, port: u16, place: &Path) -> Result<Mount> {
        std::fs::create_dir_all(place)?;
        let mut command = match client {
            Client::Rclone => {
                let mut rclone = Command::new("rclone");
                rclone.args(["mount", "--read-only", "--config", "/dev/null", "--http-url"]);
                rclone.arg(format!("http://127.0.0.1:{port}")).arg(":http:").arg(place);
                rclone
            }
            Client::Mount9p => {
                let mut mount9p = Command::new(mount9p()?);
                mount9p.arg(format!("127.0.0.1:{port}")).arg(place);
                mount9p
            }
        };
        let log = sh::scratch("logs")?.join("mount.log");
        let file = std::fs::File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("start {}", client.name()))?;
        let mut mount = Mount { place: place.to_owned(), child };
        let begun = Instant::now();
        while !mount.is_there() {
            if mount.child.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(10) {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                bail!("{} does not mount: {}", client.name(), sh::tail(&said, 400));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(mount)
    }

    fn is_there(&self) -> bool {
        let place = format!(" {} ", self.place.display());
        std::fs::read_to_string("/proc/mounts").is_ok_and(|mounts| mounts.contains(&place))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let begun = Instant::now();
        while self.is_there() && begun.elapsed() < Duration::from_secs(10) {
            // A killed process may still have files open in it.
            let _ = sh::read(sh::cmd("fusermount3", &["-u", "-q"]).arg(&self.place));
            std::thread::sleep(Duration::from_millis(10));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
