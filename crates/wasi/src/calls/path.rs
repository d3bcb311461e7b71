//! Resolution of paths to nodes. A path starts at a directory that the guest has, and never leads
//! above it: neither by `..` nor by a link.

use crate::abi::Errno;
use crate::client::DEVICE;
use crate::client::{Client, Held};
use crate::host::Stop;
use base::{Kind, Name, Stat};
use std::collections::VecDeque;
use tree::NodeId;

/// Maximum number of names in a walk, and of links on a path.
const NAMES_MAX: usize = 16;
const LINKS_MAX: usize = 40;

/// Maximum length of a path, bytes.
pub(super) const PATH_MAX: u32 = 4096;

enum Step {
    Down(Name),
    Up,
}

fn steps(path: &[u8]) -> Result<VecDeque<Step>, Errno> {
    if path.first() == Some(&b'/') {
        return Err(Errno::Notcapable);
    }
    let steps = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let step = |part: &[u8]| match part {
        b".." => Ok(Step::Up),
        name => Ok(Step::Down(Name::new(name)?)),
    };
    steps.map(step).collect()
}

/// Result of a walk.
enum Looked {
    There(Held, Stat),
    /// A link, with its position among the names.
    Link(usize, Held),
}

/// A resolved file.
pub(super) struct Found {
    pub(super) held: Held,
    pub(super) stat: Stat,
    /// Whether its path has neither links nor `..`.
    pub(super) straight: bool,
}

/// Resolves a path. With `follow` the last name may be a link.
pub(super) async fn find(
    client: &Client,
    base: NodeId,
    path: &[u8],
    follow: bool,
) -> Result<Found, Stop> {
    if path.is_empty() {
        return Err(Errno::Noent.into());
    }
    let must_be_dir = matches!(path.last(), Some(b'/')) || path.ends_with(b"/.");
    let (mut todo, mut way, mut links) = (steps(path)?, Vec::new(), 0);
    let goes_up = todo.iter().any(|step| matches!(step, Step::Up));
    // Number of leading names that are known to be directories.
    let mut sure = 0;
    loop {
        let up = match todo.pop_front() {
            Some(Step::Down(name)) => {
                way.push(name);
                continue;
            }
            Some(Step::Up) if way.is_empty() => return Err(Errno::Notcapable.into()),
            Some(Step::Up) if way.len() <= sure => {
                way.pop();
                sure = way.len();
                continue;
            }
            Some(Step::Up) => true,
            None => false,
        };
        match look(client, base, &way, up || follow || must_be_dir).await? {
            Looked::There(_, stat) if (up || must_be_dir) && stat.kind != Kind::Directory => {
                return Err(Errno::Notdir.into());
            }
            Looked::There(held, stat) if !up => {
                return Ok(Found { held, stat, straight: links == 0 && !goes_up });
            }
            Looked::There(..) => {
                way.pop();
                sure = way.len();
            }
            Looked::Link(place, held) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::Loop.into());
                }
                let target = client.read_link(held.node()).await?;
                if up {
                    todo.push_front(Step::Up);
                }
                let rest = way.drain(place..).skip(1).map(Step::Down).collect::<Vec<_>>();
                rest.into_iter().rev().for_each(|step| todo.push_front(step));
                steps(&target)?.into_iter().rev().for_each(|step| todo.push_front(step));
                sure = sure.min(way.len());
            }
        }
    }
}

/// Walks a path; a link as the last name is reported only with `follow`.
async fn look(client: &Client, base: NodeId, way: &[Name], follow: bool) -> Result<Looked, Stop> {
    if way.is_empty() {
        let (held, _) = client.walk(base, &[]).await?;
        let held = held.ok_or(Errno::Noent)?;
        let stat = client.stat(held.node()).await?;
        return Ok(Looked::There(held, stat));
    }
    let (mut from, mut passed): (Option<Held>, usize) = (None, 0);
    for names in way.chunks(NAMES_MAX) {
        let start = from.as_ref().map_or(base, Held::node);
        let (held, stats) = client.walk(start, names).await?;
        let Some(stat) = stats.last() else { return Err(Errno::Noent.into()) };
        let place = passed + stats.len() - 1;
        let is_last = place + 1 == way.len();
        let Some(held) = held else {
            return match stat.kind {
                Kind::Directory => Err(Errno::Noent.into()),
                Kind::Symlink => {
                    let (held, _) = client.walk(start, &names[..stats.len()]).await?;
                    Ok(Looked::Link(place, held.ok_or(Errno::Noent)?))
                }
                Kind::File | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                    Err(Errno::Notdir.into())
                }
            };
        };
        // A guest starts no storelets: they would have budgets of their own.
        if stat.device == DEVICE {
            return Err(Errno::Notcapable.into());
        }
        if stat.kind == Kind::Symlink && (follow || !is_last) {
            return Ok(Looked::Link(place, held));
        }
        if is_last {
            return Ok(Looked::There(held, stat.clone()));
        }
        (from, passed) = (Some(held), passed + names.len());
    }
    unreachable!("the last chunk has the last name")
}

/// Returns the directory of the last name of a path, and that name.
pub(super) async fn parent(
    client: &Client,
    base: NodeId,
    path: &[u8],
) -> Result<(Held, Name), Stop> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    let begin = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let name = Name::new(&path[begin..])?;
    if !name.plain() {
        return Err(Errno::Inval.into());
    }
    let above: &[u8] = if begin == 0 { b"." } else { &path[..begin] };
    let Found { held, stat, .. } = find(client, base, above, true).await?;
    if stat.kind != Kind::Directory {
        return Err(Errno::Notdir.into());
    }
    Ok((held, name))
}
