//! What a suite's server serves: a directory of this host, or a volume with the same in it.
//!
//! A suite fills the directory and then serves its ground. What the server has made of it is
//! looked at on the host, or, of a volume, by another front end while it is served, and copied
//! out when it is over.

use crate::files::Files;
use crate::server::{Kind, Server};
use crate::{sh, volume};
use anyhow::{Context, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the files are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    /// In a directory of the host.
    Directory,
    /// In a volume.
    Volume,
}

impl On {
    /// The name of a suite over this.
    pub(crate) fn suite(self, name: &str) -> String {
        match self {
            On::Directory => name.to_owned(),
            On::Volume => format!("volume-{name}"),
        }
    }
}

/// A directory, and perhaps a volume of the same contents.
pub(crate) struct Ground {
    /// To be filled before it is served.
    pub(crate) dir: PathBuf,
    volume: Option<PathBuf>,
}

impl Ground {
    /// A new, empty one.
    pub(crate) fn new(name: &str, on: On) -> Result<Ground> {
        let dir = sh::empty(&format!("served/{}", on.suite(name)))?;
        let volume = (on == On::Volume).then(|| dir.with_extension("volume"));
        Ok(Ground { dir, volume })
    }

    /// Makes the volume and copies the directory into it, if there is to be one.
    pub(crate) fn fill(&self) -> Result<()> {
        let Some(file) = &self.volume else { return Ok(()) };
        volume::create(file, "2G")?;
        volume::copy_in(&self.dir, file)?;
        // A copy leaves the directory that it goes into as it is.
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

    /// The directory as the server has left it: of a volume a copy, after a check. The server
    /// must have ended.
    pub(crate) fn back(&self) -> Result<PathBuf> {
        let Some(file) = &self.volume else { return Ok(self.dir.clone()) };
        volume::check(file)?;
        let out = sh::empty(&format!("served/{}-back", name_of(&self.dir)))?;
        std::fs::remove_dir(&out)?;
        volume::copy_out(file, &out)?;
        Ok(out)
    }

    /// What a file contains while it is served; an error if there is none.
    pub(crate) fn read(&self, server: &Server, name: &str) -> Result<Vec<u8>> {
        match self.volume {
            None => Ok(std::fs::read(self.dir.join(name))?),
            Some(_) => Files::of(server)?.read(name)?.with_context(|| format!("no file {name}")),
        }
    }

    /// The same, as text.
    pub(crate) fn text(&self, server: &Server, name: &str) -> Result<String> {
        Ok(String::from_utf8(self.read(server, name)?)?)
    }

    /// Whether there is a file of that name while it is served.
    pub(crate) fn has(&self, server: &Server, name: &str) -> Result<bool> {
        match self.volume {
            None => Ok(self.dir.join(name).exists()),
            Some(_) => Ok(Files::of(server)?.read(name)?.is_some()),
        }
    }

    /// The names in the root while it is served.
    pub(crate) fn names(&self, server: &Server) -> Result<Vec<String>> {
        if self.volume.is_some() {
            return Files::of(server)?.names("");
        }
        let entries = std::fs::read_dir(&self.dir)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Makes a file while it is served.
    pub(crate) fn write(&self, server: &Server, name: &str, text: &str) -> Result<()> {
        match self.volume {
            None => Ok(std::fs::write(self.dir.join(name), text)?),
            Some(_) => Files::of(server)?.create(name, text.as_bytes()),
        }
    }

    /// Makes a directory in the root while it is served.
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
