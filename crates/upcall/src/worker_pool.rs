//! Resources for running storelets: engines, the compiler, the ticker that ends slices; the workers
//! are [fronts](crate::fronts) of a kind.

use crate::compiler::Compiler;
use crate::compiler::state_store::StateStore;
use crate::config::Serve;
use crate::homes::{Home, Homes};
use crate::log;
use crate::ticker::Ticker;
use reactor::Mailbox;
use std::path::Path;
use std::sync::Arc;
use storelet::standing::Stock;
use storelet::{Maxima, OVERHEAD, Settings};
use wasi::{Engines, Hash};

/// Default memory for storelets, MiB.
pub(crate) const MEMORY_MIB: u64 = 1024;

/// Name of the subdirectory for compiled modules.
const STORELETS: &str = "storelets";

/// Default maximum time and CPU time of a storelet, seconds.
const TIME_MAX_S: u64 = 3600;
const CPU_MAX_S: u64 = 600;

/// Limits of storelets.
#[derive(Debug, PartialEq, Eq)]
struct Limits {
    /// Memory of all, and of those of one client, bytes.
    memory: u64,
    client: u64,
    maxima: Maxima,
}

impl Limits {
    fn of(serve: &Serve) -> Limits {
        let mib = |mib: u64| mib.saturating_mul(1 << 20);
        let ns = |seconds: u64| seconds.saturating_mul(1_000_000_000);
        let memory = mib(serve.storelet_memory.unwrap_or(MEMORY_MIB));
        let client = serve.storelet_client_memory.map_or(memory / 4 * 3, mib).min(memory);
        let most = client.saturating_sub(OVERHEAD);
        let half = (memory / 2).saturating_sub(OVERHEAD);
        let maxima = Maxima {
            time_ns: ns(serve.storelet_time_max.unwrap_or(TIME_MAX_S)),
            cpu_ns: ns(serve.storelet_cpu_max.unwrap_or(CPU_MAX_S)),
            memory: serve.storelet_memory_max.map_or(half, mib).min(most),
        };
        Limits { memory, client, maxima }
    }

    /// Checks that a storelet can run within the limits.
    fn check(serve: &Serve) -> Result<(), String> {
        let printed = [serve.storelet_memory_max, serve.storelet_time_max, serve.storelet_cpu_max];
        if printed.contains(&Some(0)) {
            return Err(
                "--storelet-memory-max, --storelet-time-max and --storelet-cpu-max must be at \
                 least 1; --storelet-threads 0 runs no storelets"
                    .to_string(),
            );
        }
        if Limits::of(serve).maxima.memory == 0 {
            let least = (OVERHEAD >> 20) + 1;
            return Err(format!(
                "no storelet could run: --storelet-memory must be at least {}, and \
                 --storelet-client-memory at least {least}",
                2 * least
            ));
        }
        Ok(())
    }
}

/// Everything except the workers.
pub(crate) struct WorkerPool {
    pub(crate) compiler: Compiler,
    pub(crate) ticker: Ticker,
    pub(crate) workers: usize,
    /// Installed storelets.
    standing: Stock,
}

impl WorkerPool {
    /// Starts it for the served tree, unless storelets are disabled.
    pub(crate) fn start(
        serve: &Serve,
        what: &Path,
        homes: &Homes,
    ) -> Result<Option<WorkerPool>, String> {
        let workers = serve.storelet_threads.unwrap_or(1);
        if workers == 0 || serve.no_status {
            return Ok(None);
        }
        if workers > node::NODES_MAX / 2 {
            let most = node::NODES_MAX / 2;
            return Err(format!("--storelet-threads {workers}: use a number from 0 to {most}"));
        }
        Limits::check(serve)?;
        let engines = Engines::new().map_err(|error| {
            format!("this machine cannot run storelets ({error}): add --storelet-threads 0")
        })?;
        let engines = Arc::new(engines);
        let (mut state_store, standing) = state_store(serve, what, homes)?;
        let compiler = compiler(serve, homes, &engines, &mut state_store)?;
        let ticker = Ticker::start(engines)?;
        Ok(Some(WorkerPool { compiler, ticker, workers, standing }))
    }

