//! Rejected modules, and randomly generated ones.

use super::*;
use crate::compiled::Hash;
use crate::{Engine, Pace};

/// Builds a program from these parts and the mandatory exports.
fn program_with(parts: &str) -> Vec<u8> {
    let text = format!(r#"(module {parts} (memory (export "memory") 1) (func (export "_start")))"#);
    wat::parse_str(text).expect("a module")
}

fn refused(wasm: &[u8]) -> String {
    prepare(wasm).expect_err("it is refused").to_string()
}

#[test]
fn preparation_strips_custom_sections() {
    let wasm = program_with("(func $a_name_that_is_not_needed)");
    let prepared = prepare(&wasm).expect("a program");
    let name = b"a_name_that_is_not_needed";
    let has_name = |bytes: &[u8]| bytes.windows(name.len()).any(|window| window == name);
    assert!(has_name(&wasm) && !has_name(&prepared));
    assert_eq!(prepare(&prepared).as_ref(), Ok(&prepared));
    let engine = Engine::compiler(Pace::Ticks).expect("an engine");
    engine.compile(&prepared).expect("it compiles");
}

#[test]
fn module_errors_name_a_next_step() {
    let module = |text: &str| wat::parse_str(text).expect("a module");
    let memory = r#"(memory (export "memory") 1)"#;
    let cases: [(Vec<u8>, &str); 14] = [
        (b"(module)".to_vec(), "does not begin as WebAssembly does: send a .wasm file"),
        (b"\0asm".to_vec(), "not valid at byte 4"),
        (program_with("")[..20].to_vec(), "not valid at byte"),
        (b"\0asm\x0d\0\x01\0".to_vec(), "it is a component: build it for wasm32-wasip1"),
        (module("(module)"), "exports no function _start, so it is a library"),
        (
            module(&format!(r#"(module {memory} (global (export "_start") i32 (i32.const 1)))"#)),
            "exports no function _start",
        ),
        (
            module(&format!(r#"(module {memory} (func (export "_start") (param i32)))"#)),
            "its _start takes or gives something",
        ),
        (module(r#"(module (func (export "_start")))"#), "exports no memory"),
        (
            program_with(r#"(import "env" "system" (func))"#),
            "it imports env.system, which does not exist",
        ),
        (
            program_with(r#"(import "wasi_snapshot_preview1" "fd_fork" (func))"#),
            "it imports wasi_snapshot_preview1.fd_fork, which does not exist",
        ),
        (
            program_with(r#"(import "env\n" "x" (global i32))"#),
            "it imports env\\n.x, not a function",
        ),
        (program_with("(func (return_call 0))"), "tail calls"),
        (
            module(r#"(module (memory (export "memory") 1 2 shared) (func (export "_start")))"#),
            "without threads",
        ),
        (module(r#"(module (memory i64 1) (func (export "_start")))"#), "64-bit memory"),
    ];
    for (wasm, printed) in cases {
        let error = refused(&wasm);
        assert!(error.contains(printed), "{error}: {printed}");
    }
    for given in ["wasi_snapshot_preview1\" \"fd_read", "upcall\" \"find"] {
        prepare(&program_with(&format!("(import \"{given}\" (func))"))).expect("it is there");
    }
    let error = refused(&program_with(r#"(import "upcall" "anything" (func))"#));
    assert!(error.contains("upcall.anything, which does not exist"), "{error}");
}

#[test]
fn size_limits_are_named() {
    let many = |count: usize, part: &str| part.repeat(count);
    let params = format!("(type (func (param {})))", many(129, "i32 "));
    let locals = format!("(func (local {}))", many(20_001, "i32 "));
    let loops = format!("(func {} {})", many(65, "loop "), many(65, "end "));
    let nested = format!("(func {} {})", many(10_001, "block "), many(10_001, "end "));
    let branches = format!("(func {})", many(50_001, "i32.const 0 br_if 0 "));
    let large = format!("(func {})", many(600_000, "nop nop "));
    let elements = format!("(table 1 funcref) (elem (i32.const 0) {})", many(200_001, "0 "));
    let cases = [
        (many(5_001, "(type (func))"), "5001 types, at most 5000"),
        (params, "129 parameters of a function, at most 128"),
        (many(501, r#"(import "upcall" "f" (func))"#), "501 imports, at most 500"),
        (many(50_001, "(func)"), "50002 functions, at most 50000"),
        (many(5, "(table 1 funcref)"), "5 tables, at most 4"),
        ("(table 200001 funcref)".to_string(), "200001 entries of a table"),
        (many(5_001, "(global i32 (i32.const 1))"), "5001 globals, at most 5000"),
        (elements, "200001 elements of tables, at most 200000"),
        (locals, "20001 locals in function 0, at most 20000: divide that function"),
        (loops, "65 loops inside of each other in function 0, at most 64"),
        (nested, "10001 blocks inside of each other in function 0"),
        (branches, "50002 branches in function 0, at most 50000"),
        (large, "bytes in function 0, at most 1048576"),
    ];
    for (parts, printed) in cases {
        let error = refused(&program_with(&parts));
        assert!(error.contains(printed), "{error}: {printed}");
    }
    let memory = r#"(module (memory (export "memory") 16385) (func (export "_start")))"#;
    let error = refused(&wat::parse_str(memory).expect("a module"));
    assert!(error.contains("at most 1073741824: let it begin with less"), "{error}");
    let error = refused(&vec![0; SENT_MAX + 1]);
    assert!(error.contains("33554433 bytes as it is sent, at most 33554432: strip it"), "{error}");
}

/// Locals that are set in one block and read in another need values wherever branches join; those
/// that are read in the block where they were set do not.
#[test]
fn locals_count_where_they_are_read_elsewhere() {
    let body = |step: fn(usize) -> String| {
        let steps: String = (0..5_000).map(step).collect();
        program_with(&format!("(func (local {}) {steps})", "i32 ".repeat(1000)))
    };
    let wandering = body(|at| {
        let local = at % 1000;
        format!("local.get {local} if i32.const 1 local.set {local} end ")
    });
    let error = refused(&wandering);
    assert!(error.contains("meetings of locals and branches in function 0"), "{error}");
    let settled = body(|at| {
        let local = at % 1000;
        format!("i32.const 1 local.set {local} local.get {local} if end ")
    });
    prepare(&settled).expect("it is cheap");
}

#[test]
fn the_functions_that_may_be_imported_are_those_that_the_engine_gives() {
    let engine = Engine::compiler(Pace::Ticks).expect("an engine");
    let none = program_with(r#"(import "wasi_snapshot_preview1" "args_fork" (func))"#);
    let error = engine.compile(&none).err().expect("not there").to_string();
    assert!(error.contains("unknown import"), "{error}");
    let wasi = FUNCTIONS.map(|name| (WASI, name));
    for (module, name) in wasi.into_iter().chain(INTRINSICS.map(|name| (UPCALL, name))) {
        let wasm = program_with(&format!(r#"(import "{module}" "{name}" (func))"#));
        // The type is wrong, which is reported only for functions that exist.
        let error = engine.compile(&wasm).err().expect("wrong type").to_string();
        assert!(error.contains("incompatible import type"), "{error}");
    }
}

/// Corrupted modules are rejected, or they compile.
#[test]
fn a_module_with_changed_bytes_is_refused_or_compiles() {
    let engine = Engine::compiler(Pace::Ticks).expect("an engine");
    let wasm = program_with(
        r#"(import "wasi_snapshot_preview1" "fd_close" (func (param i32) (result i32)))
           (table 4 funcref) (elem (i32.const 1) 1 1) (global (mut i64) (i64.const 5))
           (data (i32.const 8) "some data")
           (func (param i32 i64) (result i32) (local v128 f64)
             block
               loop
                 local.get 0 br_table 0 1 1
               end
             end
             block (result i32)
               i32.const 3 local.get 0 br_if 0
               call 0
             end
             global.get 0 i32.wrap_i64 i32.add
             local.get 2 i8x16.all_true i32.xor i32.load offset=16)"#,
    );
    prepare(&wasm).expect("it is whole");
    let mut random = fastrand::Rng::with_seed(1);
    let mut passed = 0;
    for _ in 0..20_000 {
        let mut broken = wasm.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..broken.len());
            match random.u8(..4) {
                0 => broken[at] = random.u8(..),
                1 => broken[at] ^= 1 << random.u8(..8),
                2 => drop(broken.remove(at)),
                _ => broken.insert(at, random.u8(..)),
            }
        }
        if let Ok(prepared) = prepare(&broken) {
            passed += 1;
            // Compiling all of them takes long; invalid ones fail early.
            if passed % 8 == 0 {
                engine.precompile(Hash::of(&broken), &prepared).expect("it compiles");
            }
        }
    }
    assert!(passed > 200, "{passed}");
}

/// Random valid modules are rejected for a reason, or they compile.
#[test]
fn a_module_of_random_instructions_is_refused_or_compiles() {
    let engine = Engine::compiler(Pace::Ticks).expect("an engine");
    let mut random = fastrand::Rng::with_seed(2);
    let mut passed = 0;
    for _ in 0..300 {
        let bytes: Vec<u8> = (0..2_000).map(|_| random.u8(..)).collect();
        let wasm = smith(&bytes);
        // A random module is no program; with permitted features, that is its only defect.
        match inspect(&wasm) {
            Ok((prepared, _)) => {
                engine.precompile(Hash::of(&wasm), &prepared).expect("it compiles");
                passed += 1;
            }
            Err(refused) => assert!(!refused.to_string().contains("it is not valid"), "{refused}"),
        }
    }
    assert!(passed > 100, "{passed}");
}

fn smith(bytes: &[u8]) -> Vec<u8> {
    let config = wasm_smith::Config {
        max_imports: 0,
        bulk_memory_enabled: true,
        reference_types_enabled: false,
        simd_enabled: true,
        gc_enabled: false,
        exceptions_enabled: false,
        memory64_enabled: false,
        relaxed_simd_enabled: false,
        tail_call_enabled: false,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        custom_page_sizes_enabled: false,
        max_memories: 1,
        ..wasm_smith::Config::default()
    };
    let mut unstructured = arbitrary::Unstructured::new(bytes);
    let module = wasm_smith::Module::new(config, &mut unstructured).expect("enough bytes");
    module.to_bytes()
}
