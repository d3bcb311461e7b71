//! Runs of the modules: each with a tree of its own, over one of the two protocols.

use super::corpus::{self, Case, End};
use super::ground::Ground;
use anyhow::{Context, Result, bail};
use rig::server::{Server, binary};
use rig::sh;
use serde_json::Value;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Budgets: minimum CPU time of modules that must not exhaust it, ns; time limit of modules that
/// must not reach it; and of those that must.
const CPU_NS: u64 = 3_000_000_000;
const TIME_NS: u64 = 120_000_000_000;
const TIME_OVER_NS: u64 = 1_000_000_000;

/// One of this number of runs is abandoned in the middle, and every other one uses HTTP.
const LEFT: usize = 9;

/// Reasons in reports, and the budget of each.
const REASONS: [(&str, &str); 6] = [
    ("its processor time is used up", "cpu"),
    ("its time is over", "time"),
    ("it needs more memory than it may have", "memory"),
    ("request budget exceeded", "operations"),
    ("it has read and written as many bytes as it may", "bytes"),
    ("output budget exceeded", "output"),
];

/// Modules and a server for them.
pub(super) struct Runs<'a> {
    server: &'a Server,
    ground: &'a Ground,
    cases: Vec<(Case, PathBuf)>,
}

/// Results of runs.
#[derive(Default)]
pub(super) struct Ran {
    pub(super) ninep: usize,
    pub(super) http: usize,
    pub(super) left: usize,
    /// Runs with an unexpected end.
    pub(super) wrong: Vec<String>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(server: &'a Server, ground: &'a Ground) -> Result<Runs<'a>> {
        let mut cases = Vec::new();
        for case in corpus::cases(&sh::root().join("crates/wasi/tests/hostile")) {
            let module = wat::parse_str(&case.text).with_context(|| case.name.clone())?;
            let file = ground.scratch(&case.name)?.join("guest.wasm");
            std::fs::write(&file, module)?;
            cases.push((case, file));
        }
        Ok(Runs { server, ground, cases })
    }

    /// Returns the number of modules.
    pub(super) fn count(&self) -> usize {
        self.cases.len()
    }

    /// Performs the runs of these numbers, with this concurrency.
    pub(super) fn go(&self, numbers: Range<usize>, at_once: usize) -> Ran {
        let (next, ran) = (AtomicUsize::new(numbers.start), Mutex::new(Ran::default()));
        std::thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number >= numbers.end {
                            break;
                        }
                        self.one(number, &ran);
                    }
                });
            }
        });
        ran.into_inner().expect("no run panics")
    }

    fn one(&self, number: usize, ran: &Mutex<Ran>) {
        let (case, module) = &self.cases[number % self.cases.len()];
        let by_http = number % 2 == 1;
        // Not in the first round: there every module has to end by itself once.
        let is_left = number >= self.cases.len() && number.is_multiple_of(LEFT);
        let outcome = self.ground.tree(number).and_then(|root| {
            let mut command = match by_http {
                true => self.post(case, module, &root),
                false => self.upcall(case, module, &root),
            };
            let ended = if is_left { leave(&mut command, number) } else { ended(&mut command) };
            self.ground.remove(number)?;
            ended
        });
        let mut ran = ran.lock().expect("no run panics");
        match outcome {
            Ok(None) => ran.left += 1,
            Ok(Some((end, printed))) if end.is(&case.served, &printed) => match by_http {
                true => ran.http += 1,
                false => ran.ninep += 1,
            },
            Ok(Some((end, _))) => {
                let how = if by_http { "HTTP" } else { "9P" };
                ran.wrong
                    .push(format!("{} by {how}: must: {}, but {end:?}", case.name, case.served));
            }
            Err(error) => ran.wrong.push(format!("{}: {error:#}", case.name)),
        }
    }

    fn upcall(&self, case: &Case, module: &Path, root: &str) -> Command {
        let mut command = Command::new(binary());
        command.args(["run", &format!("127.0.0.1:{}", self.server.ninep), "--json"]);
        for (word, value) in words(case) {
            command.arg(format!("--{word}")).arg(value);
        }
        command.args(["--root", root]).args(case.writes.then_some("--write"));
        command.arg(module).args(["--", "argument"]);
        command
    }

    /// Returns a run over HTTP; it counts fuel, to attack that code too.
    fn post(&self, case: &Case, module: &Path, root: &str) -> Command {
        let mut url = format!("http://127.0.0.1:{}/.upcall/storelets?", self.server.http);
        url += &format!("fuel={}&", u64::MAX);
        for (word, value) in words(case) {
            url += &format!("{word}={value}&");
        }
        url += if case.writes { "write&" } else { "" };
        url += &format!("root={root}&arg=guest&arg=argument");
        let mut command = Command::new("curl");
        command.args(["-si", "--max-time", "200", "-H", "Expect:", "--data-binary"]);
        command.arg(format!("@{}", module.display())).arg(url);
        command
    }
}

