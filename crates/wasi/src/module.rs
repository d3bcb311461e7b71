//! Checks of a module before compilation: whether it is valid and a program, and whether it is
//! within limits that all real programs keep.
//!
//! Compilation takes time and memory that grow faster than the module: with nested loops, and with
//! locals times branches. Such quantities have limits here, far above those of real compilers'
//! output, so that a module built to be expensive is rejected in milliseconds. The compiling
//! process has resource limits of its own for everything else.

mod body;

use crate::compiled::Refused;
use body::Totals;
use std::ops::Range;
use wasmparser::types::{EntityType, Types};
use wasmparser::{
    BinaryReaderError, Chunk, CompositeInnerType, DataSectionReader, ElementItems,
    ElementSectionReader, Encoding, FuncToValidate, FuncValidatorAllocations, FunctionBody,
    ImportSectionReader, MemorySectionReader, Parser, Payload, TableSectionReader, TypeRef,
    TypeSectionReader, ValidPayload, Validator, ValidatorResources, WasmFeatures,
};

/// Permitted features: WebAssembly 2.0 and extended constant expressions.
pub(crate) const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::BULK_MEMORY_OPT)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::EXTENDED_CONST);

/// Largest module as received, bytes.
pub const SENT_MAX: usize = 32 << 20;

/// Largest module without names and debug information, bytes.
pub const KEPT_MAX: usize = 16 << 20;

/// Largest memory of a guest, bytes.
pub const MEMORY_MAX: usize = 1 << 30;

/// Maximum number of tables in a module, and of entries in each.
pub const TABLES_MAX: u32 = 4;
/// See [`TABLES_MAX`].
pub const ENTRIES_MAX: u32 = 200_000;

// Further limits. Beside each: the maximum among ripgrep, coreutils, SQLite, gojq and a Go
// hello-world.
const TYPES_MAX: u32 = 5_000; // 81
const PARAMS_MAX: usize = 128; // 24
const IMPORTS_MAX: u32 = 500; // 25
const FUNCTIONS_MAX: u32 = 50_000; // 5,829
const GLOBALS_MAX: u32 = 5_000; // 8
const EXPORTS_MAX: u32 = 10_000; // 3
const ELEMENTS_MAX: u32 = 10_000; // 1
const DATA_MAX: u32 = 100_000; // 71,906

const PAGE: u64 = 64 << 10;

/// Modules of the host functions.
const WASI: &str = "wasi_snapshot_preview1";
const UPCALL: &str = "upcall";

/// Advice for most kinds of errors.
const BUILD: &str = "build it for wasm32-wasip1 (GOOS=wasip1 with Go), without threads, \
                     exceptions, tail calls, 64-bit memory and relaxed SIMD";

/// Checks a module and returns the part that has to be compiled: all but names, debug information
/// and other custom sections.
///
/// # Errors
/// `Malformed` or `TooLarge`: the problem and its remedy.
pub fn prepare(wasm: &[u8]) -> Result<Vec<u8>, Refused> {
    let (kept, types) = inspect(wasm)?;
    program(&types)?;
    Ok(kept)
}

/// Checks everything except whether the module is a program.
fn inspect(wasm: &[u8]) -> Result<(Vec<u8>, Types), Refused> {
    limit("bytes as it is sent", wasm.len(), SENT_MAX, "strip it")?;
    if !wasm.starts_with(b"\0asm") {
        return malformed("it does not begin as WebAssembly does: send a .wasm file");
    }
    let mut inspection = Inspection {
        wasm,
        kept: wasm.get(..8).unwrap_or_default().to_vec(),
        validator: Validator::new_with_features(FEATURES),
        allocations: FuncValidatorAllocations::default(),
        look: Totals::default(),
        entries: 0,
    };
    let mut parser = Parser::new(0);
    parser.set_features(FEATURES);
    let mut at = 0;
    loop {
        let chunk = parser.parse(&wasm[at..], true).map_err(invalid)?;
        let Chunk::Parsed { consumed, payload } = chunk else {
            return malformed("it ends early: send all of it");
        };
        at += consumed;
        if let Some(types) = inspection.take(&payload)? {
            return Ok((inspection.kept, types));
        }
    }
}

/// A module during inspection.
struct Inspection<'a> {
    wasm: &'a [u8],
    kept: Vec<u8>,
    validator: Validator,
    allocations: FuncValidatorAllocations,
    look: Totals,
    /// Entries of all element segments.
    entries: usize,
}

