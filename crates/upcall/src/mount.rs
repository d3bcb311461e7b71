//! `upcall mount`, and the helper `mount.upcall` of mount(8).

use ::mount::{Error, Mounted, Options};
use clap::Args;
use client::{Address, Dialect};
use reactor::Signals;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Interval at which signals are looked for.
const SIGNALS: Duration = Duration::from_millis(100);

/// Name of the program as a helper of mount(8), and its exit codes.
const HELPER: &str = "mount.upcall";
const USAGE: u8 = 1;
const FAILED: u8 = 32;

/// Mount the files of a 9P server on a directory of this host.
///
/// Runs until it is unmounted, by `umount DIR` or `fusermount3 -u DIR`, or gets Ctrl-C or SIGTERM.
/// While the mount is in use the first signal is refused, and the second detaches it.
///
/// Users other than root need the program fusermount3 (package fuse3).
#[derive(Args, Debug)]
#[command(after_long_help = OPTIONS)]
pub(crate) struct Mount {
    /// Server address: HOST:PORT, HOST (port 5640), :PORT (this host) or unix:PATH
    #[arg(value_name = "ADDR")]
    address: Address,

    /// Directory to mount on
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Mount options, separated by commas; see the list in --help
    #[arg(short = 'o', value_name = "OPTS")]
    options: Vec<String>,

    /// Return when it is mounted, and serve it from a process in the background
    #[arg(short, long)]
    background: bool,

    /// Be the process in the background.
    #[arg(long, hide = true)]
    detached: bool,
}

const OPTIONS: &str = "Mount options:
  ro                    refuse changes
  allow_other           permit other users; each attaches to the server as itself
  access=one            all users act as the one that mounts; the kernel checks mode bits
  default_permissions   the kernel checks mode bits, beside the server
  as=UID, uname=NAME    attach as this user, if the server trusts it
  aname=PATH            tree of the server: for diod, the path of the exported directory
  cache=open            cache data until a file is opened again (default)
  cache=keep            cache data until size or modification time change
  cache=write           cache writes, too; for trees that no other client changes
  cache=none            cache nothing
  attr_timeout=TIME     age of cached names and attributes: seconds, or with a unit, like 500ms
                        [default: 1; with cache=none 0]
  timeout=TIME          connect again after this time without a reply: seconds, or with a unit
                        [default: 60]
  msize=BYTES           maximum message size to propose, like 65536 or 64K [default: 1M]
  version=VERSION       9p2000.L or 9p2000 [default: the first that the server knows]
  suid, dev             heed set-user-id bits and devices, if root mounts; in fstab and for
                        mount(8), which keeps these words to itself: allow_suid, allow_dev
  remount               change ro, suid, dev, noexec of a mount that is there
  noexec, ...           as for mount(8)";

