//! Compiled modules, and the proof that they come from this server's compiler.
//!
//! Machine code is executed unchecked, so nothing else may ever pass for it. There are three ways
//! to create an [`Artifact`]: compiling in this process; the output of a child process that was
//! started to compile this one module; and bytes sealed with a [`Key`], from a cache that only the
//! server reads and writes. The child has no key, so it cannot seal anything. `docs/data-format.md`
//! describes the format.
#![allow(unsafe_code)]

use crate::compiled::Hash;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use std::fmt;
use wasmtime::{Engine, Module, Precompiled};

const MAGIC: &[u8; 8] = b"upcall\0M";
const VERSION: u32 = 1;

/// Offsets of the parts of an artifact.
const COMPATIBILITY: usize = 16;
const NAME: usize = 48;
const LENGTH: usize = 80;
const MAC: usize = 88;
const CODE: usize = 120;

/// Secret key that authenticates artifacts; never reused.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Length of a key, bytes.
    pub const LEN: usize = 32;

    /// Creates a key from random bytes.
    pub fn new(bytes: [u8; Key::LEN]) -> Key {
        Key(bytes)
    }

    fn mac(&self, artifact: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("keys have any length");
        mac.update(&artifact[..MAC]);
        mac.update(&artifact[CODE..]);
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Error for bytes that are not an authentic artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// A compiled module.
pub struct Artifact {
    /// Header and code; see `docs/data-format.md`.
    bytes: Vec<u8>,
}

impl Artifact {
    /// Size of the header that [`Artifact::of_child`] fills in, bytes.
    pub const HEADER: usize = CODE;

    /// Creates an artifact from code that this process has just compiled.
    pub(crate) fn new(name: Hash, compatibility: Hash, code: &[u8]) -> Artifact {
        Artifact::behind_header(name, compatibility, [&[0; CODE], code].concat())
    }

    /// Creates an artifact from bytes with room for the header in front of the code.
    fn behind_header(name: Hash, compatibility: Hash, mut bytes: Vec<u8>) -> Artifact {
        let length = (bytes.len() - CODE) as u64;
        let (version, length) = (VERSION.to_le_bytes(), length.to_le_bytes());
        let parts: [&[u8]; 6] = [MAGIC, &version, &[0; 4], &compatibility.0, &name.0, &length];
        let head = parts.concat();
        assert_eq!(head.len(), MAC, "the authentication code comes behind");
        bytes[..MAC].copy_from_slice(&head);
        Artifact { bytes }
    }

    /// Creates an artifact from the output of a child process that was started to compile the
    /// module `name` for engines like this one and exited successfully. The output follows
    /// [`Artifact::HEADER`] bytes of room for the header.
    ///
    /// No other bytes may be passed here: the child's output is going to be executed, and the name
    /// is vouched for by the caller, not by the child.
    ///
    /// # Errors
    /// If these bytes are not a compiled module.
    pub fn of_child(
        name: Hash,
        engine: &crate::Engine,
        bytes: Vec<u8>,
    ) -> Result<Artifact, Broken> {
        let code = bytes.get(CODE..).ok_or(Broken)?;
        match Engine::detect_precompiled(code) {
            Some(Precompiled::Module) => {
                Ok(Artifact::behind_header(name, engine.compatibility(), bytes))
            }
            Some(Precompiled::Component) | None => Err(Broken),
        }
    }

    /// Returns the machine code.
    pub fn code(&self) -> &[u8] {
        &self.bytes[CODE..]
    }

    /// Computes the authentication code and returns the bytes to store; [`Artifact::open`] accepts
    /// them with the same key.
    pub fn seal(&mut self, key: &Key) -> &[u8] {
        let mac = key.mac(&self.bytes).finalize().into_bytes();
        self.bytes[MAC..CODE].copy_from_slice(&mac);
        &self.bytes
    }

    /// Opens bytes that were sealed with this key.
    ///
    /// # Errors
    /// If they were not.
    pub fn open(bytes: Vec<u8>, key: &Key) -> Result<Artifact, Broken> {
        let Some((head, code)) = bytes.split_at_checked(CODE) else { return Err(Broken) };
        let length = (code.len() as u64).to_le_bytes();
        let begins = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4]].concat();
        if !head.starts_with(&begins) || head[LENGTH..MAC] != length {
            return Err(Broken);
        }
        key.mac(&bytes).verify_slice(&head[MAC..]).map_err(|_| Broken)?;
        Ok(Artifact { bytes })
    }

    /// Returns the name of the source module.
    pub fn name(&self) -> Hash {
        self.hash(NAME)
    }

    /// Returns the compatibility hash of the engines that can load it.
    pub fn compatibility(&self) -> Hash {
        self.hash(COMPATIBILITY)
    }

    fn hash(&self, at: usize) -> Hash {
        Hash(std::array::from_fn(|index| self.bytes[at + index]))
    }

    /// Returns the size of the code, bytes.
    pub fn code_len(&self) -> usize {
        self.bytes.len() - CODE
    }

    /// Loads the code into an engine.
    ///
    /// # Errors
    /// If it was compiled for another engine.
    pub(crate) fn load(&self, engine: &Engine) -> wasmtime::Result<Module> {
        // SAFETY: `deserialize` requires the unchanged output of `precompile_module`. An artifact
        // contains exactly that: it was created from it in this process or read from a child that
        // did nothing else, or its authentication code was computed from such an artifact by this
        // server, with a key that only the server has. The engine itself compares version and
        // settings.
        unsafe { Module::deserialize(engine, &self.bytes[CODE..]) }
    }
}

