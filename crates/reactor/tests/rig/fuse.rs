//! A file system in this process that can be made unresponsive: one directory with one file, over
//! the kernel's own protocol (`/dev/fuse`, version 7.31).

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

/// Node numbers of the directory and its file.
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// Contents of the file `f`.
pub(crate) const CONTENTS: &[u8] = b"far";

/// Sizes of the headers of a request and of a reply, bytes.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;

/// A mounted file system. It replies to requests unless it hangs.
pub(crate) struct Fuse {
    gate: Arc<Gate>,
    at: PathBuf,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    hangs: bool,
    /// Number of requests since it hangs.
    held: usize,
}

impl Fuse {
    /// Mounts a file system at an empty directory.
    pub(crate) fn mount(at: &Path) -> Fuse {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/fuse", flags, Mode::empty()).unwrap();
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        rustix::mount::mount("test", at, "fuse.hang", flags, Some(options.as_c_str())).unwrap();
        let gate = Arc::new(Gate::default());
        let theirs = Arc::clone(&gate);
        std::thread::spawn(move || serve(&device, &theirs));
        Fuse { gate, at: at.into() }
    }

    /// Holds all requests from now on.
    pub(crate) fn hang(&self) {
        self.gate.state.lock().unwrap().hangs = true;
    }

    /// Waits until a request is held.
    pub(crate) fn wait_until_reached(&self) {
        let state = self.gate.state.lock().unwrap();
        drop(self.gate.changed.wait_while(state, |state| state.held == 0).unwrap());
    }

    /// Replies to the held requests, and to all later ones.
    pub(crate) fn go_on(&self) {
        let mut state = self.gate.state.lock().unwrap();
        (state.hangs, state.held) = (false, 0);
        self.gate.changed.notify_all();
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.go_on();
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH | UnmountFlags::FORCE);
    }
}

fn serve(device: &OwnedFd, gate: &Gate) {
    let mut request = vec![0; 1 << 20];
    // Ends with an error when it is unmounted.
    while let Ok(size) = rustix::io::read(device, &mut request) {
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_le_bytes(request[at..at + 8].try_into().unwrap());
        assert!(size >= IN_HEADER && size == word(0) as usize);
        let (opcode, unique, node) = (word(4), long(8), long(16));
        let mut state = gate.state.lock().unwrap();
        if state.hangs {
            state.held += 1;
            gate.changed.notify_all();
        }
        drop(gate.changed.wait_while(state, |state| state.hangs).unwrap());
        let answer = match opcode {
            1 => lookup(&request[IN_HEADER..size]),
            3 => Ok([&[0; 16], &attributes(node)[..]].concat()),
            // Forgotten nodes and interrupted requests need no reply.
            2 | 36 | 42 => continue,
            14 | 27 => Ok(vec![0; 16]),
            15 => Ok(CONTENTS[CONTENTS.len().min(long(IN_HEADER + 8) as usize)..].to_vec()),
            28 => Ok(if long(IN_HEADER + 8) == 0 { entry() } else { Vec::new() }),
            17 => Ok(vec![0; 80]),
            18 | 20 | 25 | 29 => Ok(Vec::new()),
            26 => Ok(agreement()),
            _ => Err(Errno::NOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno.raw_os_error(), Vec::new()),
        };
        let length = u32::try_from(OUT_HEADER + body.len()).unwrap();
        let head = [&length.to_le_bytes()[..], &error.to_le_bytes(), &unique.to_le_bytes()];
        // Interrupted requests have no recipient.
        let _ = rustix::io::write(device, &[&head.concat(), &body[..]].concat());
    }
}

fn lookup(name: &[u8]) -> Result<Vec<u8>, Errno> {
    if name == b"f\0" {
        // The node, with nothing that may be cached.
        Ok([&FILE.to_le_bytes()[..], &[0; 32], &attributes(FILE)].concat())
    } else {
        Err(Errno::NOENT)
    }
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, links, size) =
        if node == ROOT { (0o40755u32, 2u32, 0) } else { (0o100_644, 1, CONTENTS.len() as u64) };
    let words = [mode, links, 0, 0, 0, 4096, 0].map(u32::to_le_bytes).concat();
    [&node.to_le_bytes()[..], &size.to_le_bytes(), &[0; 32 + 12], &words].concat()
}

/// `struct fuse_dirent` of the file.
fn entry() -> Vec<u8> {
    let (next, length, kind) = (1u64.to_le_bytes(), 1u32.to_le_bytes(), 8u32.to_le_bytes());
    [&FILE.to_le_bytes()[..], &next, &length, &kind, b"f\0\0\0\0\0\0\0"].concat()
}

/// `struct fuse_init_out`: version 7.31, reads and writes of 128 KiB.
fn agreement() -> Vec<u8> {
    let mut words = [0u32; 16];
    (words[0], words[1], words[2], words[5]) = (7, 31, 128 << 10, 128 << 10);
    words.map(u32::to_le_bytes).concat()
}