/// Runs the command.
pub(crate) fn run(flags: &Mount) -> ExitCode {
    let mut options = Options::default();
    for list in &flags.options {
        if let Err(reason) = options.apply(list) {
            err_line!("upcall: {reason}");
            return ExitCode::from(2);
        }
    }
    let done = if options.remount {
        change(&flags.dir, &options)
    } else if flags.background {
        in_background(&flags.address, &flags.dir, &flags.options)
    } else {
        in_foreground(flags, &options)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            err_line!("upcall: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn change(dir: &Path, options: &Options) -> Result<(), String> {
    ::mount::remount(dir, options).map_err(|error| error.to_string())
}

fn in_foreground(flags: &Mount, options: &Options) -> Result<(), String> {
    // Before there is any other thread.
    let signals = Signals::new().map_err(|error| {
        format!("cannot receive signals: {error}; raise the limit of open files")
    })?;
    if flags.detached {
        // A new session has no terminal whose end would end it. It fails for a leader of a group.
        let _ = rustix::process::setsid();
    }
    let mounted = ::mount::mount(&flags.address, &flags.dir, options);
    let mut mounted = mounted.map_err(|error: Error| error.to_string())?;
    announce(flags, &mounted);
    if flags.detached {
        leave_terminal();
    }
    serve(&mut mounted, &signals)
}

fn announce(flags: &Mount, mounted: &Mounted) {
    let protocol = match mounted.dialect() {
        Dialect::Linux => "9P2000.L",
        Dialect::Plan9 => "9P2000",
    };
    let (address, dir) = (&flags.address, flags.dir.display());
    // Nobody may read it.
    let _ = writeln!(
        std::io::stdout(),
        "mounted {address} on {dir} ({protocol}, messages of {} bytes)",
        mounted.msize()
    );
}

/// Closes the outputs of a process in the background, for whose end others may wait. The journal
/// stays.
fn leave_terminal() {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else {
        return;
    };
    let _ = rustix::stdio::dup2_stdin(&null);
    let _ = rustix::stdio::dup2_stdout(&null);
    if std::env::var_os("JOURNAL_STREAM").is_none() {
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Waits until it is unmounted, by others or after a signal.
fn serve(mounted: &mut Mounted, signals: &Signals) -> Result<(), String> {
    let mut refused = false;
    while !mounted.wait(SIGNALS) {
        if signals.take() == 0 {
            continue;
        }
        match mounted.unmount(refused) {
            Ok(()) => return Ok(()),
            Err(error) if !refused => {
                err_line!("upcall: {error}, or stop it again to detach it");
                refused = true;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// Starts a process that serves the mount, and waits until it is mounted.
fn in_background(address: &Address, dir: &Path, options: &[String]) -> Result<(), String> {
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot find the program itself: {error}; reinstall it"))?;
    let mut command = Command::new(program);
    command.args(["mount", "--detached"]);
    command.args(options.iter().flat_map(|list| ["-o", list]));
    command.arg(address.to_string()).arg(dir).stdin(Stdio::null()).stdout(Stdio::piped());
    let failed = |error| format!("cannot start a process: {error}; raise the limit of processes");
    let mut child = command.spawn().map_err(failed)?;
    let mut line = String::new();
    let output = child.stdout.take().expect("it is a pipe");
    // A failure to read is like the end of the process.
    let _ = BufReader::new(output).read_line(&mut line);
    if line.is_empty() {
        let status = child.wait().map_err(failed)?;
        return Err(format!("nothing is mounted: the process ended ({status}); see above"));
    }
    let _ = std::io::stdout().write_all(line.as_bytes());
    Ok(())
}

/// Reports whether the program was called as the helper of mount(8).
pub(crate) fn is_helper(program: Option<&OsString>) -> bool {
    program.is_some_and(|name| Path::new(name).file_name().is_some_and(|it| it == HELPER))
}

/// Arguments of the helper.
#[derive(Debug, Default, PartialEq, Eq)]
struct HelperArguments {
    words: Vec<OsString>,
    options: Vec<String>,
    /// Ignore unknown options.
    is_sloppy: bool,
    /// Do everything but mount.
    is_fake: bool,
    is_verbose: bool,
}

/// Parses `SRC DIR [-sfnv] [-N NAMESPACE] [-o OPTS] [-t TYPE]`.
fn parse(arguments: impl Iterator<Item = OsString>) -> Result<HelperArguments, String> {
    let mut parsed = HelperArguments::default();
    let mut arguments = arguments;
    while let Some(word) = arguments.next() {
        let Some(flags) = word.to_str().and_then(|word| word.strip_prefix('-')) else {
            parsed.words.push(word);
            continue;
        };
        for flag in flags.chars() {
            match flag {
                's' => parsed.is_sloppy = true,
                'f' => parsed.is_fake = true,
                'v' => parsed.is_verbose = true,
                'n' => {}
                'o' | 't' | 'N' => {
                    let value = arguments.next().and_then(|value| value.into_string().ok());
                    let value = value.ok_or_else(|| format!("-{flag} needs a value"))?;
                    parsed.options.extend((flag == 'o').then_some(value));
                }
                other => return Err(format!("unknown flag -{other}")),
            }
        }
    }
    Ok(parsed)
}

/// Runs the helper of mount(8), which ends when it is mounted.
pub(crate) fn run_helper(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let usage = |reason: String| {
        err_line!("{HELPER}: {reason}; usage: {HELPER} ADDR DIR [-sfnv] [-o OPTS]");
        ExitCode::from(USAGE)
    };
    let parsed = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(reason) => return usage(reason),
    };
    let [source, dir] = &parsed.words[..] else {
        return usage("a server and a directory are needed".to_string());
    };
    let address: Address = match String::from_utf8_lossy(source.as_bytes()).parse() {
        Ok(address) => address,
        Err(reason) => return usage(reason),
    };
    let (mut options, mut known) = (Options::default(), Vec::new());
    for part in parsed.options.iter().flat_map(|list| list.split(',')) {
        match options.apply(part) {
            Ok(()) => known.push(part),
            Err(_) if parsed.is_sloppy => {}
            Err(reason) => return usage(reason),
        }
    }
    if parsed.is_verbose {
        err_line!("{HELPER}: mounting {address} on {}", Path::new(dir).display());
    }
    if parsed.is_fake {
        return ExitCode::SUCCESS;
    }
    let done = match options.remount {
        true => change(Path::new(dir), &options),
        false => in_background(&address, Path::new(dir), &[known.join(",")]),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            err_line!("{HELPER}: {reason}");
            ExitCode::from(FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_mount_8_are_understood() {
        let words = ["nas:5640", "/mnt", "-sv", "-o", "ro,_netdev", "-t", "upcall"];
        let parsed = parse(words.iter().map(OsString::from)).unwrap();
        assert_eq!(parsed.words, ["nas:5640", "/mnt"]);
        assert_eq!(parsed.options, ["ro,_netdev"]);
        assert!(parsed.is_sloppy && parsed.is_verbose && !parsed.is_fake);
        assert!(parse(["-o"].iter().map(OsString::from)).is_err());
        assert!(parse(["-x"].iter().map(OsString::from)).is_err());
    }

    #[test]
    fn the_helper_is_known_by_its_name() {
        assert!(is_helper(Some(&"/sbin/mount.upcall".into())));
        assert!(!is_helper(Some(&"/usr/bin/upcall".into())));
        assert!(!is_helper(None));
    }
}
