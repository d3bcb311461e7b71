//! Who runs storelets: engines, whoever compiles for them, whoever ends slices; the workers are
//! [fronts](crate::fronts) of a kind.

use crate::compiler::Compiler;
use crate::compiler::keeper::Keeper;
use crate::config::Serve;
use crate::ticker::Ticker;
use reactor::Mailbox;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storelet::compile::Hash;
use storelet::standing::Stock;
use storelet::{Engines, Settings};

/// Memory for storelets unless said otherwise, MiB.
pub(crate) const MEMORY_MIB: u64 = 1024;

/// Where compiled modules are kept, below the directory for such things.
const CACHE: &str = "upcall/storelets";

/// Everything but the workers.
pub(crate) struct Crew {
    pub(crate) compiler: Compiler,
    pub(crate) ticker: Ticker,
    pub(crate) workers: usize,
    /// What is installed.
    standing: Stock,
}

impl Crew {
    /// Starts it for what is served, unless nobody is to run storelets.
    pub(crate) fn start(serve: &Serve, what: &Path) -> Result<Option<Crew>, String> {
        let workers = serve.storelet_threads.unwrap_or(1);
        if workers == 0 || serve.no_status {
            return Ok(None);
        }
        if workers > node::NODES_MAX / 2 {
            let most = node::NODES_MAX / 2;
            return Err(format!("--storelet-threads {workers}: say a number from 0 to {most}"));
        }
        let engines = Engines::new().map_err(|error| {
            format!("this machine cannot run storelets ({error}): add --storelet-threads 0")
        })?;
        let engines = Arc::new(engines);
        let (mut keeper, standing) = keeper(serve, what)?;
        let compiler = compiler(serve, &engines, &mut keeper)?;
        let ticker = Ticker::start(engines)?;
        Ok(Some(Crew { compiler, ticker, workers, standing }))
    }

    /// What the node needs to know; the numbers of workers begin here.
    pub(crate) fn settings(&self, serve: &Serve, first: usize) -> Result<Settings, String> {
        let mut seed = [0; 32];
        reactor::fill_random(&mut seed).map_err(|error| format!("no random numbers: {error}"))?;
        Ok(Settings {
            workers: (first..first + self.workers).collect(),
            home: node::HOME,
            compiler: first + self.workers,
            memory: serve.storelet_memory.unwrap_or(MEMORY_MIB).saturating_mul(1 << 20),
            writes: !serve.read_only,
            seed,
            standing: self.standing.clone(),
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
fn compiler(
    serve: &Serve,
    engines: &Arc<Engines>,
    keeper: &mut Option<Keeper>,
) -> Result<Compiler, String> {
    Compiler::start_with(Arc::clone(engines), cache(serve), keeper).or_else(|why| {
        if serve.storelet_cache.is_some() {
            return Err(why);
        }
        let told = "storelets are compiled anew after each start, because I";
        tell(&format!("{told} {why}"));
        Compiler::start_with(Arc::clone(engines), None, keeper)
    })
}

/// Says something to the operator, who need not be there.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "upcall: {text}");
}

/// Who keeps what is installed, and what that is. Where the usual place for it cannot be used,
/// nothing can be installed; what was asked for must be possible.
fn keeper(serve: &Serve, what: &Path) -> Result<(Option<Keeper>, Stock), String> {
    let keeper = match (&serve.storelet_state, state(what)) {
        (Some(dir), _) => Some(Keeper::make(dir)?),
        (None, Some(dir)) => match Keeper::find(&dir) {
            Ok(keeper) => Some(keeper),
            Err(why) => {
                tell(&format!("no storelets are installed: I {why}"));
                let stock = Stock { closed: Some(why), ..Stock::default() };
                return Ok((None, stock));
            }
        },
        (None, None) => None,
    };
    let stock = match &keeper {
        Some(keeper) => keeper.stock(&mut |text| tell(&text)),
        None => {
            let why = "this server keeps nothing: start it with --storelet-state DIR";
            Stock { closed: Some(why.to_string()), ..Stock::default() }
        }
    };
    Ok((keeper, stock))
}

/// Where what is installed beside this is kept; `None`: nowhere, because nobody says where.
fn state(what: &Path) -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let usual = match std::env::var_os("XDG_STATE_HOME") {
        Some(state) if !state.is_empty() => Some(PathBuf::from(state)),
        Some(_) | None => home(),
    };
    let whole = what.canonicalize().unwrap_or_else(|_| what.to_path_buf());
    let hash = Hash::of(whole.as_os_str().as_encoded_bytes()).to_string();
    let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    usual.map(|state| state.join(CACHE).join(format!("{name}-{}", &hash[..16])))
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
