//! Engines, which compile modules and instantiate guests.

use crate::artifact::Artifact;
use crate::budget::Pace;
use crate::calls;
use crate::compiled::{Code, Hash};
use crate::host::Host;
use crate::module::{ENTRIES_MAX, FEATURES, MEMORY_MAX, TABLES_MAX};
use sha2::{Digest as _, Sha256};
use std::hash::{Hash as _, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use wasmtime::{
    Config, InstanceAllocationStrategy, InstancePre, Linker, Module, PoolingAllocationConfig,
    Strategy, bail,
};

/// Stack of a guest; stack of its fiber, which host calls use too, bytes.
const STACK: usize = 512 << 10;
const FIBER: usize = STACK + (512 << 10);

/// Maximum number of guests paced by ticks; address space for all of them is reserved.
pub const GUESTS_MAX: u32 = 1000;

/// Memory, stack and tables of a guest slot that stay mapped for its next guest, bytes: zeroing
/// them costs less than returning them to the kernel and faulting them in again.
const MEMORY_KEPT: usize = 128 << 10;
const STACK_KEPT: usize = 32 << 10;
const TABLE_KEPT: usize = 16 << 10;

/// Maximum size of the engine's record of an instance, such as function references, bytes.
const INSTANCE_MAX: usize = 4 << 20;

/// Compiles modules and links them to the host functions.
pub struct Engine {
    engine: wasmtime::Engine,
    linker: Linker<Host>,
    pace: Pace,
}

/// A compiled module, linked to the functions that it imports.
#[derive(Clone)]
pub struct Program {
    pub(crate) instance: Arc<InstancePre<Host>>,
    pub(crate) pace: Pace,
}

/// A weak reference to a program.
pub struct WeakProgram {
    instance: Weak<InstancePre<Host>>,
    pace: Pace,
}

impl WeakProgram {
    /// Returns the program, if it is still in use.
    pub fn upgrade(&self) -> Option<Program> {
        Some(Program { instance: self.instance.upgrade()?, pace: self.pace })
    }
}

impl Program {
    /// Creates a weak reference to the program.
    pub fn downgrade(&self) -> WeakProgram {
        WeakProgram { instance: Arc::downgrade(&self.instance), pace: self.pace }
    }

    /// Returns the size of the compiled image, code and initial data, bytes.
    pub fn bytes(&self) -> usize {
        let image = self.instance.module().image_range();
        image.end.addr() - image.start.addr()
    }
}

impl Engine {
    /// Creates an engine. Paced by ticks, it reserves address space, but no memory, for
    /// [`GUESTS_MAX`] guests. Other engines allocate each guest on demand.
    ///
    /// # Errors
    /// If the processor or the system lacks support.
    pub fn new(pace: Pace) -> wasmtime::Result<Engine> {
        let mut config = config(pace);
        if pace == Pace::Ticks {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        }
        Engine::with(&config, pace)
    }

    /// Creates an engine that compiles for those of [`Engine::new`] and reserves nothing for
    /// guests.
    ///
    /// # Errors
    /// If the processor or the system lacks support.
    pub fn compiler(pace: Pace) -> wasmtime::Result<Engine> {
        Engine::with(&config(pace), pace)
    }

    fn with(config: &Config, pace: Pace) -> wasmtime::Result<Engine> {
        let engine = wasmtime::Engine::new(config)?;
        let mut linker = Linker::new(&engine);
        calls::link(&mut linker)?;
        Ok(Engine { engine, linker, pace })
    }

    /// Returns the compatibility hash: an engine loads artifacts of all engines with the same one.
    pub fn compatibility(&self) -> Hash {
        let mut digest = Digest(Sha256::new());
        self.engine.precompile_compatibility_hash().hash(&mut digest);
        Hash(digest.0.finalize().into())
    }

    /// Compiles the output of [`crate::module::prepare`] for the module of this name, for
    /// [`Engine::load`]; in this process and without a time limit.
    ///
    /// # Errors
    /// If it is no module, or uses unsupported features.
    pub fn precompile(&self, name: Hash, prepared: &[u8]) -> wasmtime::Result<Artifact> {
        let code = self.engine.precompile_module(prepared)?;
        Ok(Artifact::new(name, self.compatibility(), &code))
    }

    /// Loads an artifact and links it to the host functions.
    ///
    /// # Errors
    /// If it was compiled for another engine, or imports functions that do not exist.
    pub fn load(&self, artifact: &Artifact) -> wasmtime::Result<Program> {
        if artifact.compatibility() != self.compatibility() {
            bail!("it was compiled for another engine");
        }
        let instance = self.linker.instantiate_pre(&artifact.load(&self.engine)?)?;
        Ok(Program { instance: Arc::new(instance), pace: self.pace })
    }

    /// Compiles a module, in this process and without a time limit: untrusted modules are compiled
    /// elsewhere.
    ///
    /// # Errors
    /// If it is no module, uses unsupported features, or imports functions that do not exist.
    pub fn compile(&self, wasm: &[u8]) -> wasmtime::Result<Program> {
        let module = Module::new(&self.engine, wasm)?;
        let instance = self.linker.instantiate_pre(&module)?;
        Ok(Program { instance: Arc::new(instance), pace: self.pace })
    }

    /// Ends the present slice of all guests, where slices are limited by time.
    pub fn tick(&self) {
        self.engine.increment_epoch();
    }
}

/// Engines of a server, one for each kind of code.
pub struct Engines {
    plain: Engine,
    metered: Engine,
}

impl Engines {
    /// Creates both engines.
    ///
    /// # Errors
    /// If the processor or the system lacks support.
    pub fn new() -> wasmtime::Result<Engines> {
        Ok(Engines { plain: Engine::new(Pace::Ticks)?, metered: Engine::new(Pace::Metered)? })
    }

    /// Creates both engines without reserving anything for guests.
    ///
    /// # Errors
    /// If the processor or the system lacks support.
    pub fn compilers() -> wasmtime::Result<Engines> {
        let of = |code: Code| Engine::compiler(code.pace());
        Ok(Engines { plain: of(Code::Plain)?, metered: of(Code::Metered)? })
    }

    /// Returns the engine for this kind of code.
    pub fn of(&self, code: Code) -> &Engine {
        match code {
            Code::Plain => &self.plain,
            Code::Metered => &self.metered,
        }
    }

    /// Ends the present slice of all guests.
    pub fn tick(&self) {
        self.plain.tick();
        self.metered.tick();
    }
}

impl Code {
    /// Returns the pace of this kind of code in a server.
    pub fn pace(self) -> Pace {
        match self {
            Code::Plain => Pace::Ticks,
            Code::Metered => Pace::Metered,
        }
    }
}

/// Returns the configuration common to engines that compile and engines that run.
fn config(pace: Pace) -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .max_wasm_stack(STACK)
        .async_stack_size(FIBER)
        .async_stack_zeroing(true)
        .native_unwind_info(false)
        .wasm_backtrace_max_frames(NonZeroUsize::new(16))
        .guard_before_linear_memory(true)
        .wasm_features(!FEATURES, false)
        .wasm_features(FEATURES, true);
    config
        .epoch_interruption(pace.is_by_time())
        .consume_fuel(pace.counts())
        .cranelift_nan_canonicalization(pace.counts());
    config
}

/// Returns the configuration of the guest pool.
fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(GUESTS_MAX)
        .total_memories(GUESTS_MAX)
        .total_stacks(GUESTS_MAX)
        .total_tables(GUESTS_MAX * TABLES_MAX)
        .max_core_instance_size(INSTANCE_MAX)
        .max_memories_per_module(1)
        .max_memory_size(MEMORY_MAX)
        .max_tables_per_module(TABLES_MAX)
        .table_elements(ENTRIES_MAX as usize)
        .linear_memory_keep_resident(MEMORY_KEPT)
        .table_keep_resident(TABLE_KEPT)
        .async_stack_keep_resident(STACK_KEPT);
    pool
}

/// Hasher that feeds a digest, so that the result is the same in every process.
struct Digest(Sha256);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the digest is asked, not this")
    }
}
