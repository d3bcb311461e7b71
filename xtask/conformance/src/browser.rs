//! A browser on the page of a directory: Chromium, driven by its WebDriver.

use super::give_away;
use anyhow::{Result, ensure};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::sh;
use std::path::Path;

/// Number of files in each part of the folder, and of parts.
const FILES: usize = 100;
const PARTS: usize = 10;

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if matches!(kind, Kind::Diod | Kind::Nginx | Kind::Before) {
        report.skip("browser", "only our own server has the page");
        return Ok(());
    }
    let base = sh::empty("browser")?;
    let folder = base.join("folder");
    make_folder(&folder)?;
    let picture = report.record.then(|| sh::root().join("docs/browser.png"));
    let strange = base.join("strange");
    make_strange(&strange)?;
    report.case("browser/write", || write(kind, &folder, &strange, picture.as_deref()));
    report.case("browser/read_only", || visit(kind, &folder, "read"));
    report.case("browser/without_script", || visit(kind, &folder, "plain"));
    Ok(())
}

/// Creates the folder that is uploaded: texts in parts, a long text, a picture, an empty file.
fn make_folder(folder: &Path) -> Result<()> {
    for part in 0..PARTS {
        let dir = folder.join(format!("part {part}"));
        std::fs::create_dir_all(&dir)?;
        for number in (part..PARTS * FILES).step_by(PARTS) {
            std::fs::write(dir.join(format!("file {number}.txt")), format!("file {number}"))?;
        }
    }
    let lines: Vec<String> = (0..6_000).map(|number| format!("<b>line {number}</b>\n")).collect();
    std::fs::write(folder.join("readme.txt"), lines.concat())?;
    std::fs::write(folder.join("picture.png"), PICTURE)?;
    std::fs::write(folder.join("empty.txt"), "")?;
    Ok(())
}

/// Creates a folder of files whose names need care in links, and in their order.
fn make_strange(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for name in ["file 10.txt", "file 2.txt", "what? 100%.txt", "x#y.txt", "a:b"] {
        std::fs::write(folder.join(name), format!("{name}\n"))?;
    }
    Ok(())
}

/// Uploads both folders, and changes them as the browser did.
fn write(kind: Kind, folder: &Path, strange: &Path, picture: Option<&Path>) -> Result<String> {
    let dir = sh::empty("browser-served")?;
    give_away(&dir)?;
    let server = Server::start(kind, &dir, &["--http-write"])?;
    let mut words = vec![folder, strange];
    words.extend(picture);
    let output = session(&server, "write", &words)?;
    let uploaded = dir.join("folder");
    ensure!(uploaded.join("made").is_dir(), "the new folder");
    std::fs::remove_dir(uploaded.join("made"))?;
    std::fs::rename(uploaded.join("größer & <b>.txt"), uploaded.join("readme.txt"))?;
    let compare = |from: &Path, to: &Path| -> Result<String> {
        let output = sh::cmd("diff", &["-r"]).arg(from).arg(to).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let differences = compare(strange, &dir.join("strange"))?;
    ensure!(differences == format!("Only in {}: a:b\n", strange.display()), "{differences}");
    let differences = compare(folder, &uploaded)?;
    let expected =
        ["empty.txt", "part 3"].map(|name| format!("Only in {}: {name}\n", folder.display()));
    ensure!(differences == expected.concat(), "{differences}");
    Ok(output)
}

/// Visits the folder on a server that cannot be written to over HTTP.
fn visit(kind: Kind, folder: &Path, part: &str) -> Result<String> {
    let server = Server::start(kind, folder, &[])?;
    session(&server, part, &[])
}

/// Runs a part of the session; returns what it did.
fn session(server: &Server, part: &str, words: &[&Path]) -> Result<String> {
    let script = sh::root().join("xtask/conformance/src/browser/session.py");
    let url = format!("http://127.0.0.1:{}/", server.http);
    let mut python = sh::cmd("/usr/bin/python3", &[script]);
    let output = sh::read(python.args([part, &url]).args(words))?;
    let lines: Vec<&str> = output.lines().collect();
    ensure!(!lines.is_empty(), "the session has printed no steps");
    Ok(lines.join("; "))
}

/// A picture of three pixels.
const PICTURE: &[u8] =
    b"\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x03\x00\
    \x00\x00\x01\x08\x02\x00\x00\x00\x94\x82\x83\xe3\x00\x00\x00\x0e\x49\x44\x41\x54\x78\
    \x9c\x63\xf8\xcf\xc0\xc0\x00\xc6\x00\x0e\xfb\x02\xfe\x09\x1c\x16\x34\x00\x00\x00\x00\
    \x49\x45\x4e\x44\xae\x42\x60\x82";