/// Returns its budgets as words of a run request.
fn words(case: &Case) -> Vec<(&'static str, String)> {
    let limits = case.limits;
    let cpu = if case.served == "killed cpu" { limits.cpu_ns } else { limits.cpu_ns.max(CPU_NS) };
    let time = match case.served.as_str() {
        "killed time" => TIME_OVER_NS,
        _ => limits.time_ns.max(TIME_NS),
    };
    vec![
        ("cpu", format!("{cpu}ns")),
        ("time", format!("{time}ns")),
        ("memory", limits.memory.to_string()),
        ("io", limits.operations.to_string()),
        ("bytes", limits.bytes.to_string()),
        ("output", limits.output.to_string()),
        ("files", limits.files.to_string()),
    ]
}

/// Kills the client in the middle.
fn leave(command: &mut Command, number: usize) -> Result<Option<(End, String)>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context("start a client")?;
    std::thread::sleep(Duration::from_millis(number as u64 * 7 % 40));
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Returns the end of a run and its output.
fn ended(command: &mut Command) -> Result<Option<(End, String)>> {
    command.stdin(Stdio::null());
    let Output { stdout, stderr, .. } = command.output().context("start a client")?;
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    let Some(head) = stdout.strip_prefix("HTTP/1.1 ") else {
        return Ok(Some((reported(&stderr)?, stdout.into_owned())));
    };
    if head.starts_with("422") {
        return Ok(Some((End::Refused, String::new())));
    }
    let (_, body) = head.split_once("\r\n\r\n").context("an answer without end of its head")?;
    let trailers = body.rfind("Upcall-End: ").context("an answer without trailers")?;
    let printed = body[..trailers].trim_end_matches("\r\n").to_owned();
    Ok(Some((reported(&body[trailers..])?, printed)))
}

/// Parses the end of a run from the report at the end of a text.
fn reported(text: &str) -> Result<End> {
    let report = report(text)?;
    let reason = report["reason"].as_str().unwrap_or_default();
    Ok(match report["end"].as_str() {
        Some("refused") => End::Refused,
        Some("trap") => End::Trap(reason.to_owned()),
        Some("exit") => End::Exit(
            report["exit"]
                .as_u64()
                .and_then(|e| e.try_into().ok())
                .context("an exit without a code")?,
        ),
        Some("killed") => {
            let budget = REASONS.iter().find(|(text, _)| *text == reason);
            End::Killed(budget.map_or(reason, |(_, budget)| budget).to_owned())
        }
        _ => bail!("a strange report: {report}"),
    })
}

/// Parses the report at the end of a text, as written by the server or by the command.
pub(super) fn report(text: &str) -> Result<Value> {
    let begin =
        ["{\"end\":", "{\"calls\":"].into_iter().filter_map(|begin| text.rfind(begin)).max();
    let shown = || format!("no report: {}", sh::tail(text, 300));
    let text = &text[begin.with_context(shown)?..];
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    values.next().with_context(shown)?.with_context(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_counts_whatever_a_program_says() {
        let text = "{\"end\":\"exit\",\"exit\":0}noise\
                    {\"end\":\"killed\",\"reason\":\"its time is over\"}\n";
        assert!(matches!(reported(text), Ok(End::Killed(budget)) if budget == "time"));
        assert!(reported("nothing at all").is_err());
    }
}
