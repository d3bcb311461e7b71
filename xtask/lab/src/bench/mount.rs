//! Mounts over links with a delay: `upcall mount` of a volume, of a directory with and without
//! reports of changes, and of diod; sshfs; rclone.
//!
//! Each measurement has a mount of its own, so nothing is cached at the client; the files are in
//! the server's page cache. sshfs speaks with `sftp-server` without ssh (`directport`), so neither
//! side encrypts. rclone reads our HTTP server, and does not write.

use super::figures::{Figures, markdown};
use super::{Plan, record};
use crate::link;
use crate::peer_mount::PeerMount;
use anyhow::{Context as _, Result, ensure};
use rig::mounted::Mounted;
use rig::server::{Kind, Server};
use rig::{sh, volume};
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Delays of the links, each way.
const DELAYS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(20)];

/// Directories of the tree, and files of each.
const DIRECTORIES: usize = 40;
const FILES: usize = 10;

/// Files that are created, looked at and removed.
const CREATED: usize = 50;

/// Size of the large file, in bytes; size and number of reads at random places in it.
const LARGE: usize = 64 << 20;
const PAGE: usize = 4096;
const READS: usize = 200;

/// Contestant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Volume,
    Watched,
    Directory,
    Diod,
    Sshfs,
    Rclone,
}

const PEERS: [(Peer, &str); 6] = [
    (Peer::Volume, "volume"),
    (Peer::Watched, "directory, -o watch"),
    (Peer::Directory, "directory"),
    (Peer::Diod, "diod"),
    (Peer::Sshfs, "sshfs"),
    (Peer::Rclone, "rclone"),
];

/// Kind of work, with its number of operations.
struct Item {
    name: &'static str,
    count: usize,
    run: fn(&Path) -> Result<()>,
    writes: bool,
}

const ITEMS: [Item; 6] = [
    Item { name: "find, files", count: DIRECTORIES * FILES, run: find, writes: false },
    Item { name: "find -size +0, files", count: DIRECTORIES * FILES, run: sizes, writes: false },
    Item { name: "grep -r, files of 1 KiB", count: DIRECTORIES * FILES, run: grep, writes: false },
    Item { name: "read 64 MiB in order, MiB", count: LARGE >> 20, run: sequential, writes: false },
    Item { name: "read 4 KiB at random, 1 outstanding", count: READS, run: random, writes: false },
    Item { name: "create, stat, remove, files", count: CREATED, run: create, writes: true },
];

/// Servers of all contestants.
struct Servers {
    volume: Server,
    directory: Server,
    sftp: u16,
}

/// Runs the benchmark.
pub(super) fn run(plan: &Plan) -> Result<String> {
    let base = sh::empty("bench/mount")?;
    let servers = start(&base)?;
    let mut text = format!(
        "{}; {}; {} rounds in turn, order alternating, each with a mount of its own. Operations \
         per second of wall-clock time, from the start of the program to its end; the first column \
         is compared with each other one, round by round.\n",
        rig::machine::describe(),
        record::packages(&["diod", "sshfs", "rclone"]),
        plan.rounds,
    );
    for delay in DELAYS {
        let mut rows = Vec::new();
        for item in &ITEMS {
            eprintln!("   {} ms: {}", delay.as_millis(), item.name);
            rows.push(measure(plan, item, &servers, delay)?);
        }
        let names = PEERS.map(|(_, name)| name);
        let _ =
            write!(text, "\n**{} ms each way**\n\n{}", delay.as_millis(), markdown(&rows, &names));
    }
    drop(servers);
    sh::empty("bench/mount")?;
    Ok(text)
}

fn measure(plan: &Plan, item: &Item, servers: &Servers, delay: Duration) -> Result<Figures> {
    let mut figures = Figures::new(item.name, PEERS.len());
    let mut order: Vec<usize> = (0..PEERS.len()).collect();
    for _ in 0..plan.rounds {
        for at in &order {
            let (peer, name) = PEERS[*at];
            if item.writes && peer == Peer::Rclone {
                continue;
            }
            let context = || format!("{} on {name}", item.name);
            let seconds = once(servers, peer, item, delay).with_context(context)?;
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            figures.samples[*at].push(item.count as f64 / seconds);
        }
        order.reverse();
    }
    Ok(figures)
}

