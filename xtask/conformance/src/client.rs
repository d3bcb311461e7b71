//! Our own client commands: trees of 2,000 files and a file of 256 MiB copied from a server and to
//! it, compared byte for byte. Besides our server, in both protocols, they are tested with diod.

use super::{aname, give_away, served};
use anyhow::{Context, Result, ensure};
use rig::client::{Client, Message, ROOT, Slot, Work};
use rig::report::Report;
use rig::server::{self, Kind, Server};
use rig::sh;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIRS: usize = 20;
const FILES: usize = 100;
const BIG: u64 = 256 << 20;

/// Outstanding reads of the minimal client that `cat` is compared with, and bytes of each.
const OUTSTANDING: u16 = 32;
const PIECE: u32 = 65_512;

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    run_with(report, kind)?;
    if kind == Kind::Diod { Ok(()) } else { run_with(report, Kind::Diod) }
}

fn run_with(report: &mut Report, kind: Kind) -> Result<()> {
    let dir = served(&format!("client-{}", kind.name()))?;
    fill(&dir)?;
    give_away(&dir)?;
    let here = sh::empty(&format!("client-{}", kind.name()))?;
    let mut server = Server::start(kind, &dir, &[])?;
    let protocols: &[&str] =
        if kind == Kind::Diod { &["9P2000.L"] } else { &["9P2000.L", "9P2000"] };
    for protocol in protocols {
        let case = |name: &str| format!("client/{}/{protocol}/{name}", kind.name());
        let with = Commands { server: &server, protocol };
        report.case(&case("ls"), || with.listed());
        report.case(&case("get_tree"), || with.got(&dir, &here));
        report.case(&case("put_tree"), || with.put(&dir));
        report.case(&case("rm_tree"), || {
            with.send("rm", &["-r", "/sent"])?;
            ensure!(!dir.join("sent").exists(), "it is still there");
            Ok(String::new())
        });
        report.case(&case("put_large"), || with.put_large(&dir));
        report.case(&case("cat_large"), || with.cat(&dir));
        report.case(&case("get_refused"), || with.refused(&here));
    }
    report.case(&format!("client/{}/server_lives", kind.name()), || {
        ensure!(server.alive(), "the server died: {}", sh::tail(&server.printed(), 500));
        server.stop().map(|_| String::new())
    });
    for dir in [dir, here] {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Creates a tree of small files and links, one without links, and a large file.
fn fill(dir: &Path) -> Result<()> {
    for number in 0..DIRS {
        let inner = dir.join(format!("tree/dir-{number}/inner"));
        std::fs::create_dir_all(&inner)?;
        for file in 0..FILES {
            let bytes: Vec<u8> =
                (0..file * 97).map(|n| (n * number / 3).to_le_bytes()[0]).collect();
            std::fs::write(inner.join(format!("file-{file}")), bytes)?;
        }
    }
    std::fs::create_dir(dir.join("links"))?;
    for (target, name) in [("../tree/dir-1", "dir"), ("nowhere", "dangling"), ("/tree", "root")] {
        std::os::unix::fs::symlink(target, dir.join("links").join(name))?;
    }
    let mut big = std::io::BufWriter::new(std::fs::File::create(dir.join("big"))?);
    let mut block = vec![0_u8; 1 << 20];
    for number in 0..BIG >> 20 {
        for (at, word) in block.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(
                &(number << 32 | at as u64).wrapping_mul(0x9E37_79B9).to_le_bytes(),
            );
        }
        big.write_all(&block)?;
    }
    Ok(big.flush()?)
}

/// Our commands against a server over one protocol.
struct Commands<'a> {
    server: &'a Server,
    protocol: &'a str,
}