impl Inspection<'_> {
    /// Processes a part of the module; returns the types at the end.
    fn take(&mut self, payload: &Payload<'_>) -> Result<Option<Types>, Refused> {
        if matches!(payload, Payload::CustomSection(_)) {
            return Ok(None);
        }
        counts(payload)?;
        if let Some((id, range)) = payload.as_section() {
            self.keep(id, range)?;
        }
        match self.validator.payload(payload).map_err(invalid)? {
            ValidPayload::Func(function, body) => self.function(function, &body)?,
            ValidPayload::End(types) => return Ok(Some(types)),
            ValidPayload::Ok | ValidPayload::Parser(_) => {}
        }
        if let Payload::ElementSection(section) = payload {
            self.elements(section)?;
        }
        Ok(None)
    }

    /// Copies a section for the compiler.
    fn keep(&mut self, id: u8, range: Range<usize>) -> Result<(), Refused> {
        let advice = "after names and debug information are stripped; remove unused code";
        limit("bytes", self.kept.len() + range.len(), KEPT_MAX, advice)?;
        // The section claims to be longer than the module.
        let Some(contents) = self.wasm.get(range) else {
            return malformed("it ends early: send all of it");
        };
        self.kept.push(id);
        let mut rest = contents.len();
        while rest > 0x7F {
            self.kept.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.kept.push(rest as u8);
        self.kept.extend_from_slice(contents);
        Ok(())
    }

    fn function(
        &mut self,
        function: FuncToValidate<ValidatorResources>,
        body: &FunctionBody<'_>,
    ) -> Result<(), Refused> {
        let index = function.index;
        let allocations = std::mem::take(&mut self.allocations);
        let mut validator = function.into_validator(allocations);
        // Before the declarations are read, the locals are the parameters.
        let params = validator.len_locals() as usize;
        self.look.function(index, params, body)?;
        validator.validate(body).map_err(invalid)?;
        self.allocations = validator.into_allocations();
        Ok(())
    }

    fn elements(&mut self, section: &ElementSectionReader<'_>) -> Result<(), Refused> {
        for element in section.clone() {
            self.entries += match element.map_err(invalid)?.items {
                ElementItems::Functions(items) => items.count() as usize,
                ElementItems::Expressions(_, items) => items.count() as usize,
            };
        }
        limit("elements of tables", self.entries, ENTRIES_MAX as usize, "use fewer")
    }
}

/// Limits the counts that sections declare, before anything iterates over them.
fn counts(payload: &Payload<'_>) -> Result<(), Refused> {
    let few = "use fewer";
    let count = |what, count: u32, max: u32| limit(what, count as usize, max as usize, few);
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "only counted sections; the rest is validated"
    )]
    match payload {
        Payload::Version { encoding: Encoding::Component, .. } => {
            malformed(&format!("it is a component: {BUILD}"))
        }
        Payload::TypeSection(section) => {
            count("types", section.count(), TYPES_MAX)?;
            types(section)
        }
        Payload::ImportSection(section) => {
            count("imports", section.count(), IMPORTS_MAX)?;
            imports(section)
        }
        Payload::FunctionSection(section) => count("functions", section.count(), FUNCTIONS_MAX),
        Payload::TableSection(section) => {
            count("tables", section.count(), TABLES_MAX)?;
            tables(section)
        }
        Payload::MemorySection(section) => memories(section),
        Payload::GlobalSection(section) => count("globals", section.count(), GLOBALS_MAX),
        Payload::ExportSection(section) => count("exports", section.count(), EXPORTS_MAX),
        Payload::ElementSection(section) => {
            count("element segments", section.count(), ELEMENTS_MAX)
        }
        Payload::DataSection(section) => data(section),
        _ => Ok(()),
    }
}

fn types(section: &TypeSectionReader<'_>) -> Result<(), Refused> {
    for group in section.clone() {
        for of in group.map_err(invalid)?.into_types() {
            if let CompositeInnerType::Func(function) = &of.composite_type.inner {
                let (params, results) = (function.params().len(), function.results().len());
                limit("parameters of a function", params, PARAMS_MAX, "use fewer")?;
                limit("results of a function", results, PARAMS_MAX, "use fewer")?;
            }
        }
    }
    Ok(())
}

