//! Servers of the NFS benchmark, each with files of its own.
//!
//! nfs-ganesha starts only beside a portmapper, so everything runs in a network namespace with a
//! portmapper of its own.

use super::client::{Client, Handle};
use anyhow::{Context, Result};
use rig::machine::core;
use rig::server::{Kind, Server, free_port};
use rig::{sh, volume};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the large file, and number and size of the small ones.
pub(super) const FILE_BYTES: u64 = 64 << 20;
pub(super) const SMALL_FILES: u64 = 1000;
pub(super) const SMALL: u32 = 1024;

/// Port of the portmapper.
const PORTMAPPER: u16 = 111;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Ours, on a directory.
    Directory,
    /// Ours, on a directory, with replies before changes are durable.
    Async,
    /// Ours, on a volume.
    Volume,
    /// nfs-ganesha with its VFS back end.
    Ganesha,
    /// unfs3.
    Unfs3,
}

impl Peer {
    /// Returns the kinds that can run here, the first one ours.
    pub(super) fn all() -> Vec<Peer> {
        let mut all = vec![Peer::Directory, Peer::Async, Peer::Volume, Peer::Ganesha];
        // Debian 12 does not have it.
        all.extend(sh::found("unfsd").then_some(Peer::Unfs3));
        all
    }

    /// Returns the name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Directory => "upcall",
            Peer::Async => "upcall `--nfs-async`",
            Peer::Volume => "upcall, volume",
            Peer::Ganesha => "nfs-ganesha",
            Peer::Unfs3 => "unfs3",
        }
    }
}

/// A running server.
pub(super) struct Contestant {
    pub(super) peer: Peer,
    pub(super) server: Server,
    /// Port of the MOUNT protocol, and the directory to mount.
    mount: (u16, String),
}

impl Contestant {
    /// Creates the files of a server starts it on processor 0, and has it read the large
    /// one into its cache.
    pub(super) fn start(peer: Peer) -> Result<Contestant> {
        let dir = sh::empty(&format!("bench/nfs/{peer:?}"))?.join("served");
        fill(&dir)?;
        let (port, text) = (free_port()?, dir.display().to_string());
        let (server, mount) = match peer {
            Peer::Directory => (ours(&text, port, &[])?, (port, "/".into())),
            Peer::Async => (ours(&text, port, &["--nfs-async"])?, (port, "/".into())),
            Peer::Volume => {
                let file = dir.with_extension("volume");
                volume::create_whole(&file, "512M")?;
                volume::copy_in(&dir, &file)?;
                (ours(&file.display().to_string(), port, &[])?, (port, "/".into()))
            }
            Peer::Ganesha => {
                let mount = free_port()?;
                let command = ganesha(&dir, (port, mount))?;
                (Server::start_other("ganesha", command, port)?, (mount, text))
            }
            Peer::Unfs3 => {
                let command = unfs3(&dir, port)?;
                (Server::start_other("unfs3", command, port)?, (port, text))
            }
        };
        let contestant = Contestant { peer, server, mount };
        let (mut client, place) = contestant.connect()?;
        client.read_whole(&place.big, FILE_BYTES, place.read_max)?;
        Ok(contestant)
    }

    /// Returns a connection with the handles of the files.
    pub(super) fn connect(&self) -> Result<(Client, Handles)> {
        let root = Client::connect(self.mount.0)?.mount(&self.mount.1)?;
        let mut client = Client::connect(self.server.ninep)?;
        let big = client.lookup(&root, "big")?;
        let small = client.lookup(&root, "small")?;
        let read_max = client.read_max(&root)?;
        Ok((client, Handles { root, big, small, read_max, next: Cell::new(0) }))
    }
}

/// Handles of the files.
pub(super) struct Handles {
    pub(super) root: Handle,
    pub(super) big: Handle,
    /// Directory of small files.
    pub(super) small: Handle,
    /// Maximum size of a READ, bytes.
    pub(super) read_max: u32,
    /// Offset of the next sequential READ.
    pub(super) next: Cell<u64>,
}

/// Starts a portmapper, for nfs-ganesha.
pub(super) fn portmapper() -> Result<Server> {
    std::fs::create_dir_all("/run/rpcbind")?;
    let program = sh::which("rpcbind").context("no rpcbind")?;
    let mut command = Command::new(program);
    command.args(["-w", "-f"]);
    Server::start_other("rpcbind", command, PORTMAPPER)
}

fn fill(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("small"))?;
    let mut big = vec![0_u8; usize::try_from(FILE_BYTES)?];
    for (number, byte) in big.iter_mut().enumerate() {
        *byte = number.to_le_bytes()[1];
    }
    std::fs::write(dir.join("big"), &big)?;
    for number in 0..SMALL_FILES {
        std::fs::write(dir.join(format!("small/{number}")), [b's'; SMALL as usize])?;
    }
    Ok(())
}

fn ours(what: &str, port: u16, more: &[&str]) -> Result<Server> {
    let nfs = format!("127.0.0.1:{port}");
    let words = [what, "--9p", "none", "--nfs", &nfs, "--trust-clients", "--nfs-squash", "none"];
    let words: Vec<String> = words.iter().chain(more).map(ToString::to_string).collect();
    Server::start_words(Kind::Uring, &words, port, core(0))
}

fn ganesha(dir: &Path, (port, mount): (u16, u16)) -> Result<Command> {
    let base = sh::scratch("bench/ganesha")?;
    let text = format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {mount}; \
         Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; }}\n\
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /served; Access_Type = RW; \
         Squash = No_Root_Squash; Protocols = 3; Transports = TCP; SecType = sys; \
         FSAL {{ Name = VFS; }} }}\n",
        dir.display()
    );
    let conf = base.join("ganesha.conf");
    std::fs::write(&conf, text)?;
    let mut command = pinned("ganesha.nfsd")?;
    command.arg("-F").arg("-f").arg(conf).arg("-L").arg(base.join("log"));
    command.arg("-p").arg(base.join("pid"));
    Ok(command)
}

fn unfs3(dir: &Path, port: u16) -> Result<Command> {
    let exports = sh::scratch("bench/unfs3")?.join("exports");
    std::fs::write(&exports, format!("{} (rw,no_root_squash,insecure)\n", dir.display()))?;
    let mut command = pinned("unfsd")?;
    let port = port.to_string();
    // In the foreground, over TCP, without a portmapper.
    command.arg("-d").arg("-e").arg(exports).args(["-n", &port, "-m", &port, "-t", "-p"]);
    Ok(command)
}

/// Returns a command that runs on processor 0.
fn pinned(program: &str) -> Result<Command> {
    let path: PathBuf = sh::which(program).with_context(|| format!("no {program}"))?;
    let Some(core) = core(0) else { return Ok(Command::new(path)) };
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(path);
    Ok(command)
}
