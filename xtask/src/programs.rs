//! Commands that are programs of their own: they are built when they are used, so that `cargo xtask
//! check` and its like start soon.

use anyhow::{Context as _, Result};
use rig::sh;
use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;

/// Build of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// The one of the tests.
    Tested,
    /// The one that users install: for measurements, and for long runs.
    Measured,
}

/// Builds all programs, unless `--built` is among the arguments, and becomes the program of this
/// name.
pub(crate) fn build_and_replace(
    name: &str,
    profile: Profile,
    words: &[&str],
    args: &[String],
) -> Result<Infallible> {
    let is_built = args.iter().any(|word| word == "--built");
    match profile {
        _ if is_built => {}
        Profile::Tested => sh::build()?,
        Profile::Measured => sh::build_optimised()?,
    }
    replace(name, profile, words, args)
}

/// Becomes the program of this name, which must be built.
pub(crate) fn replace(
    name: &str,
    profile: Profile,
    words: &[&str],
    args: &[String],
) -> Result<Infallible> {
    let directory = match profile {
        Profile::Tested => "debug",
        Profile::Measured => "release",
    };
    let program = sh::target().join(directory).join(name);
    let error = sh::cmd(&program.display().to_string(), words).args(args).exec();
    Err(error)
        .with_context(|| format!("start {} (without --built, it is built)", program.display()))
}