impl fmt::Debug for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Artifact({}, {} bytes)", self.name(), self.code_len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Pace};

    const WAT: &str = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;

    fn artifact(engine: &Engine) -> Artifact {
        let wasm = wat::parse_str(WAT).expect("a module");
        engine.precompile(Hash::of(&wasm), &wasm).expect("it compiles")
    }

    #[test]
    fn sealed_artifacts_open_and_altered_ones_do_not() {
        let engine = Engine::compiler(Pace::Ticks).expect("an engine");
        let (key, other) = (Key::new([7; 32]), Key::new([8; 32]));
        let mut artifact = artifact(&engine);
        let sealed = artifact.seal(&key).to_vec();
        let opened = Artifact::open(sealed.clone(), &key).expect("its own key");
        assert_eq!((opened.name(), opened.code_len()), (artifact.name(), artifact.code_len()));
        engine.load(&opened).expect("it loads");
        assert_eq!(Artifact::open(sealed.clone(), &other).err(), Some(Broken));
        let places = (0..CODE + 8).chain((CODE..sealed.len()).step_by(97));
        for at in places {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(Artifact::open(changed, &key).err(), Some(Broken), "byte {at}");
        }
        for len in [0, 8, CODE - 1, CODE, sealed.len() - 1] {
            assert_eq!(Artifact::open(sealed[..len].to_vec(), &key).err(), Some(Broken));
        }
    }

    #[test]
    fn an_artifact_is_bound_to_its_module() {
        let engine = Engine::compiler(Pace::Ticks).expect("an engine");
        let (key, name) = (Key::new([7; 32]), Hash([9; 32]));
        let mut made = artifact(&engine);
        let mut taken = Artifact::of_child(name, &engine, made.bytes.clone()).expect("it is code");
        assert_eq!((taken.name(), taken.compatibility()), (name, engine.compatibility()));
        engine.load(&taken).expect("it loads");
        let opened = Artifact::open(taken.seal(&key).to_vec(), &key).expect("its own key");
        assert_eq!(opened.name(), name);
        // A child's output contains the code alone.
        for code in [made.seal(&key), b"", b"none", &[0; 4096]] {
            let bytes = [&[0; Artifact::HEADER], code].concat();
            assert_eq!(Artifact::of_child(name, &engine, bytes).err(), Some(Broken));
        }
        assert_eq!(Artifact::of_child(name, &engine, b"none".to_vec()).err(), Some(Broken));
    }

    /// Later versions read stored artifacts: `docs/data-format.md` specifies these bytes.
    #[test]
    fn the_header_has_its_bytes() {
        let mut artifact = Artifact::new(Hash([2; 32]), Hash([1; 32]), b"code");
        let sealed = artifact.seal(&Key::new([7; 32]));
        let mut head = b"upcall\0M\x01\0\0\0\0\0\0\0".to_vec();
        head.extend([[1; 32], [2; 32]].concat());
        head.extend(b"\x04\0\0\0\0\0\0\0");
        assert_eq!(sealed[..MAC], head);
        assert_eq!(&sealed[CODE..], b"code");
        // HMAC-SHA256 of the rest, computed by an independent program.
        let mac = "d2c478d6b98286e5de33be866ed5cfa7bac7c0f67f6665657236fb0b0c9bc0a6";
        assert_eq!(Hash(sealed[MAC..CODE].try_into().expect("32 bytes")).to_string(), mac);
    }

    #[test]
    fn engines_that_compile_make_what_engines_that_run_can_load() {
        let compiler = Engine::compiler(Pace::Ticks).expect("an engine");
        let runner = Engine::new(Pace::Ticks).expect("an engine");
        let fuel = Engine::new(Pace::Fuel(1000)).expect("an engine");
        assert_eq!(compiler.compatibility(), runner.compatibility());
        assert_ne!(compiler.compatibility(), fuel.compatibility());
        let artifact = artifact(&compiler);
        runner.load(&artifact).expect("it loads");
        let error = fuel.load(&artifact).err().expect("another pace").to_string();
        assert_eq!(error, "it was compiled for another engine");
    }
}
