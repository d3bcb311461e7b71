//! Toolchains that build modules: each function builds one program and returns its path.

use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Target of Rust, and its enabled features: SIMD makes scanning many times faster.
const RUST_TARGET: &str = "wasm32-wasip1";
const RUST_FLAGS: &str = "-C target-feature=+simd128";

/// Oldest minor version of Go with a port to WASI; it also resolves paths below a preopened root.
const GO_MINOR_MIN: u32 = 21;

/// SQLite without threads, shared memory and loadable extensions, which preview 1 lacks.
pub(super) const SQLITE_OPTIONS: &[&str] = &[
    "-DSQLITE_THREADSAFE=0",
    "-DSQLITE_OMIT_LOAD_EXTENSION",
    "-DSQLITE_OMIT_WAL",
    "-DSQLITE_MAX_MMAP_SIZE=0",
    "-DSQLITE_DEFAULT_MEMSTATUS=0",
    "-DSQLITE_ENABLE_MATH_FUNCTIONS",
];
const SQLITE_FLAGS: &[&str] = &["-D_WASI_EMULATED_GETPID", "-lwasi-emulated-getpid", "-lm"];
const C_FLAGS: &[&str] = &["--target=wasm32-wasi", "-O2", "-msimd128", "-Wall", "-s"];

/// Version of flags and build methods; a change rebuilds everything.
pub(super) const FLAGS: &str = "3";

/// Returns `target/guests/build/NAME`, created if necessary.
fn place(name: &str) -> Result<PathBuf> {
    sh::scratch(&format!("guests/build/{name}"))
}

/// Builds a program of a crate from crates.io, with these features and this optimisation level.
pub(super) fn install(
    name: &str,
    version: &str,
    (features, level): (&str, &str),
    makes: &str,
) -> Result<PathBuf> {
    rust_target()?;
    let (root, target) = (place("cargo")?, place("cargo/target")?);
    let mut command = sh::cargo(&["install", name, "--version", version, "--locked", "--force"]);
    command.args(["--target", RUST_TARGET, "--no-track"]);
    if !features.is_empty() {
        command.args(["--no-default-features", "--features", features]);
    }
    command.arg("--root").arg(&root).arg("--target-dir").arg(&target);
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", level);
    quiet_rust(&mut command)?;
    Ok(root.join("bin").join(makes))
}

/// Builds a package of this repository.
pub(super) fn rust(dir: &Path, makes: &str) -> Result<PathBuf> {
    rust_target()?;
    let target = place("rust")?;
    let mut command = sh::cargo(&["build", "--release", "--locked", "--target", RUST_TARGET]);
    command.arg("--target-dir").arg(&target).current_dir(dir);
    quiet_rust(&mut command)?;
    Ok(target.join(RUST_TARGET).join("release").join(makes))
}

fn quiet_rust(command: &mut Command) -> Result<()> {
    // Cargo's settings for the calling workspace do not apply here.
    command.env("RUSTFLAGS", RUST_FLAGS).env("CARGO_PROFILE_RELEASE_STRIP", "true");
    // Some programs enable link-time optimisation, which takes minutes.
    command
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_ENCODED_RUSTFLAGS");
    sh::read(command).map(drop)
}

/// Ensures that Rust can build for the target.
fn rust_target() -> Result<()> {
    let ask = ["--print", "target-libdir", "--target", RUST_TARGET];
    let dir = sh::read(&mut sh::cmd("rustc", &ask))?;
    if Path::new(dir.trim()).exists() {
        return Ok(());
    }
    if !sh::found("rustup") {
        bail!("Rust has no target {RUST_TARGET} here, and there is no rustup to add it");
    }
    println!("   rustup target add {RUST_TARGET}");
    sh::read(&mut sh::cmd("rustup", &["target", "add", RUST_TARGET])).map(drop)
}

/// Builds a command of a Go module.
pub(super) fn go_install(command: &str, makes: &str) -> Result<PathBuf> {
    let root = place("go")?;
    let mut go = go_command(&root, &["install", "-modcacherw", "-ldflags=-s -w", command])?;
    sh::read(&mut go)?;
    Ok(root.join("bin/wasip1_wasm").join(makes))
}

