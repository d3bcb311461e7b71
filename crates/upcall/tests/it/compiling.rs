//! Compilation by the real child, of benign and malicious modules.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use super::bombs::{bombs, branching, empty, program, section, slow, with_len};
use super::server::{BINARY, Scratch};
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

fn file(dir: &Scratch, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Compiles modules; returns a line for each result, in order of completion.
fn compile(args: &[&str], files: &[&Path]) -> (Option<i32>, Vec<String>) {
    let mut command = Command::new(BINARY);
    let output = command.arg("compile-module").args(args).args(files).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text.lines().map(str::to_owned).collect())
}

#[test]
fn a_module_is_compiled_once_and_there_after_a_restart() {
    let dir = Scratch::new("compiling");
    let wasm = file(&dir, "good.wasm", &program(&[empty()]));
    let cache = dir.path().join("cache");
    let args = ["--cache", cache.to_str().unwrap()];
    let (code, lines) = compile(&args, &[&wasm, &wasm]);
    assert_eq!((code, lines.len()), (Some(0), 2));
    assert!(lines[0].contains("compiled in 0."), "{lines:?}");
    assert!(lines[1].contains("was there"), "{lines:?}");
    let (code, lines) = compile(&args, &[&wasm]);
    assert!(code == Some(0) && lines[0].contains("was there"), "{lines:?}");

    let is_kept = |path: &PathBuf| path.file_name().unwrap() != "key";
    let kept = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<PathBuf> = kept.filter(is_kept).collect();
    let [kept] = &kept[..] else { panic!("{kept:?}") };
    let mut bytes = std::fs::read(kept).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(kept, bytes).unwrap();
    for printed in ["compiled in", "was there"] {
        let (code, lines) = compile(&args, &[&wasm]);
        assert!(code == Some(0) && lines[0].contains(printed), "{lines:?}");
    }
}

#[test]
fn unsuitable_modules_are_refused_with_a_reason() {
    let dir = Scratch::new("refusing");
    let mut import = program(&[empty()]);
    let name = [&with_len(b"env"), &with_len(b"system"), &[0, 0][..]].concat();
    // After the types.
    import.splice(14..14, section(2, &[&[1][..], &name].concat()));
    let garbage: Vec<u8> = (0..40_000_u32).map(|at| ((at * at) >> 7) as u8).collect();
    let cases: [(&str, &[u8], &str); 4] = [
        ("garbage", &garbage, "does not begin as WebAssembly does"),
        ("broken", &[b"\0asm\x01\0\0\0", &garbage[..]].concat(), "it is not valid at byte"),
        ("short", &program(&[empty()])[..40], "it is not valid at byte"),
        ("import", &import, "it imports env.system, which does not exist"),
    ];
    for (name, wasm, printed) in cases {
        let (code, lines) = compile(&[], &[&file(&dir, name, wasm)]);
        assert!(code == Some(1) && lines[0].contains(printed), "{name}: {lines:?}");
    }
}

#[test]
fn modules_made_to_be_expensive_are_refused_at_once() {
    let dir = Scratch::new("bombs");
    for (name, wasm, printed) in bombs() {
        let path = file(&dir, name, &wasm);
        let begun = Instant::now();
        let (code, lines) = compile(&[], &[&path]);
        assert!(code == Some(1) && lines[0].contains(printed), "{name}: {lines:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{name}: {:?}", begun.elapsed());
    }
}

#[test]
fn cancelled_compilations_end_soon() {
    let dir = Scratch::new("cancelling");
    let path = file(&dir, "slow.wasm", &slow());
    let begun = Instant::now();
    let (code, lines) = compile(&["--cancel-after", "700"], &[&path]);
    assert!(code == Some(1) && lines[0].contains("cancelled"), "{lines:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// Result of the child alone, given input that the server would have rejected.
struct Fate {
    status: ExitStatus,
    printed: String,
    /// Peak memory, as sampled, KiB.
    memory_kib: u64,
    output: u64,
}

/// Compiles plain or metered code with limits set by a shell, below the child's own.
fn child(dir: &Scratch, name: &str, (wasm, code): (&[u8], u8), limits: &str) -> Fate {
    let name = format!("{name}-{code}");
    let input = file(dir, &name, &[&[7; 32], &[code][..], wasm].concat());
    let outputs = [dir.path().join(format!("{name}.out")), dir.path().join(format!("{name}.err"))];
    let [output, printed] = outputs.each_ref().map(|path| File::create(path).unwrap());
    let mut command = Command::new("/bin/sh");
    let script = format!("ulimit {limits}; exec {BINARY} compile-module");
    command.args(["-c", &script]).stdin(File::open(input).unwrap());
    let mut child = command.stdout(output).stderr(Stdio::from(printed)).spawn().unwrap();
    let path = format!("/proc/{}/status", child.id());
    let mut memory_kib = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        memory_kib = memory_kib.max(peak.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = std::fs::metadata(&outputs[0]).unwrap().len();
    Fate { status, printed: std::fs::read_to_string(&outputs[1]).unwrap(), memory_kib, output }
}

/// Without the check in advance the child compiles what it can, and its limits end it otherwise.
/// These limits are smaller than the server's, to keep this test short.
#[test]
fn a_child_keeps_its_limits_whatever_it_compiles() {
    let dir = &Scratch::new("limits");
    let fates: Vec<(&str, Fate)> = std::thread::scope(|scope| {
        let run = |(name, wasm, _): (&'static str, Vec<u8>, _)| {
            scope.spawn(move || [0, 1].map(|code| (name, child(dir, name, (&wasm, code), "-t 2"))))
        };
        let running = bombs().map(run);
        running.into_iter().flat_map(|running| running.join().unwrap()).collect()
    });
    for (name, Fate { status, printed, memory_kib, output }) in fates {
        assert!(memory_kib <= 1 << 20, "{name}: {memory_kib} KiB");
        let ended = match status.signal() {
            Some(libc::SIGABRT) => printed.contains("memory allocation of"),
            Some(signal) => [libc::SIGXCPU, libc::SIGKILL].contains(&signal),
            None => status.code() == Some(0) && output > 0,
        };
        assert!(ended, "{name}: {status}: {printed}");
    }
    let fate = child(dir, "memory", (&program(&[branching(5000, 80_000)]), 0), "-v 100000");
    assert_eq!(fate.status.signal(), Some(libc::SIGABRT), "{}", fate.printed);
    assert!(fate.printed.contains("memory allocation of"), "{}", fate.printed);
    assert!(fate.memory_kib <= 100_000, "{} KiB", fate.memory_kib);

    let unlimited = "-c 0";
    let none = child(dir, "none", (b"", 0), unlimited);
    assert_eq!((none.status.code(), none.output), (Some(3), 0), "{}", none.printed);
    let good = child(dir, "good", (&program(&[empty()]), 0), unlimited);
    assert_eq!(good.status.code(), Some(0), "{}", good.printed);
    assert!(good.output > 1000);
}
