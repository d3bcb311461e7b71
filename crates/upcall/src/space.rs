//! The served namespace: a single tree, or several joined by a names file.
//!
//! A names file has the lines of [`script`]. The tree that its first line mounts at `/` is the
//! root; otherwise the root is a tree of empty directories, one for each mount point of a line.

use crate::bounded;
use crate::config::Serve;
use crate::place::{self, TreeSource, What};
use base::{Name, Stat};
use node::Order;
use node::script::{self, Line, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The served namespace.
pub(crate) struct Space {
    pub(crate) root: TreeSource,
    pub(crate) entries: Vec<MountEntry>,
    /// The names file.
    pub(crate) file: Option<PathBuf>,
}

/// A mount or bind of the namespace.
pub(crate) struct MountEntry {
    /// Its line in the names file.
    pub(crate) line: usize,
    pub(crate) what: MountSource,
    pub(crate) at: Vec<Name>,
    pub(crate) order: Order,
    pub(crate) create: bool,
    pub(crate) source_text: Arc<str>,
}

/// Its source.
pub(crate) enum MountSource {
    TreeSource(TreeSource),
    Path(Vec<Name>),
    /// None: the mount is removed, or only this source of it.
    Gone(Option<Arc<str>>),
}

/// Finds the trees to serve; creates and opens volumes. Messages go to `say`.
pub(crate) fn find(serve: &Serve, emit: &dyn Fn(&str)) -> Result<Space, String> {
    let Some(file) = &serve.names else {
        let root = place::find(serve, emit)?;
        return Ok(Space { root, entries: Vec::new(), file: None });
    };
    let wrong = |line: usize, what: &dyn Display| format!("{}:{line}: {what}", file.display());
    let text = bounded::read_text(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let mut lines = script::parse(&text).map_err(|it| wrong(it.line, &it.what))?;
    if let (Some(dir), Some(number)) = (&serve.dir, covered(&lines)) {
        let dir = dir.display();
        let what = format!("this covers all of {dir}: leave out the line, or 'serve {dir}'");
        return Err(wrong(number, &what));
    }
    once(serve.dir.as_deref(), &lines).map_err(|(line, what)| wrong(line, &what))?;
    let root = match (serve.dir.is_some(), lines.first()) {
        (true, _) => place::find(serve, emit)?,
        (false, Some((_, Line::Mount { at, .. }))) if at.is_empty() => {
            let (number, line) = lines.remove(0);
            let Line::Mount { source, .. } = line else { unreachable!("it is a mount") };
            of(&source, serve, emit).map_err(|what| wrong(number, &what))?
        }
        (false, _) => skeleton(&lines),
    };
    let mut entries = Vec::new();
    for (number, line) in lines {
        entries.push(entry(number, line, serve, emit).map_err(|what| wrong(number, &what))?);
    }
    Ok(Space { root, entries, file: Some(file.clone()) })
}

/// Returns the number of the first line that covers the root.
fn covered(lines: &[(usize, Line)]) -> Option<usize> {
    let covers = |(number, line): &(usize, Line)| match line {
        Line::Mount { at, order, .. } | Line::Bind { old: at, order, .. } => {
            (at.is_empty() && *order == Order::default()).then_some(*number)
        }
        Line::Unmount { .. } | Line::Grow { .. } => None,
    };
    lines.iter().find_map(covers)
}

/// Checks that no volume is mounted twice, as only one tree can open it; volumes that do not exist
/// yet are distinguished by their paths.
fn once(dir: Option<&Path>, lines: &[(usize, Line)]) -> Result<(), (usize, String)> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let served = dir.map(|dir| (real(dir), ("the command line".to_string(), "/".to_string())));
    let mut mounted: BTreeMap<PathBuf, (String, String)> = served.into_iter().collect();
    for (number, line) in lines {
        let Line::Mount { at, source: Source::Volume(file), .. } = line else { continue };
        let path = real(Path::new(file));
        let at = script::path_text(at);
        if let Some((first, there)) = mounted.get(&path) {
            let what = format!(
                "{} is mounted by {first} already; to show it at {at}, too: bind {there} {at}",
                script::quoted(&format!("volume:{file}"))
            );
            return Err((*number, what));
        }
        mounted.insert(path, (format!("line {number}"), at));
    }
    Ok(())
}

impl Space {
    /// Returns the tree that depends most on the server's user: a directory of the host, if there
    /// is one.
    pub(crate) fn strictest(&self) -> &TreeSource {
        self.directories().next().unwrap_or(&self.root)
    }

    /// Returns the served directories of the host.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &TreeSource> {
        let others = self.entries.iter().filter_map(|entry| match &entry.what {
            MountSource::TreeSource(place) => Some(place),
            MountSource::Path(_) | MountSource::Gone(_) => None,
        });
        let places = std::iter::once(&self.root).chain(others);
        places.filter(|place| matches!(place.what, What::Directory))
    }
}