/// Builds a Go module of this repository.
pub(super) fn go(dir: &Path, name: &str) -> Result<PathBuf> {
    let root = place("go")?;
    let made = root.join(format!("{name}.wasm"));
    let mut go = go_command(&root, &["build", "-modcacherw", "-ldflags=-s -w", "-o"])?;
    sh::read(go.arg(&made).arg(".").current_dir(dir))?;
    Ok(made)
}

fn go_command(root: &Path, args: &[&str]) -> Result<Command> {
    let go = sh::which("go").context("no go toolchain")?.display().to_string();
    let printed = sh::read(&mut sh::cmd(&go, &["env", "GOVERSION"]))?;
    let minor = printed.trim().strip_prefix("go1.").and_then(|rest| {
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse::<u32>().ok()
    });
    ensure!(
        minor.is_none_or(|minor| minor >= GO_MINOR_MIN),
        "{} cannot build for WASI: Go 1.{GO_MINOR_MIN} can; put a newer one into PATH",
        printed.trim()
    );
    let mut command = sh::cmd(&go, args);
    command.env("GOOS", "wasip1").env("GOARCH", "wasm").env("GOTOOLCHAIN", "local");
    command.env("GOPATH", root).env_remove("GOBIN").env_remove("GOMODCACHE");
    command.env("GOFLAGS", "-buildvcs=false").env("CGO_ENABLED", "0");
    Ok(command)
}

/// Builds a C program of this repository, optionally with SQLite from the given directory.
pub(super) fn c(file: &Path, sqlite: Option<&Path>, name: &str) -> Result<PathBuf> {
    let made = place("c")?.join(format!("{name}.wasm"));
    let mut clang = sh::cmd("clang", C_FLAGS);
    clang.arg(file).arg("-o").arg(&made);
    if let Some(sqlite) = sqlite {
        clang.arg(sqlite.join("sqlite3.c")).arg("-I").arg(sqlite);
        clang.args(SQLITE_OPTIONS).args(SQLITE_FLAGS);
    }
    sh::read(&mut clang)?;
    Ok(made)
}

/// Returns the directory of SQLite's amalgamation, as bundled with a crate.
pub(super) fn sqlite(version: &str) -> Result<PathBuf> {
    let dir = place("sqlite")?;
    let manifest = format!(
        "[workspace]\n[package]\nname = \"sqlite\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\npath = \"lib.rs\"\n[dependencies]\nlibsqlite3-sys = \"={version}\"\n"
    );
    std::fs::write(dir.join("Cargo.toml"), manifest)?;
    std::fs::write(dir.join("lib.rs"), "")?;
    let mut cargo = sh::cargo(&["metadata", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&sh::read(cargo.current_dir(&dir))?)?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == "libsqlite3-sys");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = Path::new(manifest.context("cargo does not say where libsqlite3-sys is")?);
    let sources = manifest.parent().context("a manifest has a directory")?.join("sqlite3");
    ensure!(sources.join("sqlite3.c").exists(), "{} has no sqlite3.c", sources.display());
    Ok(sources)
}

/// Builds an AssemblyScript program of this repository.
pub(super) fn assembly_script(dir: &Path, name: &str) -> Result<PathBuf> {
    let place = place("assemblyscript")?;
    for file in ["package.json", "package-lock.json", "main.ts"] {
        std::fs::copy(dir.join(file), place.join(file)).with_context(|| file.to_owned())?;
    }
    let npm = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
    sh::read(sh::cmd("npm", &npm).current_dir(&place))?;
    let made = format!("{name}.wasm");
    let shim = "./node_modules/@assemblyscript/wasi-shim/asconfig.json";
    let asc = place.join("node_modules/.bin/asc").display().to_string();
    let args = ["main.ts", "--config", shim, "-O3", "--enable", "simd", "--outFile", &made];
    sh::read(sh::cmd(&asc, &args).current_dir(&place))?;
    Ok(place.join(made))
}
