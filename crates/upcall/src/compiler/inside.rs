//! The compiling child itself: `upcall compile-module` without file names.
//!
//! It reads a request and a module from standard input and writes machine code to standard output.
//! Before it parses the module it drops all privileges that compiling does not need. It never has a
//! key: the server authenticates the part that it keeps.

use super::filter;
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use wasi::module::KEPT_MAX;
use wasi::{Code, Engine, Hash};

/// CPU time limit of compiling, seconds.
pub(super) const CPU_MAX_S: u64 = 20;

/// Address space limit of the process, including the program itself, bytes.
pub(super) const MEMORY_MAX: u64 = 1 << 30;

/// Maximum size of an artifact, bytes.
pub(super) const OUTPUT_MAX: u64 = 128 << 20;

/// Exit codes for a rejected module, and for other errors.
pub(super) const MALFORMED: u8 = 3;
const FAILED: u8 = 4;

/// Header in front of the module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunSpec {
    /// Name of the module.
    pub(super) name: Hash,
    /// Kind of code to generate.
    pub(super) code: Code,
}

impl RunSpec {
    /// Length, bytes.
    pub(super) const LEN: usize = 32 + 1;

    pub(super) fn bytes(&self) -> Vec<u8> {
        let code = match self.code {
            Code::Plain => 0,
            Code::Metered => 1,
        };
        [&self.name.0[..], &[code]].concat()
    }

    fn read(head: &[u8; RunSpec::LEN]) -> Option<RunSpec> {
        let (name, code) = head.split_first_chunk()?;
        let code = match code {
            [0] => Code::Plain,
            [1] => Code::Metered,
            _none => return None,
        };
        Some(RunSpec { name: Hash(*name), code })
    }
}

/// Compiles the module on standard input.
pub(super) fn run() -> ExitCode {
    match compile() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, why)) => {
            let _ = std::io::stderr().write_all(why.as_bytes());
            ExitCode::from(code)
        }
    }
}

fn compile() -> Result<(), (u8, String)> {
    let failed = |what: &'static str| move |error| (FAILED, format!("{what}: {error}"));
    confine().map_err(failed("no limits for the process"))?;
    let mut head = [0; RunSpec::LEN];
    let order = std::io::stdin().read_exact(&mut head).ok().and_then(|()| RunSpec::read(&head));
    let Some(order) = order else {
        return Err((FAILED, "compile-module is for the server itself".to_string()));
    };
    let engine = Engine::compiler(order.code.pace());
    let engine = engine.map_err(|error| (FAILED, format!("{error:#}")))?;
    filter::apply().map_err(|error| (FAILED, error))?;

    let mut prepared = Vec::new();
    let read = std::io::stdin().lock().take(KEPT_MAX as u64).read_to_end(&mut prepared);
    read.map_err(failed("standard input"))?;
    let made = engine.precompile(order.name, &prepared);
    let artifact = made.map_err(|error| (MALFORMED, format!("{error:#}")))?;
    std::io::stdout().write_all(artifact.code()).map_err(failed("standard output"))
}

/// Drops privileges that compiling does not need, permanently.
fn confine() -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::nice(19)?;
    // The hard limit, which kills at once, is one second more.
    let limits = [
        (Resource::As, MEMORY_MAX, MEMORY_MAX),
        (Resource::Cpu, CPU_MAX_S, CPU_MAX_S + 1),
        (Resource::Fsize, OUTPUT_MAX, OUTPUT_MAX),
        (Resource::Core, 0, 0),
        (Resource::Nofile, 3, 3),
    ];
    for (resource, soft, hard) in limits {
        // The inherited limit may be lower.
        let given = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(soft.min(given)), maximum: Some(hard.min(given)) };
        rustix::process::setrlimit(resource, limit)?;
    }
    Ok(())
}
