//! Who runs storelets: an engine, whoever compiles for it, whoever ends slices; the workers are
//! [fronts](crate::fronts) of a kind.

use crate::compiler::Compiler;
use crate::config::Serve;
use crate::ticker::Ticker;
use reactor::Mailbox;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use storelet::{Engine, Pace, Settings};

/// Memory for storelets unless said otherwise, MiB.
pub(crate) const MEMORY_MIB: u64 = 1024;

/// Where compiled modules are kept, below the directory for such things.
const CACHE: &str = "upcall/storelets";

/// Everything but the workers.
pub(crate) struct Crew {
    pub(crate) compiler: Compiler,
    pub(crate) ticker: Ticker,
    pub(crate) workers: usize,
}

impl Crew {
    /// Starts it, unless nobody is to run storelets.
    pub(crate) fn start(serve: &Serve) -> Result<Option<Crew>, String> {
        let workers = serve.storelet_threads.unwrap_or(1);
        if workers == 0 || serve.no_status {
            return Ok(None);
        }
        if workers > node::NODES_MAX / 2 {
            let most = node::NODES_MAX / 2;
            return Err(format!("--storelet-threads {workers}: say a number from 0 to {most}"));
        }
        let engine = Engine::new(Pace::Ticks);
        let engine = engine.map_err(|error| {
            format!("this machine cannot run storelets ({error}): add --storelet-threads 0")
        })?;
        let engine = Arc::new(engine);
        let compiler = compiler(serve, &engine)?;
        let ticker = Ticker::start(engine)?;
        Ok(Some(Crew { compiler, ticker, workers }))
    }

    /// What the node needs to know, with so many fronts before the workers.
    pub(crate) fn settings(&self, serve: &Serve, fronts: usize) -> Result<Settings, String> {
        let first = node::HOME + 1 + fronts;
        let mut seed = [0; 32];
        reactor::fill_random(&mut seed).map_err(|error| format!("no random numbers: {error}"))?;
        Ok(Settings {
            workers: (first..first + self.workers).collect(),
            compiler: first + self.workers,
            memory: serve.storelet_memory.unwrap_or(MEMORY_MIB).saturating_mul(1 << 20),
            writes: !serve.read_only,
            seed,
        })
    }

    /// Tells whoever compiles where everybody is.
    pub(crate) fn meet(&self, all: Vec<Mailbox>) {
        self.compiler.set_mailboxes(all);
    }

    /// Waits for the end of all.
    pub(crate) fn join(self) -> Result<(), String> {
        self.compiler.join()
    }
}

/// Starts whoever compiles. Where the usual place for what he keeps cannot be used, as by a server
/// that became another user, he keeps nothing; what was asked for must be possible.
fn compiler(serve: &Serve, engine: &Arc<Engine>) -> Result<Compiler, String> {
    Compiler::start(Arc::clone(engine), cache(serve)).or_else(|why| {
        if serve.storelet_cache.is_some() {
            return Err(why);
        }
        let told = "storelets are compiled anew after each start, because I";
        // Whoever reads that need not be there.
        let _ = writeln!(io::stderr(), "upcall: {told} {why}");
        Compiler::start(Arc::clone(engine), None)
    })
}

/// Where compiled modules are kept; `None`: nowhere, because nobody says where.
fn cache(serve: &Serve) -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let usual = || match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) if !cache.is_empty() => Some(PathBuf::from(cache)),
        Some(_) | None => home(),
    };
    serve.storelet_cache.clone().or_else(|| usual().map(|cache| cache.join(CACHE)))
}
