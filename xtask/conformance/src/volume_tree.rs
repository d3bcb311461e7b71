//! A Linux source tree copied into a volume, read by the kernel's 9P client, and copied out again
//! without any change.
//!
//! The kernel reads some parts, or all with `--long`; the copy out is always complete.

use super::{TRUST, tree};
use anyhow::{Result, ensure};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::{sh, volume};
use std::path::Path;

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("volume-tree", "diod has no volumes");
        return Ok(());
    }
    let dir = rig::linux::source()?;
    let file = sh::scratch("served")?.join("tree.volume");
    volume::create(&file, "4G")?;
    let last = |printed: String| printed.lines().last().unwrap_or("").to_owned();
    let copied = report.case("volume-tree/copy_in", || volume::copy_in(&dir, &file).map(last));
    ensure!(copied, "without the tree there is nothing to read");
    report.case("volume-tree/again", || volume::copy_in(&dir, &file).map(last));
    report.case("volume-tree/check", || volume::check(&file));
    let parts = tree::parts(report);
    report.case("volume-tree/9p", || {
        let mut extra = TRUST.to_vec();
        extra.push("--read-only");
        let server = Server::start(kind, &file, &extra)?;
        tree::by_kernel("volume-tree", &server, &dir, parts)
    });
    report.case("volume-tree/copy_out", || {
        let out = sh::empty("served/tree-back")?;
        std::fs::remove_dir(&out)?;
        let printed = volume::copy_out(&file, &out)?;
        compare(&dir, &out)?;
        std::fs::remove_dir_all(&out)?;
        Ok(last(printed))
    });
    std::fs::remove_file(&file)?;
    Ok(())
}

/// Compares with tar: bytes, modes, times, owners and links; and the sets of names.
fn compare(dir: &Path, out: &Path) -> Result<()> {
    let script = "tar -cf - -C \"$0\" . | tar -df - -C \"$1\" || exit 1
        names() { (cd \"$1\" && find . | sort | md5sum); }
        [ \"$(names \"$0\")\" = \"$(names \"$1\")\" ]";
    sh::read(sh::cmd("sh", &["-c", script]).arg(dir).arg(out)).map(|_| ())
}
