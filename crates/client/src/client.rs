//! File operations of a client.

use crate::dir::{self, ReadDir};
use crate::error::{CREATE, MAKE_DIR};
use crate::file::{self, File, OpenOptions};
use crate::handshake;
use crate::line::Line;
use crate::metadata::Metadata;
use crate::tree::{Tree, only, read_link};
use crate::{Address, Dialect, Error, Path};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::ninep::{Rmessage, Stat, Tmessage};

/// Maximum depth of a tree to remove; a malicious server could nest directories without end.
pub const DEPTH_MAX: usize = 1000;

/// Connection options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numeric user id, for 9P2000.L. By default that of this process, unless a name is given.
    pub uid: Option<u32>,
    /// User name.
    pub user: Option<String>,
    /// Tree to attach to; empty for the server's default.
    pub aname: String,
    /// Maximum message size to propose, in bytes.
    pub msize: u32,
    /// Required protocol; `None` tries 9P2000.L, then 9P2000.
    pub dialect: Option<Dialect>,
    /// Maximum time without any data from the server during a wait.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            uid: None,
            user: None,
            aname: String::new(),
            msize: 1 << 20,
            dialect: None,
            deadline: Duration::from_secs(60),
        }
    }
}

/// Connection to a server and its file tree. Clones share the connection, also between threads; it
/// closes with the last of them and of the files opened through them.
///
/// Paths are relative to the root of the tree, with or without a leading slash. `..` and symbolic
/// links are resolved by the client, within the tree: no path leads out of it.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) tree: Arc<Tree>,
    gid: u32,
}

impl Client {
    /// Connects, agrees on a protocol, and attaches to the tree.
    ///
    /// # Errors
    /// `Unreachable`, `Silent`, `Broken` if no protocol is agreed on, or the server's refusal of
    /// the attach request.
    pub fn connect(address: &Address, options: &Options) -> Result<Client, Error> {
        let line = handshake::connect(address, options)?;
        let tree = Arc::new(handshake::attach(line, options)?);
        Ok(Client { tree, gid: rustix::process::getgid().as_raw() })
    }

    fn line(&self) -> &Arc<Line> {
        self.tree.line()
    }

    /// Returns the negotiated protocol.
    pub fn dialect(&self) -> Dialect {
        self.line().dialect
    }

    /// Returns the maximum message size, in bytes.
    pub fn msize(&self) -> u32 {
        self.line().msize
    }

    /// Fails all pending and later calls of all threads with [`Error::Cancelled`]; the server is
    /// asked to abort outstanding requests.
    pub fn cancel(&self) {
        self.line().cancel(true);
    }

    /// Sets the maximum time without data from the server, for requests that may take long.
    pub fn set_deadline(&self, deadline: Duration) {
        self.line().set_deadline(deadline);
    }

    /// Resumes after [`Client::cancel`], perhaps for cleanup, with another deadline.
    pub fn resume(&self, deadline: Duration) {
        self.line().set_deadline(deadline);
        self.line().cancel(false);
    }

