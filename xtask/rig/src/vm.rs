//! A real Linux kernel in a virtual machine, for the parts of a server that only a kernel client
//! exercises.
//!
//! The guest is Debian's plain kernel (the cloud flavour has no 9p) with busybox, in QEMU by
//! software emulation: no KVM, no root, about five seconds from start to power-off. Its network is
//! QEMU's own, in which the host's loopback is 10.0.2.2. A job is passed as a tar on the first disk
//! and unpacked at `/`; `/job.sh` runs; files are returned as a tar on the second disk, of
//! `/results` or, if `/direct` exists, as written by the job itself to `/dev/vdb`; the job's output
//! arrives over the serial line. Lines of the form `@ok NAME SECONDS NOTE` and `@no NAME SECONDS
//! WHY` are its cases.

mod cpio;
mod image;

use crate::report::Report;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a guest is killed. Emulated processors are slow, and share those of the host.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// A job for the guest.
pub struct Job {
    dir: PathBuf,
    results: PathBuf,
    /// Additional arguments of QEMU.
    more: Vec<String>,
}

impl Job {
    /// Creates a job that runs `script`. `name` is its directory under `target/vm`.
    pub fn new(name: &str, script: &str) -> Result<Job> {
        let dir = sh::empty(&format!("vm/job-{name}"))?;
        let results = sh::scratch("vm")?.join(format!("{name}.results"));
        let job = Job { dir, results, more: Vec::new() };
        job.file("job.sh", script.as_bytes())?;
        Ok(job)
    }

    /// Adds a file to the guest.
    pub fn file(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(path);
        std::fs::create_dir_all(path.parent().expect("a file has a directory"))?;
        std::fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))
    }

    /// Adds a program of the host with its shared libraries, as `/usr/bin/NAME`.
    pub fn program(&self, program: &Path) -> Result<()> {
        let name = program.file_name().context("a program has a name")?;
        let bin = self.dir.join("usr/bin");
        std::fs::create_dir_all(&bin)?;
        std::fs::copy(program, bin.join(name))
            .with_context(|| format!("copy {}", program.display()))?;
        let linked = sh::read(sh::cmd("ldd", &[program]).env("LC_ALL", "C")).unwrap_or_default();
        for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
            let to = self.dir.join(library.trim_start_matches('/'));
            std::fs::create_dir_all(to.parent().expect("a library has a directory"))?;
            std::fs::copy(library, to).with_context(|| format!("copy {library}"))?;
        }
        Ok(())
    }

    /// Adds a third disk, `/dev/vdc`: QEMU's arguments, and the drive's name there.
    pub fn with_disk(mut self, arguments: &[String], name: &str) -> Job {
        self.more = arguments.to_vec();
        // Disks are named in the order of their slots.
        let device = format!("virtio-blk-pci,drive={name},addr=0x1e");
        self.more.extend(["-device".to_owned(), device]);
        self
    }

    /// Boots, runs the job and returns all of its output.
    pub fn run(&self) -> Result<String> {
        self.run_watched(|_| ())
    }

    /// Like `run`; `watch` sees each line as it arrives, so that the host can react. A guest that
    /// fails to boot proves nothing about a server: it is started once more.
    pub fn run_watched(&self, mut watch: impl FnMut(&str)) -> Result<String> {
        let image = image::image()?;
        let disk = self.dir.with_extension("tar");
        sh::read(sh::cmd("tar", &["-cf"]).arg(&disk).arg("-C").arg(&self.dir).arg("."))?;
        pad(&disk)?;
        let first = self.boot(&image, &disk, &mut watch)?;
        let text = match first {
            Ok(text) => text,
            Err(why) => {
                eprintln!("   {why}; once more");
                match self.boot(&image, &disk, &mut watch)? {
                    Ok(text) => text,
                    Err(why) => bail!("{why}, twice"),
                }
            }
        };
        std::fs::remove_file(&disk)?;
        Ok(text)
    }

    /// Returns the output of the guest, or the reason why it did not boot.
    fn boot(
        &self,
        image: &image::Image,
        disk: &Path,
        watch: &mut impl FnMut(&str),
    ) -> Result<Result<String, String>> {
        std::fs::File::create(&self.results)?.set_len(4 << 30)?;
        let complaints = self.dir.with_extension("err");
        let mut qemu = qemu(image, disk, &self.results);
        qemu.args(&self.more).stderr(std::fs::File::create(&complaints)?);
        let mut child = qemu.spawn().context("start QEMU")?;
        let stdout = child.stdout.take().context("QEMU's output is a pipe")?;
        let watchdog = Watchdog::new(&child);
        let mut text = String::new();
        let mut log = std::fs::File::create(self.dir.with_extension("log"))?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).trim_end_matches('\r').to_owned();
            watch(&line);
            writeln!(log, "{line}")?;
            text.push_str(&line);
            text.push('\n');
        }
        let late = watchdog.stop();
        let status = child.wait()?;
        if late {
            bail!("the guest did not end in {TIME_MAX:?}; output: {}", sh::tail(&text, 1500));
        }
        if !text.contains("@booted") {
            let complaints = std::fs::read_to_string(&complaints)?;
            let printed = sh::tail(&text, 1500);
            let why =
                format!("the guest did not boot; output: {printed}; QEMU ({status}): {complaints}");
            return Ok(Err(why));
        }
        Ok(Ok(text))
    }

    /// Returns the tar with the files of `/results`, or the data written to the disk by the job.
    pub fn results(&self) -> &Path {
        &self.results
    }
}

