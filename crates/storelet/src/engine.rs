//! What compiles modules and makes guests of them.

use crate::host::Host;
use crate::wasi;
use std::num::NonZeroUsize;
use wasmtime::{Config, InstancePre, Linker, Module, Strategy, WasmFeatures};

/// Stack of a guest, and of its fiber with what host calls need, bytes.
const STACK: usize = 512 << 10;
const FIBER: usize = STACK + (512 << 10);

/// What ends a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Time: whoever drives the guests calls [`Engine::tick`].
    Ticks,
    /// So many instructions, about: the same each time.
    Fuel(u64),
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
    pub(crate) instance: InstancePre<Host>,
    pub(crate) pace: Pace,
}

impl Engine {
    /// An engine.
    ///
    /// # Errors
    /// If this processor or system cannot do it.
    pub fn new(pace: Pace) -> wasmtime::Result<Engine> {
        let mut config = Config::new();
        config
            .strategy(Strategy::Cranelift)
            .max_wasm_stack(STACK)
            .async_stack_size(FIBER)
            .async_stack_zeroing(true)
            .native_unwind_info(false)
            .wasm_backtrace_max_frames(NonZeroUsize::new(16))
            .guard_before_linear_memory(true)
            .wasm_relaxed_simd(false)
            .wasm_memory64(false)
            .wasm_multi_memory(false)
            .wasm_tail_call(false)
            .wasm_features(WasmFeatures::EXTENDED_CONST, true);
        match pace {
            Pace::Ticks => config.epoch_interruption(true),
            Pace::Fuel(_) => config.consume_fuel(true).cranelift_nan_canonicalization(true),
        };
        let engine = wasmtime::Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        wasi::link(&mut linker)?;
        Ok(Engine { engine, linker, pace })
    }

    /// Compiles a module, in this process and for as long as it takes: modules of strangers are
    /// compiled elsewhere.
    ///
    /// # Errors
    /// If it is no module, uses what is not there, or asks for functions that nobody gives.
    pub fn compile(&self, wasm: &[u8]) -> wasmtime::Result<Program> {
        let module = Module::new(&self.engine, wasm)?;
        let instance = self.linker.instantiate_pre(&module)?;
        Ok(Program { instance, pace: self.pace })
    }

    /// Ends the present slice of all guests, where slices are of time.
    pub fn tick(&self) {
        self.engine.increment_epoch();
    }
}