fn once(servers: &Servers, peer: Peer, item: &Item, delay: Duration) -> Result<f64> {
    let to = |port| if delay.is_zero() { Ok(port) } else { link::relay(port, delay) };
    let dir = sh::empty("bench/mount/place")?;
    let timed = |root: PathBuf| {
        let begin = Instant::now();
        (item.run)(&root)?;
        anyhow::Ok(begin.elapsed().as_secs_f64())
    };
    let ours = |port, options: &str| {
        let mounted = Mounted::start_at(to(port)?, dir.clone(), options)?;
        let seconds = timed(dir.clone())?;
        mounted.stop()?;
        Ok(seconds)
    };
    match peer {
        Peer::Volume => ours(servers.volume.ninep, ""),
        Peer::Watched => ours(servers.directory.ninep, "watch"),
        Peer::Directory => ours(servers.directory.ninep, ""),
        Peer::Diod => {
            // It may end with its client.
            let diod = Server::start(Kind::Diod, &servers.directory.dir, &[])?;
            let seconds = ours(diod.ninep, &format!("aname={}", diod.dir.display()))?;
            drop(diod);
            Ok(seconds)
        }
        Peer::Sshfs => {
            let source = format!("127.0.0.1:{}", servers.directory.dir.display());
            let mut sshfs = Command::new("sshfs");
            sshfs.args(["-f", "-o", &format!("directport={}", to(servers.sftp)?), &source]);
            sshfs.arg(&dir);
            let other = PeerMount::start(sshfs, &dir)?;
            let seconds = timed(dir.clone())?;
            drop(other);
            Ok(seconds)
        }
        Peer::Rclone => {
            let url = format!("http://127.0.0.1:{}", to(servers.directory.http)?);
            let mut rclone = Command::new("rclone");
            rclone.args(["mount", "--read-only", "--config", "/dev/null", "--http-url", &url]);
            rclone.arg(":http:").arg(&dir);
            let other = PeerMount::start(rclone, &dir)?;
            let seconds = timed(dir.clone())?;
            drop(other);
            Ok(seconds)
        }
    }
}

fn start(base: &Path) -> Result<Servers> {
    let dir = base.join("files");
    for number in 0..DIRECTORIES {
        let parent = dir.join(format!("d{}/e{number}", number % 8));
        fs::create_dir_all(&parent)?;
        for file in 0..FILES {
            fs::write(parent.join(format!("f{file}")), "text of a file\n".repeat(68))?;
        }
    }
    fs::write(dir.join("large"), vec![7; LARGE])?;
    let file = base.join("volume");
    volume::create(&file, "512M")?;
    volume::copy_in(&dir, &file)?;
    Ok(Servers {
        volume: Server::start(Kind::Uring, &file, &[])?,
        directory: Server::start(Kind::Uring, &dir, &[])?,
        sftp: serve_sftp()?,
    })
}

/// Starts a server of SFTP for each connection, until this process exits.
fn serve_sftp() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.set_nodelay(true);
            let Ok(input) = stream.try_clone() else { continue };
            let (input, output) = (OwnedFd::from(input), OwnedFd::from(stream));
            let mut server = Command::new("/usr/lib/openssh/sftp-server");
            // The mount fails without it.
            if let Ok(mut child) = server.stdin(input).stdout(output).stderr(Stdio::null()).spawn()
            {
                std::thread::spawn(move || child.wait());
            }
        }
    });
    Ok(port)
}

fn find(root: &Path) -> Result<()> {
    let found = sh::read(sh::cmd("find", &[root]).args(["-name", "f*"]))?;
    ensure!(found.lines().count() == DIRECTORIES * FILES, "{} files", found.lines().count());
    Ok(())
}

fn sizes(root: &Path) -> Result<()> {
    let found = sh::read(sh::cmd("find", &[root]).args(["-name", "f*", "-size", "+0"]))?;
    ensure!(found.lines().count() == DIRECTORIES * FILES, "{} files", found.lines().count());
    Ok(())
}

fn grep(root: &Path) -> Result<()> {
    let counted = sh::read(sh::cmd("grep", &["-rc", "--include=f*", "file"]).arg(root))?;
    let files = counted.lines().filter(|line| line.ends_with(":68")).count();
    ensure!(files == DIRECTORIES * FILES, "{files} files");
    Ok(())
}

fn sequential(root: &Path) -> Result<()> {
    let bytes = fs::read(root.join("large"))?;
    ensure!(bytes.len() == LARGE, "{} bytes", bytes.len());
    Ok(())
}

fn random(root: &Path) -> Result<()> {
    let file = fs::File::open(root.join("large"))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
    let (mut bytes, mut place) = ([0; PAGE], 0);
    for _ in 0..READS {
        // A step that is prime to the number of pages visits all of them.
        place = (place + 7919) % (LARGE / PAGE);
        file.read_exact_at(&mut bytes, (place * PAGE) as u64)?;
    }
    Ok(())
}

fn create(root: &Path) -> Result<()> {
    let dir = root.join("created");
    fs::create_dir(&dir)?;
    for number in 0..CREATED {
        let path = dir.join(number.to_string());
        fs::write(&path, "text")?;
        ensure!(path.metadata()?.len() == 4, "another size");
        fs::remove_file(&path)?;
    }
    Ok(fs::remove_dir(&dir)?)
}