impl MountEntry {
    /// Returns the text of the line.
    pub(crate) fn text(&self) -> String {
        let at = script::path_text(&self.at);
        match &self.what {
            MountSource::TreeSource(_) => format!("mount {at} {}", self.source_text),
            MountSource::Path(_) => format!("bind {} {at}", self.source_text),
            MountSource::Gone(None) => format!("unmount {at}"),
            MountSource::Gone(Some(what)) => format!("unmount {what} {at}"),
        }
    }
}

/// Returns the error message for a line that the node could not join.
pub(crate) fn explain(
    file: Option<&Path>,
    line: usize,
    source_text: &str,
    error: base::Error,
) -> String {
    let file = file.unwrap_or(Path::new("names"));
    let advice = node::advice(error);
    format!("{}:{line}: {source_text}: {error}; {advice}", file.display())
}

fn entry(
    number: usize,
    line: Line,
    serve: &Serve,
    emit: &dyn Fn(&str),
) -> Result<MountEntry, String> {
    match line {
        Line::Mount { at, source, order, create } => {
            let what = MountSource::TreeSource(of(&source, serve, emit)?);
            let source_text = script::quoted(&source.to_string()).into();
            Ok(MountEntry { line: number, what, at, order, create, source_text })
        }
        Line::Bind { new, old, order, create } => {
            let source_text = script::path_text(&new).into();
            let what = MountSource::Path(new);
            Ok(MountEntry { line: number, what, at: old, order, create, source_text })
        }
        Line::Unmount { what, at } => {
            let what = MountSource::Gone(what.map(|what| script::quoted(&what).into()));
            let (order, create, source_text) = (Order::default(), false, "".into());
            Ok(MountEntry { line: number, what, at, order, create, source_text })
        }
        Line::Grow { file, .. } => Err(format!(
            "volume:{file}: grow is for a running server; without one: 'upcall volume grow'"
        )),
    }
}

/// Returns the tree mounted by a line.
fn of(source: &Source, serve: &Serve, emit: &dyn Fn(&str)) -> Result<TreeSource, String> {
    match source {
        Source::Volume(file) => place::named(Path::new(file), true, serve, emit),
        Source::Host(directory) => place::named(Path::new(directory), false, serve, emit),
        Source::NineP { .. } | Source::NinePUnix { .. } => place::remote(source),
    }
}

/// Returns empty directories for all mount points.
fn skeleton(lines: &[(usize, Line)]) -> TreeSource {
    let places = lines.iter().filter_map(|(_, line)| match line {
        Line::Mount { at, .. } | Line::Bind { old: at, .. } | Line::Unmount { at, .. } => Some(at),
        Line::Grow { .. } => None,
    });
    let paths: BTreeSet<Vec<Name>> = places.cloned().collect();
    let stat = Stat { uid: reactor::own_user(), ..Stat::default() };
    TreeSource { path: PathBuf::from("/"), stat, what: What::Skeleton(paths.into_iter().collect()) }
}