    /// Returns the metadata of a file; links are followed.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, Error> {
        self.look(path.as_ref(), true)
    }

    /// Returns the metadata of a file; a final link is not followed.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, Error> {
        self.look(path.as_ref(), false)
    }

    fn look(&self, path: &Path, follow: bool) -> Result<Metadata, Error> {
        let found = self.tree.find(path, follow).and_then(|(fid, _)| Metadata::of(&fid));
        found.map_err(|error| error.of("look at", path))
    }

    /// Returns an iterator over the entries of a directory.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir, Error> {
        let path = path.as_ref();
        let found = self.tree.find(path, true);
        let opened = found.and_then(|(fid, _)| dir::open(fid, path.to_path_buf()));
        opened.map_err(|error| error.of("list", path))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file for writing: creates it, or truncates an existing one.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        self.open_with(path, OpenOptions::new().write(true).truncate(true).create(true))
    }

    /// Opens a file with the given options.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn open_with(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File, Error> {
        let path = path.as_ref();
        let doing = if options.creates() { CREATE } else { "open" };
        file::open(&self.tree, path, options, self.gid).map_err(|error| error.of(doing, path))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        for piece in self.open(path)?.stream(0, u64::MAX)? {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }

    /// Replaces the contents of a file.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
        let file = self.create(path)?;
        let mut sink = file.sink(0);
        let mut rest = bytes;
        while sink.take_from(&mut rest).expect("memory can be read")? > 0 {}
        sink.finish()?;
        file.close()
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let made = self.tree.find_above(path).and_then(|(fid, name)| match self.dialect() {
            Dialect::Linux => {
                let (dfid, mode, gid) = (fid.number, 0o755, self.gid);
                let message = Tmessage::Mkdir { dfid, name, mode, gid };
                self.line().call(&message, only!(Rmessage::Mkdir { .. } => ()))
            }
            Dialect::Plan9 => {
                let perm = Stat::DIR | 0o755;
                let message = Tmessage::Create { fid: fid.number, name, perm, mode: 0 };
                self.line().call(&message, only!(Rmessage::Create { .. } => ()))
            }
        });
        made.map_err(|error| error.of(MAKE_DIR, path))
    }

    /// Creates a directory and its missing ancestors.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let mut above = PathBuf::new();
        for part in path.as_ref().components() {
            above.push(part);
            if above.file_name().is_none() {
                continue;
            }
            if let Err(error) = self.create_dir(&above) {
                let there = !error.is_fatal() && self.metadata(&above).is_ok_and(|it| it.is_dir());
                if !there {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Removes a file, a link, or an empty directory.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let removed = match self.dialect() {
            Dialect::Linux => match self.unlink(path, false) {
                Err(error) if error.may_be_directory() => match self.unlink(path, true) {
                    Err(second) if second.errno() == 20 => Err(error),
                    done => done,
                },
                Err(error) if error.is_unknown() => self.remove_fid(path),
                done => done,
            },
            Dialect::Plan9 => self.remove_fid(path),
        };
        removed.map_err(|error| error.of("remove", path))
    }

    fn unlink(&self, path: &Path, directory: bool) -> Result<(), Error> {
        const DIRECTORY: u32 = 0x200;
        let (fid, name) = self.tree.find_above(path)?;
        let flags = if directory { DIRECTORY } else { 0 };
        let message = Tmessage::Unlinkat { dfid: fid.number, name, flags };
        self.line().call(&message, only!(Rmessage::Unlinkat {} => ()))
    }

    /// Removes a file through a fid, which the server discards in any case (remove(5)).
    fn remove_fid(&self, path: &Path) -> Result<(), Error> {
        let (fid, _) = self.tree.find(path, false)?;
        let fid = fid.forget();
        let done = self.line().call(&Tmessage::Remove { fid }, only!(Rmessage::Remove {} => ()));
        if done.as_ref().err().is_none_or(|error| !error.is_fatal()) {
            self.line().free_fid(fid);
        }
        done
    }

    /// Removes a file, or a directory with its contents. Returns the number of names removed.
    ///
    /// # Errors
    /// The first failed removal; earlier ones are not undone.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        let path = path.as_ref();
        let mut removed = 0;
        if self.symlink_metadata(path)?.is_dir() {
            self.remove_contents(path, &mut removed)?;
        }
        if path.file_name().is_some() {
            self.remove(path)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Removes the contents of a directory, the deepest first.
    fn remove_contents(&self, path: &Path, removed: &mut u64) -> Result<(), Error> {
        let mut open = vec![(path.to_path_buf(), self.entries(path)?)];
        while let Some((dir, entries)) = open.last_mut() {
            let Some(entry) = entries.pop() else {
                let (dir, _) = open.pop().expect("it was looked at");
                if !open.is_empty() {
                    self.remove(&dir)?;
                    *removed += 1;
                }
                continue;
            };
            let path = dir.join(&entry.name);
            if entry.kind == crate::Kind::Directory {
                if open.len() >= DEPTH_MAX {
                    let why = "the directories are too deep; remove the innermost ones first";
                    return Err(Error::BadPath { path, why });
                }
                let entries = self.entries(&path)?;
                open.push((path, entries));
            } else {
                self.remove(&path)?;
                *removed += 1;
            }
        }
        Ok(())
    }

    fn entries(&self, path: &Path) -> Result<Vec<dir::Entry>, Error> {
        self.read_dir(path)?.collect()
    }

    /// Renames a file. With 9P2000.L it may move to another directory and replaces an existing
    /// file; with 9P2000 it stays in its directory.
    ///
    /// # Errors
    /// Errors of the server and of the connection.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), Error> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let done = match self.dialect() {
            Dialect::Linux => self.rename_linux(from, to),
            Dialect::Plan9 => self.rename_plan9(from, to),
        };
        done.map_err(|error| error.of("rename", from))
    }

    fn rename_linux(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let (above, oldname) = self.tree.find_above(from)?;
        let (dir, newname) = self.tree.find_above(to).map_err(|error| error.of("reach", to))?;
        let (olddirfid, newdirfid) = (above.number, dir.number);
        let message = Tmessage::Renameat { olddirfid, oldname, newdirfid, newname };
        match self.line().call(&message, only!(Rmessage::Renameat {} => ())) {
            Err(error) if error.is_unknown() => {
                let (file, _) = self.tree.find(from, false)?;
                let (fid, dfid, name) = (file.number, dir.number, newname);
                let message = Tmessage::Rename { fid, dfid, name };
                self.line().call(&message, only!(Rmessage::Rename {} => ()))
            }
            done => done,
        }
    }

    fn rename_plan9(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let name = to.file_name().ok_or_else(|| Error::bad_path("the new name is none"))?;
        let root = Path::new("/");
        if root.join(from).parent() != root.join(to).parent() {
            return Err(Error::Unsupported { doing: "move", path: from.to_path_buf() });
        }
        let (fid, _) = self.tree.find(from, false)?;
        let stat = Stat { name: name.as_bytes(), ..Stat::unchanged() };
        let message = Tmessage::Wstat { fid: fid.number, stat };
        self.line().call(&message, only!(Rmessage::Wstat {} => ()))
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// Errors of the server and of the connection; `Unsupported` with 9P2000.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<(), Error> {
        let (target, path) = (target.as_ref().as_os_str().as_bytes(), path.as_ref());
        self.linux_only("make the link", path)?;
        let made = self.tree.find_above(path).and_then(|(fid, name)| {
            let message = Tmessage::Symlink { dfid: fid.number, name, target, gid: self.gid };
            self.line().call(&message, only!(Rmessage::Symlink { .. } => ()))
        });
        made.map_err(|error| error.of("make the link", path))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Errors of the server and of the connection; `Unsupported` with 9P2000.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let path = path.as_ref();
        self.linux_only("read the link", path)?;
        let found = self.tree.find(path, false).and_then(|(fid, _)| read_link(&fid));
        let target = found.map_err(|error| error.of("read the link", path))?;
        Ok(OsString::from_vec(target).into())
    }

    pub(crate) fn linux_only(&self, doing: &'static str, path: &Path) -> Result<(), Error> {
        match self.dialect() {
            Dialect::Linux => Ok(()),
            Dialect::Plan9 => Err(Error::Unsupported { doing, path: path.to_path_buf() }),
        }
    }
}
