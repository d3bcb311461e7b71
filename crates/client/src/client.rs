//! What can be done with a tree of files.

use crate::dir::{self, ReadDir};
use crate::file::{self, File, OpenOptions};
use crate::handshake;
use crate::line::{Dialect, Line};
use crate::metadata::Metadata;
use crate::tree::{Tree, only, read_link};
use crate::{Address, Error, Path};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::ninep::{Rmessage, Stat, Tmessage};

/// How deep a tree may be that is removed; a server could go on for ever.
pub const DEPTH_MAX: usize = 1000;

/// How to connect, and as whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The user's number, for 9P2000.L. Unless it or a name is given: that of this process.
    pub uid: Option<u32>,
    /// The user's name.
    pub user: Option<String>,
    /// Which tree of the server; empty: the one it serves.
    pub aname: String,
    /// The largest message to ask for, bytes.
    pub msize: u32,
    /// Only this protocol; else 9P2000.L, and 9P2000 where a server knows nothing else.
    pub dialect: Option<Dialect>,
    /// How long a server may send nothing at all while it is waited for.
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

/// A connection with a server and the tree of files there. Clones share the connection, also
/// between threads; it ends with the last of them and of the files opened through them.
///
/// Paths begin at the tree's root, with or without a slash. `..` and symbolic links are followed
/// here, within the tree: nothing leads out of it.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) tree: Arc<Tree>,
    gid: u32,
}

impl Client {
    /// Connects, agrees on a protocol, and attaches to the tree.
    ///
    /// # Errors
    /// `Unreachable`, `Silent`, `Broken` if no protocol is agreed on, or what the server answers
    /// when it is attached to.
    pub fn connect(address: &Address, options: &Options) -> Result<Client, Error> {
        let line = handshake::connect(address, options)?;
        let tree = Arc::new(handshake::attach(line, options)?);
        Ok(Client { tree, gid: rustix::process::getgid().as_raw() })
    }

    fn line(&self) -> &Arc<Line> {
        self.tree.line()
    }

    /// Which protocol is spoken.
    pub fn dialect(&self) -> Dialect {
        self.line().dialect
    }

    /// The largest message, bytes.
    pub fn msize(&self) -> u32 {
        self.line().msize
    }

    /// Ends everything that waits, in whatever thread, and what is begun later, with
    /// [`Error::Cancelled`]; the server is told to stop what is under way.
    pub fn cancel(&self) {
        self.line().cancel(true);
    }

    /// Sets how long the server may say nothing from now on, where a reply may take long.
    pub fn set_deadline(&self, deadline: Duration) {
        self.line().set_deadline(deadline);
    }

    /// Goes on after [`Client::cancel`], perhaps to tidy up, with another deadline.
    pub fn resume(&self, deadline: Duration) {
        self.line().set_deadline(deadline);
        self.line().cancel(false);
    }

    /// What is known about a file; links are followed.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, Error> {
        self.look(path.as_ref(), true)
    }

    /// What is known about a file, or about the link of that name.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata, Error> {
        self.look(path.as_ref(), false)
    }

    fn look(&self, path: &Path, follow: bool) -> Result<Metadata, Error> {
        let found = self.tree.find(path, follow).and_then(|(fid, _)| Metadata::of(&fid));
        found.map_err(|error| error.of("look at", path))
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir, Error> {
        let path = path.as_ref();
        let found = self.tree.find(path, true);
        let opened = found.and_then(|(fid, _)| dir::open(fid, path.to_path_buf()));
        opened.map_err(|error| error.of("list", path))
    }

    /// Opens a file to be read.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file to be written: a new one, or one that loses its contents.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        self.open_with(path, OpenOptions::new().write(true).truncate(true).create(true))
    }

    /// Opens a file in any other way.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn open_with(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<File, Error> {
        let path = path.as_ref();
        file::open(&self.tree, path, options, self.gid).map_err(|error| error.of("open", path))
    }

    /// All bytes of a file.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        for piece in self.open(path)?.stream(0, u64::MAX)? {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes)
    }

    /// Makes these bytes all that is in a file.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), Error> {
        let file = self.create(path)?;
        let mut sink = file.sink(0);
        let mut rest = bytes;
        while sink.take_from(&mut rest).expect("memory can be read")? > 0 {}
        sink.finish()?;
        file.close()
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
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
        made.map_err(|error| error.of("make the directory", path))
    }

    /// Makes a directory and those above it, as far as they are not there.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
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
    /// What the server answers, or why it does not.
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

    /// The fid is gone whatever comes of it (remove(5)).
    fn remove_fid(&self, path: &Path) -> Result<(), Error> {
        let (fid, _) = self.tree.find(path, false)?;
        let fid = fid.forget();
        let done = self.line().call(&Tmessage::Remove { fid }, only!(Rmessage::Remove {} => ()));
        if done.as_ref().err().is_none_or(|error| !error.is_fatal()) {
            self.line().free_fid(fid);
        }
        done
    }

    /// Removes a file, or a directory with everything in it: how many names are gone.
    ///
    /// # Errors
    /// The first that could not be removed; what came before it is gone.
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

    /// Empties a directory, those in it first.
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

    /// Gives a file another name. With 9P2000.L it takes the place of what had it; with 9P2000 it
    /// stays in its directory.
    ///
    /// # Errors
    /// What the server answers, or why it does not.
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

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// What the server answers, or why it does not; `Unsupported` with 9P2000.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<(), Error> {
        let (target, path) = (target.as_ref().as_os_str().as_bytes(), path.as_ref());
        self.linux_only("make the link", path)?;
        let made = self.tree.find_above(path).and_then(|(fid, name)| {
            let message = Tmessage::Symlink { dfid: fid.number, name, target, gid: self.gid };
            self.line().call(&message, only!(Rmessage::Symlink { .. } => ()))
        });
        made.map_err(|error| error.of("make the link", path))
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// What the server answers, or why it does not; `Unsupported` with 9P2000.
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
