//! Mounting and unmounting: `mount(2)` for root, else the program `fusermount3`.

use crate::error::Error;
use crate::options::Options;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use std::ffi::CString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Helper that mounts for users other than root; the environment variable names another.
const HELPER: &str = "fusermount3";
const HELPER_PATH: &str = "FUSERMOUNT_PATH";

/// Type of the file system.
const TYPE: &str = "fuse.upcall";

/// Type of the directory to mount on, in the kernel's options.
const ROOT_MODE: &str = "rootmode=40000";

/// Mounted file system; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mount {
    dir: PathBuf,
    is_mounted: bool,
}

/// Checks the directory to mount on, and returns its absolute path.
pub(crate) fn target(dir: &Path) -> Result<PathBuf, Error> {
    let refused = |cause: std::io::Error| Error::Target { dir: dir.to_path_buf(), cause };
    let absolute = dir.canonicalize().map_err(refused)?;
    if !std::fs::metadata(&absolute).map_err(refused)?.is_dir() {
        return Err(refused(Errno::NOTDIR.into()));
    }
    Ok(absolute)
}

/// Mounts. Returns the device to read requests from.
pub(crate) fn mount(
    dir: &Path,
    source: &str,
    options: &Options,
    max_read: u32,
) -> Result<(OwnedFd, Mount), Error> {
    let device = match rustix::process::geteuid().is_root() {
        true => by_system_call(dir, source, options, max_read)?,
        false => by_helper(dir, source, options, max_read)?,
    };
    Ok((device, Mount { dir: dir.to_path_buf(), is_mounted: true }))
}

/// Returns the options that the kernel and the helper share.
fn shared(options: &Options, max_read: u32) -> Vec<String> {
    let mut list = vec![format!("max_read={max_read}")];
    if options.allow_other {
        list.push("allow_other".into());
    }
    if options.kernel_checks() {
        list.push("default_permissions".into());
    }
    list
}

fn by_system_call(
    dir: &Path,
    source: &str,
    options: &Options,
    max_read: u32,
) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(Error::device)?;
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    let mut data = vec![format!("fd={}", device.as_raw_fd()), ROOT_MODE.to_string()];
    data.extend([format!("user_id={uid}"), format!("group_id={gid}")]);
    data.extend(shared(options, max_read));
    let data = CString::new(data.join(",")).expect("numbers and words");
    let flags = flags_of(options);
    let mounted = rustix::mount::mount(source, dir, TYPE, flags, Some(data.as_c_str()));
    mounted.map_err(|errno| Error::Mount { dir: dir.to_path_buf(), cause: errno.into() })?;
    Ok(device)
}

fn flags_of(options: &Options) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOATIME, options.atime == Some(false));
    flags.set(MountFlags::STRICTATIME, options.atime == Some(true));
    flags
}

/// Returns device number and type of the mount on top of a directory.
fn top_mount(dir: &Path) -> Option<(String, String)> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    // As the kernel shows it.
    let escapes = [("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")];
    let shown = dir.display().to_string();
    let shown = escapes.iter().fold(shown, |shown, (plain, code)| shown.replace(plain, code));
    mounts.lines().rev().find_map(|line| {
        let (fields, rest) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(2);
        let (device, place) = (fields.next()?, fields.nth(1)?);
        let kind = rest.split(' ').next()?;
        (place == shown).then(|| (device.to_string(), kind.to_string()))
    })
}

/// Changes the flags of a mount.
pub(crate) fn remount(dir: &Path, options: &Options) -> Result<(), Error> {
    let failed = |cause: Errno| Error::Remount { dir: dir.to_path_buf(), cause: cause.into() };
    if top_mount(dir).is_none_or(|(_, kind)| kind != TYPE) {
        return Err(failed(Errno::INVAL));
    }
    rustix::mount::mount_remount(dir, flags_of(options), c"").map_err(failed)
}

fn helper() -> std::ffi::OsString {
    std::env::var_os(HELPER_PATH).unwrap_or_else(|| HELPER.into())
}

/// Lets the helper mount, and receives the device from it.
fn by_helper(dir: &Path, source: &str, options: &Options, max_read: u32) -> Result<OwnedFd, Error> {
    let mut list = shared(options, max_read);
    list.extend([format!("fsname={}", source.replace(',', "\\,")), "subtype=upcall".to_string()]);
    let atime = if options.atime == Some(false) { "noatime" } else { "" };
    let read_only = if options.read_only { "ro" } else { "rw" };
    let exec = if options.exec { "" } else { "noexec" };
    let words = [read_only, "nosuid", "nodev", exec, atime].into_iter();
    list.extend(words.filter(|word| !word.is_empty()).map(str::to_string));
    let failed = |cause: std::io::Error| Error::Helper { dir: dir.to_path_buf(), cause };
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(|errno| failed(errno.into()))?;
    // The helper sends the device over the socket that it gets as its standard input.
    let mut child = Command::new(helper())
        .args(["-o", &list.join(","), "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        // It has reported the cause.
        return Err(failed(std::io::Error::other(format!("{HELPER} failed"))));
    }
    received(&ours).map_err(failed)
}

fn received(socket: &OwnedFd) -> std::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(device) = fds.next()
        {
            return Ok(device);
        }
    }
    Err(std::io::Error::other(format!("{HELPER} has sent no device")))
}

impl Mount {
    /// Records that the kernel or another program has unmounted it.
    pub(crate) fn is_gone(&mut self) {
        self.is_mounted = false;
    }

    /// Unmounts; with `detach` also if it is in use.
    pub(crate) fn unmount(&mut self, detach: bool) -> Result<(), Error> {
        let failed = |cause: std::io::Error| Error::Unmount { dir: self.dir.clone(), cause };
        if !self.is_mounted {
            return Ok(());
        }
        if rustix::process::geteuid().is_root() {
            let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
            let done = rustix::mount::unmount(&self.dir, flags | UnmountFlags::NOFOLLOW);
            done.map_err(|errno| failed(errno.into()))?;
        } else {
            let flags = if detach { "-uqz" } else { "-uq" };
            let status = Command::new(helper()).arg(flags).arg("--").arg(&self.dir).status();
            if !status.map_err(failed)?.success() {
                return Err(failed(Errno::BUSY.into()));
            }
        }
        self.is_mounted = false;
        Ok(())
    }

    /// Lets the kernel read ahead more than 128 KiB, which only root may change.
    pub(crate) fn read_ahead(&self, bytes: u32) {
        let Some((device, _)) = top_mount(&self.dir) else { return };
        let file = format!("/sys/class/bdi/{device}/read_ahead_kb");
        // Without the permission reads are as fast as the kernel's default permits.
        let _ = std::fs::write(file, (bytes / 1024).to_string());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nothing that has it open would get a reply any more.
        let _ = self.unmount(true);
    }
}
