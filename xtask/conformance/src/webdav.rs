//! WebDAV clients: litmus, cadaver, rclone, and the file system of davfs2.

use super::give_away;
use anyhow::{Context, Result, bail, ensure};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::{apt, sh};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Suites of litmus.
const LITMUS: &str = "basic copymove props locks http";

/// Runs the suite, on a directory and on a volume.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if matches!(kind, Kind::Diod | Kind::Nginx | Kind::Before) {
        report.skip("webdav", "only our own server speaks it");
        return Ok(());
    }
    let base = sh::empty("webdav")?;
    let dir = base.join("served");
    std::fs::create_dir_all(&dir)?;
    give_away(&dir)?;
    report.case("webdav/litmus", || litmus(kind, &dir));
    report.case("webdav/litmus_volume", || litmus(kind, &volume(&base)?));
    report.case("webdav/cadaver", || cadaver(kind, &base));
    report.case("webdav/rclone", || rclone(kind, &base));
    report.case("webdav/davfs2", || davfs(kind, &base));
    Ok(())
}

/// Creates a volume.
fn volume(base: &Path) -> Result<PathBuf> {
    let path = base.join("dav.volume");
    let mut create = Command::new(rig::server::binary());
    sh::read(create.args(["volume", "create", "--size", "64M"]).arg(&path))?;
    Ok(path)
}

fn litmus(kind: Kind, served: &Path) -> Result<String> {
    let server = Server::start(kind, served, &["--http-write"])?;
    let mut litmus = sh::cmd("litmus", &["-k", &format!("http://127.0.0.1:{}/", server.http)]);
    let printed = sh::read(litmus.env("TESTS", LITMUS).current_dir(sh::empty("webdav-litmus")?))?;
    let summaries: Vec<&str> =
        printed.lines().filter(|line| line.contains("summary for")).collect();
    let whole = summaries.iter().all(|line| line.contains(" 0 failed"));
    ensure!(summaries.len() == LITMUS.split(' ').count() && whole, "{}", sh::tail(&printed, 3000));
    let passed = |line: &&str| line.split(": of ").nth(1)?.split(' ').next()?.parse::<u32>().ok();
    Ok(format!("{} tests", summaries.iter().filter_map(passed).sum::<u32>()))
}

fn cadaver(kind: Kind, base: &Path) -> Result<String> {
    let dir = sh::empty("webdav-cadaver")?;
    give_away(&dir)?;
    let file = base.join("upload");
    std::fs::write(&file, vec![7; 300_000])?;
    let server = Server::start(kind, &dir, &["--http-write"])?;
    let mut command = sh::cmd("cadaver", &[&format!("http://127.0.0.1:{}/", server.http)]);
    let mut child =
        command.env("HOME", base).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let script = format!(
        "mkcol tree\ncd tree\nput {} one\ncopy one two\nmove two three\npropset one note text\n\
         propget one\nls\ncd ..\ncopy tree twin\ndelete tree/one\nrmcol tree\nquit\n",
        file.display()
    );
    child.stdin.take().context("its input")?.write_all(script.as_bytes())?;
    let output = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success() && !printed.contains("failed"), "{printed}");
    ensure!(printed.contains("note = text"), "the property: {printed}");
    for name in ["one", "three"] {
        let copied = std::fs::read(dir.join("twin").join(name))?;
        ensure!(copied == vec![7; 300_000], "{name} has {} bytes", copied.len());
    }
    ensure!(!dir.join("tree").exists(), "the directory is left");
    Ok("put, copy, move, properties, a directory copied and removed".into())
}

/// Copies a tree with rclone, compares it, moves, copies and removes it.
fn rclone(kind: Kind, base: &Path) -> Result<String> {
    let dir = sh::empty("webdav-rclone")?;
    give_away(&dir)?;
    let server = Server::start(kind, &dir, &["--http-write"])?;
    let url = format!("http://127.0.0.1:{}/", server.http);
    let program = apt::unpacked("rclone", "usr/bin/rclone")?;
    let rclone = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).args(["--webdav-url", &url]).env("HOME", base);
        sh::read(command.env("RCLONE_CONFIG", base.join("rclone.conf")))
    };
    let (source, back) = ("crates/wire", base.join("back"));
    let back_text = back.to_str().context("a path of text")?;
    rclone(&["sync", source, ":webdav:one"])?;
    rclone(&["check", source, ":webdav:one", "--download"])?;
    rclone(&["moveto", ":webdav:one", ":webdav:two"])?;
    rclone(&["copyto", ":webdav:two", ":webdav:three"])?;
    rclone(&["purge", ":webdav:two"])?;
    rclone(&["copy", ":webdav:three", back_text])?;
    sh::read(sh::cmd("diff", &["-r", source]).arg(&back))?;
    let left: Vec<_> =
        std::fs::read_dir(&dir)?.map(|entry| entry.map(|it| it.file_name())).collect();
    ensure!(matches!(&left[..], [Ok(name)] if name == "three"), "{left:?}");
    let about = rclone(&["about", ":webdav:"])?;
    ensure!(about.contains("Free:"), "{about}");
    Ok("sync, check, moveto, copyto, purge, about".into())
}

/// Unmounts at the end.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = sh::cmd("umount", &["-l"]).arg(&self.0).status();
        }
    }
}

/// Mounts with davfs2, which uses FUSE, and works with files there.
fn davfs(kind: Kind, base: &Path) -> Result<String> {
    if !rustix::process::geteuid().is_root() {
        bail!("mount.davfs needs root");
    }
    let (dir, mount) = (sh::empty("webdav-davfs")?, base.join("mount"));
    std::fs::create_dir_all(&mount)?;
    std::fs::create_dir_all(dir.join("sub"))?;
    std::fs::write(dir.join("sub/there"), "there\n")?;
    give_away(&dir)?;
    give_away(&dir.join("sub"))?;
    let server = Server::start(kind, &dir, &["--http-write"])?;
    let url = format!("http://127.0.0.1:{}/", server.http);
    let mut command = sh::cmd("mount.davfs", &[&url]);
    let mut child = command.arg(&mount).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    child.stdin.take().context("its input")?.write_all(b"user\npassword\n")?;
    ensure!(child.wait()?.success(), "mount.davfs");
    let mounted = Mounted(mount.clone());
    let read = |path: &str| std::fs::read_to_string(mount.join(path)).context(path.to_string());
    ensure!(read("sub/there")? == "there\n", "a file of the server");
    std::fs::write(mount.join("new"), "new\n")?;
    std::fs::create_dir(mount.join("dir"))?;
    std::fs::rename(mount.join("new"), mount.join("dir/moved"))?;
    std::fs::copy("Cargo.lock", mount.join("dir/lock"))?;
    std::fs::remove_file(mount.join("sub/there"))?;
    std::fs::remove_dir(mount.join("sub"))?;
    ensure!(read("dir/moved")? == "new\n", "a moved file");
    // It uploads what is left.
    drop(mounted);
    ensure!(std::fs::read_to_string(dir.join("dir/moved"))? == "new\n", "on the server");
    ensure!(std::fs::read(dir.join("dir/lock"))? == std::fs::read("Cargo.lock")?, "a large file");
    ensure!(!dir.join("sub").exists(), "the removed directory is left");
    Ok("read, write, mkdir, rename, remove".into())
}
