//! Sources of mounts at run time: how each is opened, and the tree in it.

use super::Served;
use base::Error;
use base::op::{Address, File, PathDone, PathOp};
use names::script::{self, Source};
use store::{HEAD_BYTES, Store, Superblock};
use tree::Refusal;

/// First step of a mount.
pub(crate) enum Opening {
    /// None: the tree is known.
    Known(Served),
    /// This operation of the reactor.
    Ask(PathOp),
}

/// Options for opening sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Whether all changes are refused.
    pub(crate) read_only: bool,
    /// Memory for the blocks of each volume, bytes.
    pub(crate) volume_cache: usize,
}

/// Returns the refusal of a mount.
pub(crate) fn refusal(source: &Source, error: Error, advice: &str) -> Refusal {
    Refusal { error, why: format!("{source}: {error}; {advice}") }
}

/// Returns the operation that opens a source.
pub(crate) fn open(source: &Source, settings: Settings) -> Opening {
    match source {
        Source::Host(path) => Opening::Ask(PathOp::OpenRoot { path: path.as_bytes().to_vec() }),
        Source::Volume(path) => {
            let (path, writable) = (path.as_bytes().to_vec(), !settings.read_only);
            Opening::Ask(PathOp::OpenVolume { path, writable, head: HEAD_BYTES as u32 })
        }
        Source::NineP { address, aname } => match address.parse() {
            Ok(number) => Opening::Known(remote(source, vec![Address::Tcp(number)], aname)),
            Err(_name) => Opening::Ask(PathOp::Resolve { address: address.clone() }),
        },
        Source::NinePUnix { path, aname } => {
            let to = vec![Address::Unix(path.as_bytes().to_vec())];
            Opening::Known(remote(source, to, aname))
        }
    }
}

/// Returns the tree in an opened source; else the refusal, and the file to close.
pub(crate) fn opened(
    source: &Source,
    result: Result<PathDone, Error>,
    settings: Settings,
) -> Result<Served, (Refusal, Option<File>)> {
    match (source, result) {
        (_, Err(error)) => Err((refusal(source, error, advice(source, error)), None)),
        (Source::Host(path), Ok(PathDone::Root(root, stat))) => {
            Ok(Served::Directory { root, stat, path: path.as_bytes().to_vec() })
        }
        (Source::Volume(path), Ok(PathDone::Volume(file, size, head))) => {
            let refuse =
                |(error, what)| (refusal(source, error, &format!("{what} {path}")), Some(file));
            let (store, outputs) = store(&head, size, settings).map_err(refuse)?;
            Ok(Served::Volume { file, store, outputs, path: path.as_bytes().to_vec() })
        }
        (Source::NineP { aname, .. }, Ok(PathDone::Addresses(numbers))) => {
            let to = numbers.into_iter().map(Address::Tcp).collect();
            Ok(remote(source, to, aname))
        }
        (source, Ok(done)) => unreachable!("{done:?} for {source}"),
    }
}

/// Returns the file in an opened source, if there is one.
pub(crate) fn file(done: PathDone) -> Option<File> {
    if let PathDone::Root(file, _) | PathDone::Volume(file, ..) = done { Some(file) } else { None }
}

fn remote(source: &Source, to: Vec<Address>, aname: &str) -> Served {
    let path = script::quoted(&source.to_string()).into_bytes();
    Served::Remote { to, aname: aname.as_bytes().to_vec(), path }
}

/// A store, and its outputs at opening.
type Opened = (Box<Store>, Vec<store::Output>);

/// Opens the store in a volume's file; else returns the error and the command that examines it.
fn store(head: &[u8], size: u64, settings: Settings) -> Result<Opened, (Error, &'static str)> {
    let no_volume = (Error::Invalid, "it is no volume of this version: upcall volume create");
    let damaged = (Error::Io, "it is damaged: upcall volume check");
    let wrong = |error| if error == store::Error::NotAVolume { no_volume } else { damaged };
    let superblock = Superblock::newest(head).map_err(wrong)?;
    if !superblock.fits(size) {
        return Err((Error::Io, "it is shorter than it was; restore it from a copy:"));
    }
    let usual = store::Config::for_memory(settings.volume_cache, &superblock.layout);
    let config = store::Config { read_only: settings.read_only, ..usual };
    let mut outputs = Vec::new();
    let store = Store::open(head, config, base::Instant(0), &mut outputs).map_err(wrong)?;
    Ok((Box::new(store), outputs))
}

/// Returns a suggestion for a source that cannot be opened.
fn advice(source: &Source, error: Error) -> &'static str {
    match (source, error) {
        (Source::Host(_), Error::NotFound) => "name a directory of the server's host",
        (Source::Volume(_), Error::NotFound) => "make it with 'upcall volume create'",
        (Source::Volume(_), Error::Busy) => "another process, or another mount, has it",
        (Source::Volume(_), Error::IsDirectory | Error::Unsupported) => {
            "name a file or a block device"
        }
        (Source::NineP { .. }, Error::NotFound) => "no host of that name is known here",
        (_, Error::Denied | Error::NotPermitted) => "the server's user must be allowed to open it",
        (_, _) => "check the underlying device",
    }
}
