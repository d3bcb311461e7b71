//! Modules that are expensive to compile, and the server's compiler during their compilation.

use super::bombs;
use super::ground::Ground;
use anyhow::{Context, Result, bail, ensure};
use rig::server::{Server, binary, rss_of, ticks_of};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Limits of the compiling child process: memory, KiB, and CPU time, clock ticks (1/100 s).
const MEMORY_KIB_MAX: u64 = 1 << 20;
const TICKS_MAX: u64 = 2000;

/// Timeout of a module, including queueing, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Runs modules that must be refused, with their reasons, and one that is accepted and takes long.
pub(super) fn expensive(server: &Server, ground: &Ground) -> Result<String> {
    let mut peak = Peak::default();
    for (name, module, reason) in bombs::bombs() {
        let report = run(server, ground, name, &module, &mut peak)?;
        let printed = report["reason"].as_str().unwrap_or_default();
        ensure!(report["end"] == "refused" && printed.contains(reason), "{name}: {report}");
    }
    let report = run(server, ground, "slow", &bombs::slow(), &mut peak)?;
    let end = match report["end"].as_str() {
        Some("exit") => "it ran then",
        Some("refused") => report["reason"].as_str().unwrap_or_default(),
        _ => bail!("slow: {report}"),
    };
    Ok(format!(
        "4 refused for what they are; one was let through, the compiler had {} MiB and {:.2} s: \
         {end}",
        peak.kib >> 10,
        peak.ticks as f64 / 100.0,
    ))
}

/// Peak usage of a child of the server.
#[derive(Clone, Copy, Default)]
struct Peak {
    kib: u64,
    ticks: u64,
}

impl Peak {
    fn look(&mut self, server: &Server) -> Result<()> {
        for pid in server.children() {
            self.kib = self.kib.max(rss_of(pid));
            self.ticks = self.ticks.max(ticks_of(pid));
        }
        ensure!(self.kib <= MEMORY_KIB_MAX, "the compiler has {} KiB", self.kib);
        ensure!(self.ticks <= TICKS_MAX, "the compiler takes {} ticks", self.ticks);
        Ok(())
    }
}

/// Runs a module; returns its report.
fn run(
    server: &Server,
    ground: &Ground,
    name: &str,
    module: &[u8],
    peak: &mut Peak,
) -> Result<Value> {
    let dir = ground.scratch(name)?;
    let (file, printed) = (dir.join("bomb.wasm"), dir.join("output"));
    std::fs::write(&file, module)?;
    let mut command = Command::new(binary());
    command.args(["run", &format!("127.0.0.1:{}", server.ninep), "--json"]).arg(&file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&printed)?);
    let (mut child, begun) = (command.spawn()?, Instant::now());
    while child.try_wait()?.is_none() {
        peak.look(server).with_context(|| name.to_owned())?;
        ensure!(begun.elapsed() < TIMEOUT, "{name}: no end within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let printed = std::fs::read_to_string(printed)?;
    super::run::report(&printed).with_context(|| name.to_owned())
}
