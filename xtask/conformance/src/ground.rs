//! Storage served to a suite: a directory of this host, or a volume with the same contents.
//!
//! A suite fills the directory and then serves its ground. The server's changes are inspected on
//! the host, or, for a volume, over another front end while it is served; it is copied out at the
//! end.

use anyhow::{Context, Result};
use rig::files::Files;
use rig::server::{Kind, Server, free_port};
use rig::{sh, vm, volume};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Storage of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    /// A directory of the host.
    Directory,
    /// A volume.
    Volume,
}

impl On {
    /// Returns the name of a suite over this storage.
    pub(crate) fn suite(self, name: &str) -> String {
        match self {
            On::Directory => name.to_owned(),
            On::Volume => format!("volume-{name}"),
        }
    }
}

/// Protocol of a kernel's mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Through {
    /// 9P2000.L.
    NineP,
    /// NFSv3.
    Nfs,
}

impl Through {
    /// Returns the name of a suite through this protocol.
    pub(crate) fn suite(self, name: &str) -> String {
        match self {
            Through::NineP => name.to_owned(),
            Through::Nfs => format!("nfs-{name}"),
        }
    }

    /// Starts a server that trusts its clients; returns it with the beginning of a job that mounts
    /// it.
    pub(crate) fn serve(self, ground: &Ground, kind: Kind) -> Result<(Server, String)> {
        match self {
            Through::NineP => {
                let server = ground.serve(kind, super::TRUST)?;
                let script = vm::mount_script(server.ninep, &super::aname(&server), "cache=none");
                Ok((server, script))
            }
            Through::Nfs => {
                let port = free_port()?;
                let address = format!("127.0.0.1:{port}");
                let flags = ["--trust-clients", "--nfs", &address, "--nfs-squash", "none"];
                Ok((ground.serve(kind, &flags)?, vm::mount_nfs_script(port)))
            }
        }
    }
}

/// A directory, and optionally a volume of the same contents.
pub(crate) struct Ground {
    /// The directory, to be filled before it is served.
    pub(crate) dir: PathBuf,
    volume: Option<PathBuf>,
}

impl Ground {
    /// Creates a new, empty one.
    pub(crate) fn new(name: &str, on: On) -> Result<Ground> {
        let dir = sh::empty(&format!("served/{}", on.suite(name)))?;
        let volume = (on == On::Volume).then(|| dir.with_extension("volume"));
        Ok(Ground { dir, volume })
    }

    /// Creates the volume, if any, and copies the directory into it.
    pub(crate) fn fill(&self) -> Result<()> {
        let Some(file) = &self.volume else { return Ok(()) };
        volume::create(file, "2G")?;
        volume::copy_in(&self.dir, file)?;
        // A copy does not change the attributes of its target directory.
        let owner = self.dir.metadata()?;
        if owner.uid() == 0 {
            return Ok(());
        }
        let mut server = Server::start(Kind::Uring, file, super::TRUST)?;
        Files::of(&server)?.give_root_to(owner.uid(), owner.gid())?;
        server.stop().map(|_| ())
    }

    /// Starts a server on it.
    pub(crate) fn serve(&self, kind: Kind, extra: &[&str]) -> Result<Server> {
        Server::start(kind, self.volume.as_ref().unwrap_or(&self.dir), extra)
    }

    /// Like `serve`, at these ports for 9P and HTTP.
    pub(crate) fn serve_at(&self, kind: Kind, ports: (u16, u16), extra: &[&str]) -> Result<Server> {
        Server::start_at(kind, self.volume.as_ref().unwrap_or(&self.dir), ports, extra)
    }

    /// Returns the directory as left by the server: for a volume a copy, after a check. The server
    /// must have exited.
    pub(crate) fn back(&self) -> Result<PathBuf> {
        let Some(file) = &self.volume else { return Ok(self.dir.clone()) };
        volume::check(file)?;
        let out = sh::empty(&format!("served/{}-back", name_of(&self.dir)))?;
        std::fs::remove_dir(&out)?;
        volume::copy_out(file, &out)?;
        Ok(out)
    }

    /// Reads a file while it is served; an error if it does not exist.
    pub(crate) fn read(&self, server: &Server, name: &str) -> Result<Vec<u8>> {
        match self.volume {
            None => Ok(std::fs::read(self.dir.join(name))?),
            Some(_) => Files::of(server)?.read(name)?.with_context(|| format!("no file {name}")),
        }
    }

    /// Like `read`, as text.
    pub(crate) fn text(&self, server: &Server, name: &str) -> Result<String> {
        Ok(String::from_utf8(self.read(server, name)?)?)
    }

    /// Returns whether a file exists, while it is served.
    pub(crate) fn has(&self, server: &Server, name: &str) -> Result<bool> {
        match self.volume {
            None => Ok(self.dir.join(name).exists()),
            Some(_) => Ok(Files::of(server)?.read(name)?.is_some()),
        }
    }

    /// Lists the root while it is served.
    pub(crate) fn names(&self, server: &Server) -> Result<Vec<String>> {
        if self.volume.is_some() {
            return Files::of(server)?.names("");
        }
        let entries = std::fs::read_dir(&self.dir)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Creates a file while it is served.
    pub(crate) fn write(&self, server: &Server, name: &str, text: &str) -> Result<()> {
        match self.volume {
            None => Ok(std::fs::write(self.dir.join(name), text)?),
            Some(_) => Files::of(server)?.create(name, text.as_bytes()),
        }
    }

    /// Removes a file of the root while it is served.
    pub(crate) fn remove(&self, server: &Server, name: &str) -> Result<()> {
        match self.volume {
            None => Ok(std::fs::remove_file(self.dir.join(name))?),
            Some(_) => Files::of(server)?.remove("", name),
        }
    }

    /// Creates a directory in the root while it is served.
    pub(crate) fn make_dir(&self, server: &Server, name: &str) -> Result<()> {
        match self.volume {
            None => Ok(std::fs::create_dir(self.dir.join(name))?),
            Some(_) => Files::of(server)?.make_dir(name),
        }
    }
}

fn name_of(dir: &Path) -> String {
    dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