    /// Returns the settings of the node; `first` is the number of the first worker.
    pub(crate) fn settings(&self, serve: &Serve, first: usize) -> Result<Settings, String> {
        let limits = Limits::of(serve);
        let mut seed = [0; 32];
        reactor::fill_random(&mut seed).map_err(|error| format!("no random numbers: {error}"))?;
        Ok(Settings {
            workers: (first..first + self.workers).collect(),
            home: node::HOME,
            compiler: first + self.workers,
            memory: limits.memory,
            client_memory: limits.client,
            maxima: limits.maxima,
            writes: !serve.read_only,
            seed,
            standing: self.standing.clone(),
        })
    }

    /// Passes all mailboxes to the compiler.
    pub(crate) fn meet(&self, all: Vec<Mailbox>) {
        self.compiler.set_mailboxes(all);
    }

    /// Waits for the end of the compiler.
    pub(crate) fn join(self) -> Result<(), String> {
        self.compiler.join()
    }
}

/// Starts the compiler. If the default cache directory is unusable, as for a server that became
/// another user, there is no cache; an explicit one must be usable.
fn compiler(
    serve: &Serve,
    homes: &Homes,
    engines: &Arc<Engines>,
    state_store: &mut Option<StateStore>,
) -> Result<Compiler, String> {
    let kept = cache(serve, homes)
        .and_then(|dir| Compiler::start_with(Arc::clone(engines), Some(dir), state_store));
    kept.or_else(|why| {
        if serve.storelet_cache.is_some() {
            return Err(why);
        }
        inform(&format!("compiled storelets are not kept after the end of the server: {why}"));
        Compiler::start_with(Arc::clone(engines), None, state_store)
    })
}

/// Logs a warning.
fn inform(text: &str) {
    log::warn("storelet", text.to_string());
}

/// Returns the state store of installed storelets, and its contents. If the default directory is
/// unusable, nothing can be installed; an explicit one must be usable.
fn state_store(
    serve: &Serve,
    what: &Path,
    homes: &Homes,
) -> Result<(Option<StateStore>, Stock), String> {
    let state_store = match &serve.storelet_state {
        Some(dir) => StateStore::make(dir)?,
        None => match state(what, homes).and_then(|dir| StateStore::find(&dir)) {
            Ok(state_store) => state_store,
            Err(why) => {
                inform(&format!("no storelets are installed: {why}"));
                let stock = Stock { closed: Some(why), ..Stock::default() };
                return Ok((None, stock));
            }
        },
    };
    let stock = state_store.stock(&mut |text| inform(&text));
    Ok((Some(state_store), stock))
}

/// Returns the directory of the state store for this served tree.
fn state(what: &Path, homes: &Homes) -> Home {
    let whole = what.canonicalize().unwrap_or_else(|_| what.to_path_buf());
    let hash = Hash::of(whole.as_os_str().as_encoded_bytes()).to_string();
    let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let state = homes.state.as_ref();
    let state = state.map_err(|why| format!("{why}; name one with --storelet-state"))?;
    Ok(state.join(STORELETS).join(format!("{name}-{}", &hash[..16])))
}

/// Returns the directory of the cache of compiled modules.
fn cache(serve: &Serve, homes: &Homes) -> Home {
    if let Some(dir) = &serve.storelet_cache {
        return Ok(dir.clone());
    }
    let cache = homes.cache.as_ref();
    let cache = cache.map_err(|why| format!("{why}; name one with --storelet-cache"))?;
    Ok(cache.join(STORELETS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_given_or_are_shares_of_all() {
        let plain = Limits::of(&Serve::default());
        let maxima = Maxima {
            time_ns: 3600 * 1_000_000_000,
            cpu_ns: 600 * 1_000_000_000,
            memory: 506 << 20,
        };
        assert_eq!(plain, Limits { memory: 1 << 30, client: 768 << 20, maxima });
        let printed = Serve {
            storelet_memory: Some(100),
            storelet_client_memory: Some(200),
            storelet_memory_max: Some(20),
            storelet_time_max: Some(7),
            storelet_cpu_max: Some(3),
            ..Serve::default()
        };
        let maxima = Maxima { time_ns: 7_000_000_000, cpu_ns: 3_000_000_000, memory: 20 << 20 };
        let all = 100 << 20;
        assert_eq!(Limits::of(&printed), Limits { memory: all, client: all, maxima });
        assert!(Limits::check(&printed).is_ok());
        let none = Serve { storelet_time_max: Some(0), ..Serve::default() };
        assert!(Limits::check(&none).is_err_and(|why| why.contains("at least 1;")));
        let small = Serve { storelet_memory: Some(12), ..Serve::default() };
        assert!(Limits::check(&small).is_err_and(|why| why.contains("at least 14, and")));
    }
}
