//! Random 4 KiB reads from 8 GiB of uncached data: a volume over HTTP and 9P, against a file on
//! ext4 served by nginx and diod with their default settings.
//!
//! Before each kind of work the kernel's page cache is dropped and the server restarted: a volume
//! bypasses the page cache and has a cache of 256 MiB of its own.

use super::figures::{self, Figures};
use super::files::forget;
use super::ninep::{TLOPEN, TREAD, TWALK};
use super::{Plan, record};
use anyhow::{Context, Result, ensure};
use rig::client::{Client, Message, ROOT, Slot, Work};
use rig::machine::{core, pin};
use rig::server::{Kind, Server};
use rig::{sh, volume};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of the data, bytes.
const BYTES: u64 = 8 << 30;
const PAGE: u64 = 4096;

/// Connections over HTTP, and messages in flight over 9P.
const DEPTHS: [u16; 3] = [1, 32, 128];

const BIG: u32 = 1;

/// Script for wrk that requests random pages of the file; the requests are built in advance,
/// because wrk has only one processor.
const SCRIPT: &str = "math.randomseed(os.time())\n\
    local requests, last = {}, 0\n\
    init = function()\n\
    for n = 1, 100000 do\n\
    local at = math.random(0, PAGES - 1) * 4096\n\
    requests[n] = wrk.format('GET', '/big', {['Range'] = 'bytes=' .. at .. '-' .. (at + 4095)})\n\
    end\n\
    end\n\
    request = function()\n\
    last = last % 100000 + 1\n\
    return requests[last]\n\
    end\n";

/// Runs the benchmark.
pub(crate) fn run(plan: &Plan) -> Result<String> {
    let (dir, file) = made()?;
    let script = dir.with_extension("lua");
    std::fs::write(&script, SCRIPT.replace("PAGES", &(BYTES / PAGE).to_string()))?;
    let by_http = |server: &Server, depth| by_wrk(server, &script, depth, plan.time);
    let volume = (Kind::Uring, file.as_path());
    let http = rows(plan, "HTTP, connections", &[volume, (Kind::Nginx, &dir)], &by_http)?;
    pin(core(1));
    let by_9p = |server: &Server, depth| by_client(server, depth, plan.time);
    let ninep = rows(plan, "9P, outstanding", &[volume, (Kind::Diod, &dir)], &by_9p)?;
    sh::empty("bench/cold")?;
    let method = format!(
        "{}; {}; {} rounds of {:.1} s, in turn, order alternating; server on processor 0, client \
         on processor 1; {} GiB, of which 4 KiB at a random place are read. Figures are reads a \
         second.\n",
        rig::machine::describe(),
        record::packages(&["diod", "nginx", "wrk"]),
        plan.rounds,
        plan.time.as_secs_f64(),
        BYTES >> 30,
    );
    let http = figures::markdown(&http, &["volume", "nginx"]);
    Ok(format!("{method}\n{http}\n{}", figures::markdown(&ninep, &["volume", "diod"])))
}

/// Creates a directory with a file, and a volume with the same file.
fn made() -> Result<(PathBuf, PathBuf)> {
    let dir = directory("big", BYTES)?;
    let file = dir.with_extension("volume");
    volume::create_whole(&file, "9G")?;
    volume::copy_in(&dir, &file)?;
    Ok((dir, file))
}

/// Creates a directory with a file of this many bytes, no two pages of which are equal.
pub(super) fn directory(name: &str, bytes: u64) -> Result<PathBuf> {
    let dir = sh::empty("bench/cold")?.join("dir");
    std::fs::create_dir(&dir)?;
    println!("   making {} GiB, twice", bytes >> 30);
    let mut big = std::fs::File::create(dir.join(name))?;
    let mut piece = vec![0_u8; 1 << 20];
    for number in 0..bytes >> 20 {
        for (at, page) in piece.chunks_mut(4096).enumerate() {
            page[..8].copy_from_slice(&(number << 8 | at as u64).to_le_bytes());
        }
        big.write_all(&piece)?;
    }
    big.sync_all()?;
    Ok(dir)
}

/// Measures a row for each depth. Servers are restarted each time, which drops their caches too.
fn rows(
    plan: &Plan,
    what: &str,
    servers: &[(Kind, &Path)],
    run: &dyn Fn(&Server, u16) -> Result<f64>,
) -> Result<Vec<Figures>> {
    let mut rows = Vec::new();
    let mut order: Vec<usize> = (0..servers.len()).collect();
    for depth in DEPTHS {
        let work = format!("{what}: {depth}");
        eprintln!("   {work}");
        let mut row = Figures::new(&work, servers.len());
        for _ in 0..plan.rounds {
            for at in &order {
                let (kind, what) = servers[*at];
                forget()?;
                let server = Server::start_on(kind, what, &["--trust-clients"], core(0))?;
                row.samples[*at].push(run(&server, depth)?);
            }
            order.reverse();
        }
        rows.push(row);
    }
    Ok(rows)
}

fn by_wrk(server: &Server, script: &Path, connections: u16, time: Duration) -> Result<f64> {
    let url = format!("http://127.0.0.1:{}", server.http);
    let mut words = vec!["wrk".to_owned(), "-t1".into(), format!("-c{connections}")];
    words.extend([format!("-d{}s", time.as_secs().max(1)), "-s".into()]);
    words.extend([script.display().to_string(), url]);
    if let Some(core) = core(1) {
        words.splice(0..0, ["taskset".into(), "-c".into(), core.to_string()]);
    }
    let text = sh::read(&mut sh::cmd(&words[0], &words[1..]))?;
    ensure!(!text.contains("Non-2xx") && !text.contains("Socket errors"), "{text}");
    let line = text.lines().find(|line| line.starts_with("Requests/sec:"));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(word.context("no output from wrk")?.parse()?)
}

fn by_client(server: &Server, depth: u16, time: Duration) -> Result<f64> {
    let mut client = Client::attach(server.ninep, &server.dir.display().to_string())?;
    client.call(|out| {
        Message::new(out, TWALK, 0).u32(ROOT).u32(BIG).u16(1).text("big");
    })?;
    client.call(|out| {
        Message::new(out, TLOPEN, 0).u32(BIG).u32(0);
    })?;
    let start = std::time::Instant::now();
    let done = client.run(&Work { steps: 1, build: &read }, depth, time)?;
    #[expect(clippy::cast_precision_loss, reason = "counts of seconds of work")]
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

fn read(slot: &mut Slot, out: &mut Vec<u8>) {
    let offset = slot.below(BYTES / PAGE) * PAGE;
    Message::new(out, TREAD, slot.tag).u32(BIG).u64(offset).u32(4096);
}
