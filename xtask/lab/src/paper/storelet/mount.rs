//! Mounts by FUSE clients: rclone of Debian, over HTTP, mount9p of the Go module go9p, over 9P2000,
//! and ours, `upcall mount`. The kernel of this machine need not support 9P or NFS.

use crate::peer_mount::PeerMount;
use anyhow::{Context as _, Result};
use rig::server::binary;
use std::path::Path;
use std::process::Command;

/// FUSE client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Fetches a page for each directory and the head of each file.
    Rclone,
    /// Reads directories over 9P2000. It returns wrong data for files larger than a message, so it
    /// is used by `find` only.
    Mount9p,
    /// Ours, over 9P2000.L.
    Upcall,
}

impl Client {
    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Rclone => "rclone, HTTP",
            Client::Mount9p => "mount9p, 9P2000",
            Client::Upcall => "upcall mount, 9P2000.L",
        }
    }
}

/// Mounts the server at a port, without caches of an earlier mount.
pub(super) fn mount(client: Client, port: u16, place: &Path) -> Result<PeerMount> {
    std::fs::create_dir_all(place)?;
    let command = match client {
        Client::Rclone => {
            let mut rclone = Command::new("rclone");
            rclone.args(["mount", "--read-only", "--config", "/dev/null", "--http-url"]);
            rclone.arg(format!("http://127.0.0.1:{port}")).arg(":http:").arg(place);
            rclone
        }
        Client::Mount9p => {
            let mut mount9p = Command::new(rig::go::program("mount9p", rig::go::GO9P)?);
            mount9p.arg(format!("127.0.0.1:{port}")).arg(place);
            mount9p
        }
        Client::Upcall => {
            let mut upcall = Command::new(binary());
            upcall.args(["mount", "-o", "ro"]).arg(format!("127.0.0.1:{port}")).arg(place);
            upcall
        }
    };
    PeerMount::start(command, place).with_context(|| format!("mount with {}", client.name()))
}
