//! A real tree of more than 50,000 files, a Linux source package of Debian, read by curl and by the
//! kernel's 9P client, and compared with the checksums of the files themselves.
//!
//! curl reads all of it. The emulated kernel would need a quarter of an hour, which it gets with
//! `--long`; otherwise it reads some parts.

use super::{TRUST, aname};
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::{Kind, Server};
use rig::vm::{self, Job};
use rig::{linux, sh};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Parts read by the kernel: by default, and with `--long`.
const PARTS: &str = "fs scripts";
const PARTS_LONG: &str = ".";

/// Prints a checksum and the name of every file.
const SUMS: &str = "find . -type f -print0 | sort -z | xargs -0 -n 500 md5sum";

/// Returns a script for the guest: writes parts of the mount as a tar to the disk that is returned.
/// GNU tar reads in large pieces and from within each directory, which saves the emulated kernel
/// three messages for every directory on the path of every file.
fn pack(parts: &str) -> String {
    let tar = format!("/usr/bin/tar -b 512 -cf /dev/vdb {parts}");
    format!(": > /direct; cd /mnt && {tar} && echo '@packed'\ncd /; umount /mnt\n")
}

/// Returns a script for the guest: a kernel that caches directories (cache=loose) holds a fid for
/// each entry it has seen; -size makes find stat each of them.
fn count(part: &str) -> String {
    let find = format!("/usr/bin/find {part} -type f -size -1000000k");
    format!("cd /mnt && echo \"@counted $({find} | wc -l)\"; cd /\n")
}

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    let dir = linux::source()?;
    let expected = sums(&shell(&dir, SUMS)?);
    println!("  {} files in {}", expected.len(), dir.file_name().unwrap_or_default().display());
    ensure!(expected.len() > 50_000, "the tree has only {} files", expected.len());
    let mut extra = TRUST.to_vec();
    extra.push("--read-only");
    let server = Server::start(kind, &dir, &extra)?;
    if kind != Kind::Diod {
        report.case("tree/http", || by_http(&server, &dir, &expected));
    }
    let parts = parts(report);
    report.case("tree/9p", || by_kernel("tree", &server, &dir, parts));
    report.case("tree/9p_cache_loose", || by_remembering_kernel(&server, &expected));
    Ok(())
}

/// Returns the parts read by the kernel.
pub(super) fn parts(report: &Report) -> &'static str {
    if report.long { PARTS_LONG } else { PARTS }
}

fn shell(dir: &Path, script: &str) -> Result<String> {
    let mut bash = sh::cmd("sh", &["-c", script]);
    sh::read(bash.current_dir(dir).env("LC_ALL", "C"))
}

/// Parses `CHECKSUM  ./NAME` lines.
fn sums(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| line.split_once("  ./"))
        .map(|(sum, name)| (name.to_owned(), sum.to_owned()))
        .collect()
}

/// Reads some parts, or `.`, by the kernel; tar on the host compares bytes, modes, times, owners
/// and links.
pub(super) fn by_kernel(name: &str, server: &Server, dir: &Path, parts: &str) -> Result<String> {
    let script = vm::mount_script(server.ninep, &aname(server), "cache=none,ro") + &pack(parts);
    let job = Job::new(name, &script)?;
    job.program(&sh::which("tar").context("no tar")?)?;
    let text = job.run()?;
    ensure!(text.contains("@packed"), "not everything was read: {}", sh::tail(&text, 1000));
    sh::read(sh::cmd("tar", &["-df"]).arg(job.results()).arg("-C").arg(dir))?;
    let list = sh::read(sh::cmd("tar", &["-tf"]).arg(job.results()))?;
    let packed = list.lines().filter(|line| !line.ends_with('/')).count();
    let there = shell(dir, &format!("find {parts} ! -type d | wc -l"))?;
    ensure!(there.trim() == packed.to_string(), "{packed} files of {} came", there.trim());
    std::fs::remove_file(job.results())?;
    Ok(format!("tar finds no difference in {packed} files and links"))
}

/// Counts names by a kernel that caches. A file known to a client is an open file of the server,
/// and some hosts have a low limit: then the largest part of the tree that fits is read.
fn by_remembering_kernel(server: &Server, expected: &BTreeMap<String, String>) -> Result<String> {
    let room = server.open_files()? * 3 / 4;
    let mut parts: BTreeMap<&str, usize> = BTreeMap::from([(".", expected.len())]);
    for name in expected.keys() {
        *parts.entry(name.split_once('/').map_or("", |(top, _)| top)).or_default() += 1;
    }
    let fits = parts.iter().filter(|(part, files)| !part.is_empty() && **files < room);
    let (part, files) = fits.max_by_key(|(_, files)| **files).context("nothing fits")?;
    let script = vm::mount_script(server.ninep, &aname(server), "cache=loose,ro") + &count(part);
    let job = Job::new("tree-loose", &script)?;
    job.program(&sh::which("find").context("no find")?)?;
    let text = job.run()?;
    ensure!(text.contains(&format!("@counted {files}\n")), "{}", sh::tail(&text, 500));
    Ok(format!("{files} names in {part}; the server may open {room} files and a third"))
}

fn by_http(server: &Server, dir: &Path, expected: &BTreeMap<String, String>) -> Result<String> {
    let out = sh::empty("tree-by-http")?;
    let mut config = String::new();
    for name in expected.keys() {
        let url = encoded(name);
        writeln!(config, "url = \"http://127.0.0.1:{}/{url}\"", server.http)?;
        writeln!(config, "output = \"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))?;
    }
    let file = out.with_extension("curl");
    std::fs::write(&file, config)?;
    let mut curl = sh::cmd("curl", &["-sS", "-f", "--create-dirs", "--path-as-is", "-K"]);
    sh::read(curl.arg(&file).current_dir(&out)).context("curl")?;
    let got = sums(&shell(&out, SUMS)?);
    compare(&got, expected)?;
    let bytes = sh::read(sh::cmd("du", &["-s", "--apparent-size", "-BM"]).arg(dir))?;
    std::fs::remove_dir_all(&out)?;
    let size = bytes.split_whitespace().next().unwrap_or("").to_owned();
    Ok(format!("{} files equal, {size}", expected.len()))
}

fn encoded(name: &str) -> String {
    let mut url = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}

fn compare(got: &BTreeMap<String, String>, expected: &BTreeMap<String, String>) -> Result<()> {
    let wrong: Vec<_> = expected
        .iter()
        .filter(|(name, sum)| got.get(*name) != Some(sum))
        .map(|(name, _)| name.as_str())
        .collect();
    ensure!(
        wrong.is_empty() && got.len() == expected.len(),
        "{} of {} files differ, first: {:?}; {} files came",
        wrong.len(),
        expected.len(),
        &wrong[..wrong.len().min(3)],
        got.len()
    );
    Ok(())
}
