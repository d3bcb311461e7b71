//! `upcall compile-module`: the compiling child; with file names, the thread that runs such
//! children compiles each of the files, for tests and measurements.

use super::{Compiler, inside};
use crate::bounded;
use base::op::{Done, Envelope, Op};
use base::{Buf, Instant, Reactor as _};
use clap::Args;
use reactor::{Form, World};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use storelet::compile::{Compiled, Module, ToCompiler};
use storelet::run_spec::MODULE_MAX;
use storelet::{Account, Crossing};
use wasi::{Code, Engines};

/// Compile one module from standard input, for the server; or report the result for each file
#[derive(Args, Debug)]
pub(crate) struct CompileModule {
    /// Modules to compile as in the server, all at once
    files: Vec<PathBuf>,

    /// Keep compiled modules in this directory
    #[arg(long, value_name = "DIR", requires = "files")]
    cache: Option<PathBuf>,

    /// Cancel unfinished compilations after this many milliseconds
    #[arg(long, value_name = "MS", requires = "files")]
    cancel_after: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(requested: &CompileModule) -> Result<ExitCode, String> {
    if requested.files.is_empty() {
        return Ok(inside::run());
    }
    let engines = Engines::new().map_err(|error| format!("no engine: {error:#}"))?;
    let compiler = Compiler::start(Arc::new(engines), requested.cache.clone())?;
    let settings = reactor::Config::default();
    let mut world = World::new(Form::Threads, &settings).map_err(|error| error.to_string())?;
    let mailboxes = vec![world.mailbox(), compiler.mailbox()];
    world.set_mailboxes(mailboxes.clone());
    compiler.set_mailboxes(mailboxes);
    for (ticket, file) in (0..).zip(&requested.files) {
        let shown = |error| format!("{}: {error}", file.display());
        let mut bytes = Buf::with_room(0, 0);
        bytes.extend(&bounded::read(file, MODULE_MAX).map_err(shown)?);
        let (module, code) = (Module::Sent(vec![bytes]), Code::Plain);
        // Each for a client of its own.
        let account = Account { user: 0, client: ticket as u32 };
        post(&mut world, ToCompiler::Compile { ticket, module, code, account });
    }
    let cancel = requested.cancel_after.map(|ms| world.now() + Duration::from_millis(ms));
    let printed = listen(&mut world, requested.files.len(), cancel);
    post(&mut world, ToCompiler::End);
    compiler.join()?;
    let refused = printed.iter().any(|compiled| compiled.result.is_err());
    Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Waits for the results of this many modules, and prints them.
fn listen(world: &mut World, count: usize, mut cancel: Option<Instant>) -> Vec<Compiled> {
    let begun = world.now();
    let (mut printed, mut events) = (Vec::new(), Vec::new());
    while printed.len() < count {
        world.wait(cancel, &mut events);
        for event in events.drain(..) {
            let Done::Envelope(Envelope(envelope)) = event.done else { continue };
            let Ok(crossing) = envelope.downcast::<Crossing>() else { continue };
            let Crossing::Compiled(compiled) = *crossing else { continue };
            let waited = world.now().since(begun).as_secs_f64();
            out_line!("{} after {waited:.3} s: {}", compiled.ticket, text(&compiled));
            printed.push(compiled);
        }
        if cancel.take_if(|at| world.now() >= *at).is_some() {
            (0..count as u64).for_each(|ticket| post(world, ToCompiler::Cancel(ticket)));
        }
    }
    printed
}

fn text(compiled: &Compiled) -> String {
    match &compiled.result {
        Ok(fresh) if fresh.was_there => format!("{} was there", fresh.hash),
        Ok(fresh) => {
            format!("{} compiled in {:.3} s", fresh.hash, fresh.cpu_ns as f64 / 1e9)
        }
        Err(refused) => format!("refused: {refused}"),
    }
}

fn post(world: &mut World, message: ToCompiler) {
    world.submit(Op::Post { to: 1, envelope: Envelope(Box::new(message)) });
}