/// Adds the `@ok` and `@no` lines to the report; a name of `expected` without a line failed.
pub fn enter(report: &mut Report, suite: &str, text: &str, expected: &[&str]) {
    let mut missing: BTreeSet<&str> = expected.iter().copied().collect();
    for line in text.lines().filter(|line| line.starts_with('@')) {
        let mut words = line.splitn(4, ' ');
        let (verdict, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let seconds = words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
        let note = words.next().unwrap_or("").to_owned();
        let outcome = match verdict {
            "@ok" => Ok(note),
            "@no" => Err(note),
            _ => continue,
        };
        missing.remove(name);
        report.line(&format!("{suite}/{name}"), outcome, seconds);
    }
    let mut last = format!("no verdict; last output: {}", sh::tail(text, 600));
    for name in missing {
        let why = std::mem::replace(&mut last, "no verdict".into());
        report.line(&format!("{suite}/{name}"), Err(why), 0.0);
    }
}

/// Returns the beginning of every job: mounts the server on `/mnt`, or ends the job, so that no
/// suite can pass on the guest's own file system.
pub fn mount_script(port: u16, aname: &str, options: &str) -> String {
    format!(
        "mount -t 9p -o trans=tcp,port={port},version=9p2000.L,aname={aname},\
         access=user,msize=1048576,{options} 10.0.2.2 /mnt || {{\n    \
         echo '@no mount 0 refused'; exit 1; }}\n"
    )
}

/// Returns the beginning of a job that mounts the server by NFS. Every call of a program reaches
/// the server: attributes are not cached, and writes are synchronous at the latest at the close.
pub fn mount_nfs_script(port: u16) -> String {
    format!(
        "mount -t nfs -o vers=3,proto=tcp,mountproto=tcp,port={port},mountport={port},nolock,noac,\
         hard,lookupcache=none,addr=10.0.2.2 10.0.2.2:/ /mnt || {{\n    \
         echo '@no mount 0 refused'; exit 1; }}\n"
    )
}

fn qemu(image: &image::Image, disk: &Path, results: &Path) -> Command {
    let mut qemu = Command::new("qemu-system-x86_64");
    // The simplest processor is emulated twice as fast as the newest; a second one costs more in
    // locking than it gains.
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "qemu64", "-smp", "1", "-m", "1536"]);
    qemu.args(["-no-reboot", "-nographic", "-nodefaults", "-M", "pc", "-serial", "stdio"]);
    qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initrd);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable"]);
    qemu.args(["-netdev", "user,id=n0,restrict=off"]);
    // An interrupt for every packet: a card with suppressed notifications was seen to stall.
    qemu.args(["-device", "virtio-net-pci,netdev=n0,romfile=,event_idx=off"]);
    let drive = |file: &Path, more| format!("file={},format=raw,if=virtio{more}", file.display());
    qemu.arg("-drive").arg(drive(disk, ",readonly=on"));
    qemu.arg("-drive").arg(drive(results, ""));
    qemu.stdin(Stdio::null()).stdout(Stdio::piped());
    qemu
}

fn pad(disk: &Path) -> Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(disk)?;
    let length = file.metadata()?.len();
    Ok(file.set_len(length.next_multiple_of(512))?)
}

/// Kills QEMU, by its process id, after the timeout.
struct Watchdog {
    done: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<bool>,
}

impl Watchdog {
    fn new(child: &Child) -> Watchdog {
        let pid = rustix::process::Pid::from_child(child);
        let (done, wait) = std::sync::mpsc::channel();
        let end = Instant::now() + TIME_MAX;
        let thread = std::thread::spawn(move || {
            let left = end.saturating_duration_since(Instant::now());
            let late = wait.recv_timeout(left) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if late {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            late
        });
        Watchdog { done, thread }
    }

    /// Returns whether the timeout had expired.
    fn stop(self) -> bool {
        let _ = self.done.send(());
        self.thread.join().unwrap_or(true)
    }
}