impl Commands<'_> {
    fn command(&self, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new(server::binary());
        command.arg(name).args(["--protocol", self.protocol, "--aname", &aname(self.server)]);
        command.arg(format!(":{}", self.server.ninep)).args(words).stdin(Stdio::null());
        command
    }

    fn send(&self, name: &str, words: &[&str]) -> Result<String> {
        sh::read(&mut self.command(name, words))
    }

    fn listed(&self) -> Result<String> {
        let all = self.send("ls", &["-R", "/tree"])?;
        let count = all.lines().filter(|line| line.contains("/file-")).count();
        ensure!(count == DIRS * FILES, "{count} files");
        let long = self.send("ls", &["-l", "/tree/dir-7/inner"])?;
        let sizes: Vec<_> =
            long.lines().filter_map(|line| line.split_whitespace().nth(4)).collect();
        ensure!(sizes.contains(&(97 * 99).to_string().as_str()), "{}", sh::tail(&long, 300));
        Ok(format!("{count} files"))
    }

    /// Returns the trees to copy: those with links only over 9P2000.L.
    fn trees(&self) -> &'static [&'static str] {
        if self.protocol == "9P2000" { &["tree"] } else { &["tree", "links"] }
    }

    fn got(&self, dir: &Path, here: &Path) -> Result<String> {
        let mut printed = String::new();
        for tree in self.trees() {
            let to = here.join(format!("{tree}-{}", self.protocol));
            printed +=
                &self.send("get", &["-r", &format!("/{tree}"), &to.display().to_string()])?;
            same(&dir.join(tree), &to)?;
        }
        Ok(printed.lines().next().unwrap_or_default().to_owned())
    }

    fn put(&self, dir: &Path) -> Result<String> {
        let mut printed = String::new();
        self.send("mkdir", &["-p", "/sent"])?;
        for tree in self.trees() {
            let (from, to) = (dir.join(tree), format!("/sent/{tree}"));
            printed += &self.send("put", &["-r", &from.display().to_string(), &to])?;
            same(&from, &dir.join("sent").join(tree))?;
        }
        Ok(printed.lines().next().unwrap_or_default().to_owned())
    }

    fn put_large(&self, dir: &Path) -> Result<String> {
        let printed = self.send("put", &[&dir.join("big").display().to_string(), "/copy"])?;
        sh::read(sh::cmd("cmp", &[dir.join("big"), dir.join("copy")]).current_dir(dir))?;
        self.send("rm", &["/copy"])?;
        Ok(printed.trim().to_owned())
    }

    /// Compares the output of `cat`, and reports its rate beside that of a client that discards the
    /// data.
    fn cat(&self, dir: &Path) -> Result<String> {
        let mut cat = self.command("cat", &["/big"]).stdout(Stdio::piped()).spawn()?;
        let output = cat.stdout.take().context("it is a pipe")?;
        let mut compare = sh::cmd("cmp", &["-"]);
        sh::read(compare.arg(dir.join("big")).stdin(output))?;
        ensure!(cat.wait()?.success(), "cat failed");
        let mut rates = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let start = Instant::now();
            ensure!(self.command("cat", &["/big"]).stdout(Stdio::null()).status()?.success());
            rates.0.push(rate(start.elapsed()));
            rates.1.push(bare(self.server)?);
        }
        let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
        let (ours, bare) = (best(&rates.0), best(&rates.1));
        Ok(format!("{ours:.0} MiB/s; a bare client, {OUTSTANDING} outstanding: {bare:.0} MiB/s"))
    }

    fn refused(&self, here: &Path) -> Result<String> {
        let to = here.join("nothing").display().to_string();
        let output = self.command("get", &["/tree/nothing", &to]).output()?;
        let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(
            output.status.code() == Some(1) && printed.contains("/tree/nothing: "),
            "{printed}"
        );
        ensure!(!Path::new(&to).exists(), "something is there");
        Ok(printed)
    }
}

fn rate(elapsed: Duration) -> f64 {
    (BIG >> 20) as f64 / elapsed.as_secs_f64()
}

/// Returns the rate, MiB/s, of a client that discards the data.
fn bare(server: &Server) -> Result<f64> {
    const FILE: u32 = 1;
    let mut client = Client::attach(server.ninep, &aname(server))?;
    client.call(|out| {
        Message::new(out, 110, 0).u32(ROOT).u32(FILE).u16(1).text("big");
    })?;
    client.call(|out| {
        Message::new(out, 12, 0).u32(FILE).u32(0);
    })?;
    let next = std::cell::Cell::new(0);
    let build = |slot: &mut Slot, out: &mut Vec<u8>| {
        Message::new(out, 116, slot.tag).u32(FILE).u64(next.get()).u32(PIECE);
        next.set(next.get() + u64::from(PIECE));
    };
    let work = Work { steps: 1, build: &build };
    let start = Instant::now();
    client.run_while(&work, OUTSTANDING, || next.get() < BIG)?;
    Ok(rate(start.elapsed()))
}

/// Ensures that two trees have the same names, contents and links.
fn same(one: &Path, other: &Path) -> Result<()> {
    sh::read(sh::cmd("diff", &["-r", "--no-dereference"]).arg(one).arg(other)).map(|_| ())
}
