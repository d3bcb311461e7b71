//! The child that compiles, from within: `upcall compile-module` without names of files.
//!
//! It gets an order and a module on standard input and leaves machine code on standard output.
//! Before it looks at the module it gives up all that compiling does not need. It never has a key:
//! the server authenticates what it keeps of that.

use super::filter;
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use storelet::Engine;
use storelet::compile::{Code, Hash};
use storelet::module::KEPT_MAX;

/// Processor time that compiling may take, seconds.
pub(super) const CPU_MAX_S: u64 = 20;

/// Address space of the process, with the program itself, bytes.
pub(super) const MEMORY_MAX: u64 = 1 << 30;

/// Largest artifact, bytes.
pub(super) const OUTPUT_MAX: u64 = 128 << 20;

/// How the process ends if the module is to blame, and otherwise.
pub(super) const MALFORMED: u8 = 3;
const FAILED: u8 = 4;

/// What stands before the module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// The name of the module.
    pub(super) name: Hash,
    /// What is to be made of it.
    pub(super) code: Code,
}

impl Order {
    /// Its length, bytes.
    pub(super) const LEN: usize = 32 + 1;

    pub(super) fn bytes(&self) -> Vec<u8> {
        let code = match self.code {
            Code::Plain => 0,
            Code::Metered => 1,
        };
        [&self.name.0[..], &[code]].concat()
    }

    fn read(head: &[u8; Order::LEN]) -> Option<Order> {
        let (name, code) = head.split_first_chunk()?;
        let code = match code {
            [0] => Code::Plain,
            [1] => Code::Metered,
            _none => return None,
        };
        Some(Order { name: Hash(*name), code })
    }
}

/// Compiles what is on standard input.
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
    let mut head = [0; Order::LEN];
    let order = std::io::stdin().read_exact(&mut head).ok().and_then(|()| Order::read(&head));
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

/// Gives up what compiling does not need, for good.
fn confine() -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::process::nice(19)?;
    // One more second than the first limit: what ends a process at once.
    let limits = [
        (Resource::As, MEMORY_MAX, MEMORY_MAX),
        (Resource::Cpu, CPU_MAX_S, CPU_MAX_S + 1),
        (Resource::Fsize, OUTPUT_MAX, OUTPUT_MAX),
        (Resource::Core, 0, 0),
        (Resource::Nofile, 3, 3),
    ];
    for (resource, soft, hard) in limits {
        // Whoever started the server may have given it less.
        let given = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limit = Rlimit { current: Some(soft.min(given)), maximum: Some(hard.min(given)) };
        rustix::process::setrlimit(resource, limit)?;
    }
    Ok(())
}
