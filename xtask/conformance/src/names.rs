//! Two diods, a volume and directories of the host joined by a names file: Linux mounts all of it
//! over one connection, walks and reads across all parts, and loses only the parts whose server
//! fails.

use super::TRUST;
use anyhow::{Context, Result, ensure};
use rig::report::Report;
use rig::server::{Kind, Server, free_port};
use rig::vm::{self, Job};
use rig::{sh, volume};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Script of the Linux client. It requests the kill and the restart of a server, and waits for each
/// to take effect.
const SCRIPT: &str = include_str!("guest/space");

const CASES: [&str; 10] =
    ["listed", "read", "union", "up", "written", "refused", "dead", "others", "back", "umount"];

/// Number of files of each part.
const FILES: usize = 100;

/// A diod that can be killed and restarted at the same address.
struct Diod {
    dir: PathBuf,
    port: u16,
    child: Child,
}

impl Diod {
    fn start(dir: &Path, port: u16) -> Result<Diod> {
        let path = sh::which("diod").context("diod is not installed")?;
        let mut command = Command::new(path);
        command.args(["-f", "-n", "-c", "/dev/null", "-l", &format!("127.0.0.1:{port}"), "-e"]);
        let command = command.arg(dir).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().context("start diod")?;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Diod { dir: dir.to_owned(), port, child })
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Diod {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the suite.
pub(crate) fn run(report: &mut Report, kind: Kind) -> Result<()> {
    if kind == Kind::Diod {
        report.skip("names", "diod joins nothing");
        return Ok(());
    }
    let base = sh::empty("served/names")?;
    let parts = ["one", "two", "host", "root", "inside"].map(|name| base.join(name));
    let [one, two, host, root, inside] = &parts;
    for (number, part) in parts.iter().enumerate() {
        fill(part, number)?;
    }
    for place in ["one", "two", "vol", "host", "all", "bound"] {
        std::fs::create_dir(root.join(place))?;
    }
    let file = base.join("space.volume");
    volume::create(&file, "256M")?;
    volume::copy_in(inside, &file)?;
    let (port_one, port_two) = (free_port()?, free_port()?);
    let mut first = Diod::start(one, port_one)?;
    let _second = Diod::start(two, port_two)?;
    let at = |port: u16, dir: &Path| format!("9p://127.0.0.1:{port}{}", dir.display());
    let (at_one, at_two) = (at(port_one, one), at(port_two, two));
    let (root_dir, host_dir, volume_file) = (root.display(), host.display(), file.display());
    let text = format!(
        "mount / host:{root_dir}\nmount /one {at_one}\nmount /two {at_two}\n\
         mount -c /vol volume:{volume_file}\nmount /host host:{host_dir}\n\
         mount /all {at_one}\nmount -a /all {at_two}\nmount -ac /all host:{host_dir}\n\
         bind /vol/deep /bound\n"
    );
    let names = base.join("names");
    std::fs::write(&names, text)?;
    let mut server = Server::start_space(kind, &names, TRUST)?;
    let script = vm::mount_script(server.ninep, "/", "cache=none") + SCRIPT;
    let job = Job::new("names", &script)?;
    job.file("sums", expected(&parts)?.as_bytes())?;
    let printed = job.run_watched(|line| match line.trim() {
        "@host kill" => first.kill(),
        "@host start" => {
            let (dir, port) = (first.dir.clone(), first.port);
            match Diod::start(&dir, port) {
                Ok(again) => first = again,
                Err(error) => eprintln!("   {error:#}"),
            }
        }
        _ => {}
    })?;
    vm::enter(report, "names", &printed, &CASES);
    report.case("names/written_where_it_should", || {
        let text = std::fs::read_to_string(host.join("from-linux"))?;
        ensure!(text == "new\n" && !one.join("from-linux").exists(), "{text:?}");
        Ok("in the member marked for it".into())
    });
    report.case("names/server_lives", || {
        ensure!(server.alive(), "the server died: {}", sh::tail(&server.printed(), 500));
        server.stop()?;
        Ok(String::new())
    });
    report.case("names/volume_is_clean", || volume::check(&file));
    report.case("names/mistakes_are_named", || mistakes(&names));
    Ok(())
}

fn fill(dir: &Path, salt: usize) -> Result<()> {
    let deep = dir.join("deep/down");
    std::fs::create_dir_all(&deep)?;
    for number in 0..FILES {
        let text = format!("{salt} {number}\n").repeat(number % 97 + 1);
        std::fs::write(dir.join(format!("deep/down/file-{number}")), text)?;
    }
    std::fs::write(dir.join("who"), format!("{}\n", dir.display()))?;
    std::fs::write(dir.join(format!("only-{salt}")), format!("{salt}\n"))?;
    Ok(())
}

/// Returns the expected `md5sum` output of every file, as seen by Linux.
fn expected(parts: &[PathBuf; 5]) -> Result<String> {
    let mut sums = String::new();
    let seen = [(0, "one"), (1, "two"), (2, "host"), (4, "vol")];
    for (part, place) in seen {
        let script = "cd \"$0\" && find . -type f | sort | xargs md5sum";
        let printed = sh::read(sh::cmd("sh", &["-c", script]).arg(&parts[part]))?;
        for line in printed.lines() {
            let (sum, name) = line.split_once("  ./").context("md5sum speaks otherwise")?;
            writeln!(sums, "{sum}  {place}/{name}")?;
            if let Some(rest) = name.strip_prefix("deep/").filter(|_| place == "vol") {
                writeln!(sums, "{sum}  bound/{rest}")?;
            }
        }
    }
    Ok(sums)
}

/// Tests that the server refuses to start with an invalid names file, and reports the position.
fn mistakes(names: &Path) -> Result<String> {
    let file = names.with_extension("wrong");
    let dir = names.parent().context("the file is in a directory")?.display();
    let wrong = [
        (format!("mount / host:{dir}\nmont /x host:/\n"), ":2: no command `mont`"),
        ("mount /x host:/nowhere-at-all\n".into(), ":1: cannot serve /nowhere-at-all"),
        (
            format!("mount / host:{dir}\nbind /nowhere-at-all /tmp\n"),
            ":2: bind /nowhere-at-all /tmp: ",
        ),
    ];
    for (text, shows) in &wrong {
        std::fs::write(&file, text)?;
        let mut command = Command::new(rig::server::binary());
        command.args(["serve", "--9p", "127.0.0.1:0", "--http", "none", "--names"]).arg(&file);
        let output = command.stdin(Stdio::null()).output()?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && printed.contains(*shows), "{text:?}: {printed}");
    }
    Ok(format!("{} files", wrong.len()))
}
