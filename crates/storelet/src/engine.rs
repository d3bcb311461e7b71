//! What compiles modules and makes guests of them.

use crate::artifact::Artifact;
use crate::compile::{Code, Hash};
use crate::host::Host;
use crate::module::{ENTRIES_MAX, FEATURES, MEMORY_MAX, TABLES_MAX};
use crate::wasi;
use sha2::{Digest as _, Sha256};
use std::hash::{Hash as _, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use wasmtime::{
    Config, InstanceAllocationStrategy, InstancePre, Linker, Module, PoolingAllocationConfig,
    Strategy, bail,
};

/// Stack of a guest, and of its fiber with what host calls need, bytes.
const STACK: usize = 512 << 10;
const FIBER: usize = STACK + (512 << 10);

/// Most guests at a time, by time slices: so much address space is reserved.
pub const GUESTS_MAX: u32 = 1000;

/// Memory of a guest's place that is kept for the next one there, bytes: making it zero costs
/// less than giving it back to the kernel and taking it again.
const MEMORY_KEPT: usize = 128 << 10;
const STACK_KEPT: usize = 32 << 10;
const TABLE_KEPT: usize = 16 << 10;

/// Most bytes of what the engine keeps of an instance, as functions that can be referred to.
const INSTANCE_MAX: usize = 4 << 20;

/// What ends a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Time: whoever drives the guests calls [`Engine::tick`].
    Ticks,
    /// The same, and instructions are counted.
    Metered,
    /// So many instructions, about: the same each time.
    Fuel(u64),
}

impl Pace {
    /// Whether slices are of time.
    pub(crate) fn is_by_time(self) -> bool {
        matches!(self, Pace::Ticks | Pace::Metered)
    }

    /// Whether instructions are counted.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Pace::Metered | Pace::Fuel(_))
    }
}

/// Compiles modules, and knows the functions that guests may call.
pub struct Engine {
    engine: wasmtime::Engine,
    linker: Linker<Host>,
    pace: Pace,
}

/// A compiled module, bound to the functions it calls.
#[derive(Clone)]
pub struct Program {
    pub(crate) instance: Arc<InstancePre<Host>>,
    pub(crate) pace: Pace,
}

/// A program that is there as long as others have it.
pub struct WeakProgram {
    instance: Weak<InstancePre<Host>>,
    pace: Pace,
}

impl WeakProgram {
    /// The program, if anybody has it.
    pub fn upgrade(&self) -> Option<Program> {
        Some(Program { instance: self.instance.upgrade()?, pace: self.pace })
    }
}

impl Program {
    /// The same without keeping it.
    pub fn downgrade(&self) -> WeakProgram {
        WeakProgram { instance: Arc::downgrade(&self.instance), pace: self.pace }
    }

    /// Size of the compiled image, code and initial data, bytes.
    pub fn bytes(&self) -> usize {
        let image = self.instance.module().image_range();
        image.end.addr() - image.start.addr()
    }
}

impl Engine {
    /// An engine. By ticks, it reserves room for [`GUESTS_MAX`] guests: address space, not memory.
    /// Others make room for each when it begins.
    ///
    /// # Errors
    /// If this processor or system cannot do it.
    pub fn new(pace: Pace) -> wasmtime::Result<Engine> {
        let mut config = config(pace);
        if pace == Pace::Ticks {
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        }
        Engine::with(&config, pace)
    }

    /// An engine that compiles for [`Engine::new`]'s, and reserves no room for guests.
    ///
    /// # Errors
    /// If this processor or system cannot do it.
    pub fn compiler(pace: Pace) -> wasmtime::Result<Engine> {
        Engine::with(&config(pace), pace)
    }

    fn with(config: &Config, pace: Pace) -> wasmtime::Result<Engine> {
        let engine = wasmtime::Engine::new(config)?;
        let mut linker = Linker::new(&engine);
        wasi::link(&mut linker)?;
        Ok(Engine { engine, linker, pace })
    }

    /// Names what this engine can load: what another one of the same name has compiled.
    pub fn compatibility(&self) -> Hash {
        let mut digest = Digest(Sha256::new());
        self.engine.precompile_compatibility_hash().hash(&mut digest);
        Hash(digest.0.finalize().into())
    }

    /// Compiles what [`crate::module::prepare`] gave of the module of this name, for
    /// [`Engine::load`]; in this process and for as long as it takes.
    ///
    /// # Errors
    /// If it is no module, or uses what is not there.
    pub fn precompile(&self, name: Hash, prepared: &[u8]) -> wasmtime::Result<Artifact> {
        let code = self.engine.precompile_module(prepared)?;
        Ok(Artifact::new(name, self.compatibility(), &code))
    }

    /// Binds what was compiled to the functions it calls.
    ///
    /// # Errors
    /// If it was compiled for another engine, or asks for functions that nobody gives.
    pub fn load(&self, artifact: &Artifact) -> wasmtime::Result<Program> {
        if artifact.compatibility() != self.compatibility() {
            bail!("it was compiled for another engine");
        }
        let instance = self.linker.instantiate_pre(&artifact.load(&self.engine)?)?;
        Ok(Program { instance: Arc::new(instance), pace: self.pace })
    }

    /// Compiles a module, in this process and for as long as it takes: modules of strangers are
    /// compiled elsewhere.
    ///
    /// # Errors
    /// If it is no module, uses what is not there, or asks for functions that nobody gives.
    pub fn compile(&self, wasm: &[u8]) -> wasmtime::Result<Program> {
        let module = Module::new(&self.engine, wasm)?;
        let instance = self.linker.instantiate_pre(&module)?;
        Ok(Program { instance: Arc::new(instance), pace: self.pace })
    }

    /// Ends the present slice of all guests, where slices are of time.
    pub fn tick(&self) {
        self.engine.increment_epoch();
    }
}

/// The engines of a server, one for each kind of code.
pub struct Engines {
    plain: Engine,
    metered: Engine,
}

impl Engines {
    /// Both.
    ///
    /// # Errors
    /// If this processor or system cannot do it.
    pub fn new() -> wasmtime::Result<Engines> {
        Ok(Engines { plain: Engine::new(Pace::Ticks)?, metered: Engine::new(Pace::Metered)? })
    }

    /// The same, that reserve no room for guests.
    ///
    /// # Errors
    /// If this processor or system cannot do it.
    pub fn compilers() -> wasmtime::Result<Engines> {
        let of = |code: Code| Engine::compiler(code.pace());
        Ok(Engines { plain: of(Code::Plain)?, metered: of(Code::Metered)? })
    }

    /// The one that runs such code.
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
    /// How it is paced in a server.
    pub fn pace(self) -> Pace {
        match self {
            Code::Plain => Pace::Ticks,
            Code::Metered => Pace::Metered,
        }
    }
}

/// What is the same for engines that compile and engines that run.
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

/// Room for guests.
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

/// Takes what is hashed into a digest, so that the result is the same in each process.
struct Digest(Sha256);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the digest is asked, not this")
    }
}
