//! Numbered files of a directory: each I/O opens its file, as web and mail servers do.

use super::blocking::Aligned;
use super::one::{OneByOne, Perform};
use super::{Driver, Target};
use crate::{Io, Kind, Outcome};
use rustix::fs::{Mode, OFlags, unlink};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Files in one subdirectory; more make directories slow on some file systems.
const TOGETHER: u32 = 1000;

/// Directory of numbered files: file 12345 is `12/12345`.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Path of the directory.
    pub path: PathBuf,
    /// Maximum I/O size, in bytes.
    pub io_max: usize,
}

impl Directory {
    /// Returns the path of a file.
    pub fn file(&self, number: u32) -> PathBuf {
        self.path.join((number / TOGETHER).to_string()).join(number.to_string())
    }

    /// Creates the subdirectories of files 0 to `files`.
    ///
    /// # Errors
    /// The errors of `mkdir(2)`.
    pub fn make(&self, files: u32) -> io::Result<()> {
        (0..files.max(1).div_ceil(TOGETHER))
            .try_for_each(|part| std::fs::create_dir_all(self.path.join(part.to_string())))
    }
}

impl Target for Directory {
    fn driver(&self, _worker: usize, _workers: usize) -> io::Result<Box<dyn Driver>> {
        let (target, buffer) = (self.clone(), Aligned::new(self.io_max));
        Ok(Box::new(OneByOne::new(Calls { target, buffer })))
    }

    fn name(&self) -> String {
        format!("directory {}", self.path.display())
    }
}

struct Calls {
    target: Directory,
    buffer: Aligned,
}

impl Calls {
    fn call(&mut self, io: &Io) -> Result<usize, Errno> {
        let path: &Path = &self.target.file(io.file);
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, mode);
        let buffer = self.buffer.piece(io.len as usize);
        match io.kind {
            Kind::Read => rustix::io::pread(open(OFlags::RDONLY)?, buffer, io.offset),
            Kind::Write => rustix::io::pwrite(open(OFlags::WRONLY)?, buffer, io.offset),
            Kind::Create => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
                rustix::io::pwrite(open(flags)?, buffer, io.offset)
            }
            Kind::Remove => unlink(path).map(|()| 0),
            Kind::Sync => rustix::fs::fdatasync(open(OFlags::RDONLY)?).map(|()| 0),
            Kind::Trim => rustix::fs::ftruncate(open(OFlags::WRONLY)?, io.offset).map(|()| 0),
        }
    }
}

impl Perform for Calls {
    fn perform(&mut self, io: &Io) -> Outcome {
        Outcome::of(self.call(io))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_and_go_by_their_numbers() {
        let path = std::env::temp_dir().join(format!("upcall-load-d-{}", std::process::id()));
        let target = Directory { path: path.clone(), io_max: 8192 };
        target.make(2500).expect("directories");
        let mut driver = target.driver(0, 1).expect("a driver");
        let mut ended = Vec::new();
        let ios = [(Kind::Create, 5000), (Kind::Read, 8192), (Kind::Remove, 0), (Kind::Read, 1)];
        for (name, (kind, len)) in ios.into_iter().enumerate() {
            driver.issue(name as u64, &Io { kind, file: 2345, offset: 0, len });
            driver.flush();
            driver.poll(&mut ended);
            assert_eq!(path.join("2/2345").exists(), name < 2);
        }
        std::fs::remove_dir_all(&path).expect("it was made");
        let outcomes: Vec<_> = ended.into_iter().map(|(_, outcome)| outcome).collect();
        let done = Outcome::Done;
        assert_eq!(outcomes, [done(5000), done(5000), done(0), Outcome::Failed(2)]);
    }
}