fn imports(section: &ImportSectionReader<'_>) -> Result<(), Refused> {
    for import in section.clone().into_imports() {
        let import = import.map_err(invalid)?;
        let (module, name) = (shown(import.module), shown(import.name));
        if !matches!(import.ty, TypeRef::Func(_)) {
            let wrong = "not a function, and only functions are given";
            return malformed(&format!("it imports {module}.{name}, {wrong}: {BUILD}"));
        }
        let known = match import.module {
            WASI => FUNCTIONS.contains(&import.name),
            UPCALL => INTRINSICS.contains(&import.name),
            _ => false,
        };
        if !known {
            let given = "those of WASI preview 1 (wasi_snapshot_preview1) and six of upcall";
            return malformed(&format!(
                "it imports {module}.{name}, which does not exist; available are {given}; {BUILD}"
            ));
        }
    }
    Ok(())
}

fn tables(section: &TableSectionReader<'_>) -> Result<(), Refused> {
    for table in section.clone() {
        let entries = usize::try_from(table.map_err(invalid)?.ty.initial).unwrap_or(usize::MAX);
        limit("entries of a table", entries, ENTRIES_MAX as usize, "use fewer")?;
    }
    Ok(())
}

fn memories(section: &MemorySectionReader<'_>) -> Result<(), Refused> {
    for memory in section.clone() {
        let pages = memory.map_err(invalid)?.initial;
        let bytes = usize::try_from(pages.saturating_mul(PAGE)).unwrap_or(usize::MAX);
        limit("bytes of memory at its beginning", bytes, MEMORY_MAX, "let it begin with less")?;
    }
    Ok(())
}

fn data(section: &DataSectionReader<'_>) -> Result<(), Refused> {
    limit("data segments", section.count() as usize, DATA_MAX as usize, "use fewer")
}

/// Checks that the module is a program that can be started.
fn program(types: &Types) -> Result<(), Refused> {
    let types = types.as_ref();
    let exported = |wanted: &str| {
        let mut exports = types.core_exports().into_iter().flatten();
        exports.find(|(name, _)| *name == wanted).map(|(_, entity)| entity)
    };
    let Some(EntityType::Func(start)) = exported("_start") else {
        return malformed(&format!(
            "it exports no function _start, so it is a library: make it a program; {BUILD}"
        ));
    };
    let start = types[start].unwrap_func();
    if !start.params().is_empty() || !start.results().is_empty() {
        return malformed("its _start takes or gives something: let it be a function () -> ()");
    }
    if !matches!(exported("memory"), Some(EntityType::Memory(_))) {
        return malformed("it exports no memory of the name \"memory\": export it");
    }
    Ok(())
}

/// Formats an untrusted name for an error message.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(40).flat_map(char::escape_default).collect();
    if name.chars().nth(40).is_some() {
        shown.push_str("...");
    }
    shown
}

fn limit(what: &str, count: usize, max: usize, advice: &str) -> Result<(), Refused> {
    if count <= max {
        return Ok(());
    }
    Err(Refused::TooLarge(format!("{count} {what}, at most {max}: {advice}")))
}

fn malformed<T>(why: &str) -> Result<T, Refused> {
    Err(Refused::Malformed(why.to_string()))
}

fn invalid(error: BinaryReaderError) -> Refused {
    let (message, offset) = (shown_error(error.message()), error.offset());
    Refused::Malformed(format!("it is not valid at byte {offset}: {message}; {BUILD}"))
}

fn shown_error(message: &str) -> String {
    message.chars().take(200).flat_map(char::escape_default).collect()
}

/// Names of the functions of the module `upcall`.
pub(crate) const INTRINSICS: [&str; 6] =
    ["count_byte", "crc32", "find", "find_byte", "find_byte_last", "sha256_blocks"];

/// Functions of WASI preview 1; a test compares them with those of the linker.
const FUNCTIONS: [&str; 46] = [
    "args_get",
    "args_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "environ_get",
    "environ_sizes_get",
    "fd_advise",
    "fd_allocate",
    "fd_close",
    "fd_datasync",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_fdstat_set_rights",
    "fd_filestat_get",
    "fd_filestat_set_size",
    "fd_filestat_set_times",
    "fd_pread",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_pwrite",
    "fd_read",
    "fd_readdir",
    "fd_renumber",
    "fd_seek",
    "fd_sync",
    "fd_tell",
    "fd_write",
    "path_create_directory",
    "path_filestat_get",
    "path_filestat_set_times",
    "path_link",
    "path_open",
    "path_readlink",
    "path_remove_directory",
    "path_rename",
    "path_symlink",
    "path_unlink_file",
    "poll_oneoff",
    "proc_exit",
    "proc_raise",
    "random_get",
    "sched_yield",
    "sock_accept",
    "sock_recv",
    "sock_send",
    "sock_shutdown",
];

#[cfg(test)]
mod tests;
