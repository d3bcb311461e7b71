//! The copy itself, from one side to the other.

use super::side::{Outcome, Side, Trouble};
use crate::progress::{self, Progress};
use crate::size::{count, counted, show};
use base::{Kind, Name, Stat};
use reactor::Signals;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Maximum number of errors listed one by one.
const ERRORS_SHOWN: usize = 100;

/// Exit code after an interrupt, by the convention of shells.
const INTERRUPTED: u8 = 130;

/// Source of a copy.
pub(crate) struct From<N> {
    pub(crate) node: N,
    pub(crate) stat: Stat,
    /// Its own name, if it has one.
    pub(crate) name: Option<Name>,
}

/// Target of a copy.
pub(crate) struct To<N> {
    pub(crate) dir: N,
    /// Name in the directory; `None`: a directory's contents are copied into that directory.
    pub(crate) name: Option<Name>,
}

/// Results.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    files: u64,
    directories: u64,
    /// Symbolic links and special files.
    others: u64,
    /// Additional hard links.
    links: u64,
    bytes: u64,
    /// Files that existed already.
    skipped: u64,
    seconds: f64,
    interrupted: bool,
    errors: Vec<Failed>,
}

/// A failed file.
#[derive(Debug, Serialize)]
struct Failed {
    path: String,
    cause: String,
}

/// Reason for an early end.
enum Stop {
    Interrupted,
    Over(String),
}

/// Total amounts.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    files: u64,
    bytes: u64,
}

/// A running copy.
pub(crate) struct Work<'a, S: Side, D: Side> {
    src: &'a mut S,
    dst: &'a mut D,
    /// A file that must not be copied: device and inode.
    except: Option<(u64, u64)>,
    signals: Signals,
    progress: Progress,
    totals: Totals,
    /// Files and bytes copied or skipped.
    passed: Totals,
    report: Report,
    /// Target path of the first name of each file with several.
    links: BTreeMap<(u64, u64), Vec<Name>>,
    /// Present path, from the top on.
    path: Vec<Name>,
}

impl<'a, S: Side, D: Side> Work<'a, S, D> {
    pub(crate) fn new(
        src: &'a mut S,
        dst: &'a mut D,
        except: Option<(u64, u64)>,
    ) -> Result<Work<'a, S, D>, String> {
        let signals = Signals::new().map_err(|error| format!("cannot hold signals: {error}"))?;
        Ok(Work {
            src,
            dst,
            except,
            signals,
            progress: Progress::start(),
            totals: Totals::default(),
            passed: Totals::default(),
            report: Report::default(),
            links: BTreeMap::new(),
            path: Vec::new(),
        })
    }

    /// Copies, and makes the copy durable. A second signal ends the process at once.
    ///
    /// # Errors
    /// If nothing could be copied, or the copy could not be made durable.
    pub(crate) fn copy(mut self, from: From<S::Node>, to: To<D::Node>) -> Result<Report, String> {
        let done = match self.progress.is_shown() && from.stat.kind == Kind::Directory {
            true => self.measure(&from.node),
            false => Ok(()),
        };
        let done = done.and_then(|()| self.top(from, &to));
        reactor::let_signals_through();
        let over = match done {
            Ok(()) => None,
            Err(Stop::Interrupted) => {
                self.report.interrupted = true;
                None
            }
            Err(Stop::Over(cause)) => Some(cause),
        };
        self.progress.clear();
        if let Some(cause) = over {
            self.report.errors.push(Failed { path: self.shown(), cause });
        } else if let Err(Trouble::File(cause) | Trouble::Over(cause)) = self.dst.sync() {
            self.report.errors.push(Failed { path: "/".to_string(), cause });
        }
        self.report.seconds = self.progress.elapsed().as_secs_f64();
        Ok(self.report)
    }

    fn top(&mut self, from: From<S::Node>, to: &To<D::Node>) -> Result<(), Stop> {
        let From { node, stat, name } = from;
        if stat.kind == Kind::Directory {
            return match &to.name {
                None => self.contents(&node, &to.dir, &to.dir, false),
                Some(name) => self.top_directory(&node, &stat, &to.dir, name),
            };
        }
        let own = name.or_else(|| to.name.clone());
        let Some(own) = own else {
            return Err(Stop::Over("it has no name; give the name of the copy".to_string()));
        };
        let Some(name) = &to.name else {
            return self.entry((&node, &stat), (&to.dir, &to.dir), &own, false);
        };
        let found = self.dst.find(&to.dir, name).map_err(over)?;
        match found {
            // Into the directory, under its own name, like `cp`.
            Some((dir, there)) if there.kind == Kind::Directory => {
                let done = self.entry((&node, &stat), (&dir, &dir), &own, false);
                self.dst.release(dir);
                done
            }
            found => {
                found.into_iter().for_each(|(node, _)| self.dst.release(node));
                self.entry((&node, &stat), (&to.dir, &to.dir), name, false)
            }
        }
    }

    fn top_directory(
        &mut self,
        node: &S::Node,
        stat: &Stat,
        above: &D::Node,
        name: &Name,
    ) -> Result<(), Stop> {
        let (dir, fresh) = match self.directory(above, name, false) {
            Ok(dir) => dir,
            Err(trouble) => return Err(over(trouble)),
        };
        let done = self.contents(node, &dir, &dir, fresh);
        let done = done.and_then(|()| self.dress(node, stat, &dir));
        self.dst.release(dir);
        done
    }

    /// Looks up or creates a directory; returns whether it is new.
    fn directory(&mut self, above: &D::Node, name: &Name, fresh: bool) -> Outcome<(D::Node, bool)> {
        let found = if fresh { None } else { self.dst.find(above, name)? };
        match found {
            Some((dir, stat)) if stat.kind == Kind::Directory => Ok((dir, false)),
            Some((other, _)) => {
                self.dst.release(other);
                Err(Trouble::File("something else is there; remove it first".to_string()))
            }
            None => {
                self.report.directories += 1;
                Ok((self.dst.make_dir(above, name)?, true))
            }
        }
    }

    /// Copies the contents of a directory. `top` is the root of the copy.
    fn contents(
        &mut self,
        from: &S::Node,
        top: &D::Node,
        to: &D::Node,
        fresh: bool,
    ) -> Result<(), Stop> {
        let names = match self.src.list(from) {
            Ok(names) => names,
            Err(trouble) => return self.note(trouble),
        };
        for name in names {
            if self.signals.take() > 0 {
                return Err(Stop::Interrupted);
            }
            self.path.push(name);
            self.child(from, top, to, fresh)?;
            self.path.pop();
            self.show();
        }
        Ok(())
    }

    fn child(
        &mut self,
        from: &S::Node,
        top: &D::Node,
        to: &D::Node,
        fresh: bool,
    ) -> Result<(), Stop> {
        let name = self.path.last().expect("it was pushed").clone();
        let (node, stat) = match self.src.find(from, &name) {
            Ok(Some(found)) => found,
            Ok(None) => return self.note(Trouble::File("it is gone meanwhile".to_string())),
            Err(trouble) => return self.note(trouble),
        };
        let done = match stat.kind {
            Kind::Directory => self.subtree(&node, &stat, top, (to, &name), fresh),
            Kind::File
            | Kind::Symlink
            | Kind::Fifo
            | Kind::Socket
            | Kind::CharDevice
            | Kind::BlockDevice => self.entry((&node, &stat), (top, to), &name, fresh),
        };
        self.src.release(node);
        done
    }

    fn subtree(
        &mut self,
        node: &S::Node,
        stat: &Stat,
        top: &D::Node,
        (to, name): (&D::Node, &Name),
        fresh: bool,
    ) -> Result<(), Stop> {
        let (dir, fresh) = match self.directory(to, name, fresh) {
            Ok(dir) => dir,
            Err(trouble) => return self.note(trouble),
        };
        let done = self.contents(node, top, &dir, fresh);
        let done = done.and_then(|()| self.dress(node, stat, &dir));
        self.dst.release(dir);
        done
    }

    /// Sets the attributes of a directory, after its contents.
    fn dress(&mut self, node: &S::Node, stat: &Stat, dir: &D::Node) -> Result<(), Stop> {
        let attrs = self.src.attrs(node, stat);
        let done = attrs.and_then(|attrs| self.dst.dress(dir, stat, &attrs));
        done.or_else(|trouble| self.note(trouble))
    }

    /// Copies anything except a directory, unless it exists.
    fn entry(
        &mut self,
        (node, stat): (&S::Node, &Stat),
        (top, to): (&D::Node, &D::Node),
        name: &Name,
        fresh: bool,
    ) -> Result<(), Stop> {
        if self.except == Some((stat.device, stat.inode)) {
            let cause = "it is the volume itself, which is not copied into itself";
            return self.note(Trouble::File(cause.to_string()));
        }
        let there = match fresh {
            true => Ok(None),
            false => self.dst.find(to, name),
        };
        let done = match there {
            Ok(there) => {
                let found = there.as_ref().map(|(node, stat)| (node, stat));
                let done = self.replace((node, stat), found, (top, to), name);
                there.into_iter().for_each(|(node, _)| self.dst.release(node));
                done
            }
            Err(trouble) => Err(trouble),
        };
        self.passed.files += 1;
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(Stop::Interrupted),
            Err(trouble) => self.note(trouble),
        }
    }

    /// Replaces an existing target; returns false after an interrupt.
    fn replace(
        &mut self,
        (node, stat): (&S::Node, &Stat),
        there: Option<(&D::Node, &Stat)>,
        (top, to): (&D::Node, &D::Node),
        name: &Name,
    ) -> Outcome<bool> {
        if there.is_some_and(|(_, stat)| stat.kind == Kind::Directory) {
            return Err(Trouble::File("a directory is there; remove it first".to_string()));
        }
        let key = (stat.device, stat.inode);
        if stat.links > 1
            && let Some(first) = self.links.get(&key).cloned()
        {
            return self.link(top, &first, there.map(|(_, stat)| stat), (to, name));
        }
        if stat.links > 1 {
            self.links.insert(key, self.path.clone());
        }
        if let Some((there, seen)) = there {
            if self.is_same(node, stat, there, seen)? {
                self.report.skipped += 1;
                self.passed.bytes += stat.size;
                return Ok(true);
            }
            self.dst.remove(to, name)?;
        }
        let made = self.make(node, stat, to, name);
        if !matches!(made, Ok(true)) {
            self.links.remove(&key);
        }
        made
    }

    /// Returns whether the existing file is the copy already.
    fn is_same(
        &mut self,
        node: &S::Node,
        stat: &Stat,
        there: &D::Node,
        seen: &Stat,
    ) -> Outcome<bool> {
        let dated = seen.kind == stat.kind && seen.modified == stat.modified;
        Ok(match stat.kind {
            Kind::File => dated && seen.size == stat.size,
            Kind::Symlink => dated && self.dst.target(there)? == self.src.target(node)?,
            Kind::CharDevice | Kind::BlockDevice => {
                dated && seen.special_device == stat.special_device
            }
            Kind::Fifo | Kind::Socket => dated,
            Kind::Directory => unreachable!("directories are entered"),
        })
    }

    /// Adds a hard link to the copy of a file's first name.
    fn link(
        &mut self,
        top: &D::Node,
        first: &[Name],
        there: Option<&Stat>,
        (to, name): (&D::Node, &Name),
    ) -> Outcome<bool> {
        let (node, stat) = self.walk(top, first)?;
        let done = match there {
            Some(there) if there.is_same(&stat) => {
                self.report.skipped += 1;
                Ok(())
            }
            there => {
                self.report.links += 1;
                let gone = there.map_or(Ok(()), |_| self.dst.remove(to, name));
                gone.and_then(|()| self.dst.link(&node, to, name))
            }
        };
        self.dst.release(node);
        done.map(|()| true)
    }

    /// Looks up a file from the top of the copy on.
    fn walk(&mut self, top: &D::Node, path: &[Name]) -> Outcome<(D::Node, Stat)> {
        let mut here: Option<(D::Node, Stat)> = None;
        for name in path {
            let next = self.dst.find(here.as_ref().map_or(top, |(node, _)| node), name);
            here.into_iter().for_each(|(node, _)| self.dst.release(node));
            here = next?;
            if here.is_none() {
                break;
            }
        }
        here.ok_or_else(|| Trouble::File("its first name is gone meanwhile".to_string()))
    }

    /// Creates the copy, which does not exist; returns false after an interrupt.
    fn make(&mut self, node: &S::Node, stat: &Stat, to: &D::Node, name: &Name) -> Outcome<bool> {
        let attrs = self.src.attrs(node, stat)?;
        let made = match stat.kind {
            Kind::File => {
                let (made, mut open) = self.dst.create(to, name)?;
                let filled = self.fill(node, stat, &made, &mut open);
                self.dst.close(open);
                let dressed = filled.and_then(|whole| match whole {
                    true => self.dst.dress(&made, stat, &attrs).map(|()| true),
                    false => Ok(false),
                });
                self.dst.release(made);
                if !matches!(dressed, Ok(true)) {
                    self.dst.remove(to, name)?;
                }
                self.report.files += u64::from(matches!(dressed, Ok(true)));
                return dressed;
            }
            Kind::Symlink => {
                let target = self.src.target(node)?;
                self.dst.symlink(to, name, &target)?
            }
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
                self.dst.make_node(to, name, stat)?
            }
            Kind::Directory => unreachable!("directories are entered"),
        };
        let dressed = self.dst.dress(&made, stat, &attrs);
        self.dst.release(made);
        self.report.others += 1;
        dressed.map(|()| true)
    }

    /// Copies the contents; returns false after an interrupt.
    fn fill(
        &mut self,
        node: &S::Node,
        stat: &Stat,
        made: &D::Node,
        to: &mut D::Open,
    ) -> Outcome<bool> {
        let mut from = self.src.open(node)?;
        let done = self.parts(&mut from, stat, to);
        self.src.close(from);
        let Some((end, seen)) = done? else { return Ok(false) };
        let sparse = stat.blocks.saturating_mul(512) < stat.size;
        if seen < stat.size && !sparse {
            return Err(Trouble::File("it was changed meanwhile; copy again".to_string()));
        }
        if end < stat.size {
            self.dst.lengthen(made, to, stat.size)?;
        }
        Ok(true)
    }

    /// Copies all parts; returns the end of the last one, and the length of the original as read.
    /// `None` after an interrupt.
    fn parts(
        &mut self,
        from: &mut S::Open,
        stat: &Stat,
        to: &mut D::Open,
    ) -> Outcome<Option<(u64, u64)>> {
        let (mut at, mut end) = (0, 0);
        while let Some(part) = self.src.read(from, at, stat)? {
            let bytes: u64 = part.bytes.iter().map(|piece| piece.len() as u64).sum();
            self.passed.bytes += part.next - at;
            at = part.next;
            if bytes > 0 {
                end = part.at + bytes;
                self.dst.write(to, part)?;
                self.report.bytes += bytes;
            }
            if at < stat.size {
                self.show();
                if self.signals.take() > 0 {
                    return Ok(None);
                }
            }
        }
        Ok(Some((end, at)))
    }

    /// Counts everything first, to estimate the remaining time.
    fn measure(&mut self, dir: &S::Node) -> Result<(), Stop> {
        // Directories that cannot be listed are reported when they are copied.
        for name in self.src.list(dir).unwrap_or_default() {
            if self.signals.take() > 0 {
                return Err(Stop::Interrupted);
            }
            let Ok(Some((node, stat))) = self.src.find(dir, &name) else { continue };
            let done = match stat.kind {
                Kind::Directory => self.measure(&node),
                _ => {
                    self.totals.files += 1;
                    self.totals.bytes += if stat.kind == Kind::File { stat.size } else { 0 };
                    Ok(())
                }
            };
            self.src.release(node);
            done?;
            let Totals { files, bytes } = self.totals;
            self.progress.show(|_| format!("counting: {} files, {}", count(files), show(bytes)));
        }
        Ok(())
    }

    fn show(&mut self) {
        let (passed, totals, copied) = (self.passed, self.totals, self.report.bytes);
        self.progress.show(|elapsed| {
            let rate = progress::rate(copied, elapsed);
            // The overhead of a small file counts as 16 KiB more.
            let weight = |Totals { files, bytes }: Totals| bytes + files * (16 << 10);
            let left = progress::left(weight(passed), weight(totals), elapsed);
            format!(
                "copying: {} of {} files, {} of {}, {rate}{left}",
                count(passed.files),
                count(totals.files.max(passed.files)),
                show(passed.bytes),
                show(totals.bytes.max(passed.bytes))
            )
        });
    }

    fn shown(&self) -> String {
        let path: String = self.path.iter().map(|name| format!("/{name}")).collect();
        if path.is_empty() { "/".to_string() } else { path }
    }

    /// Records an error, and continues unless it is fatal.
    fn note(&mut self, trouble: Trouble) -> Result<(), Stop> {
        match trouble {
            Trouble::File(cause) => {
                self.report.errors.push(Failed { path: self.shown(), cause });
                Ok(())
            }
            Trouble::Over(cause) => Err(Stop::Over(cause)),
        }
    }
}

/// Converts an error at the beginning of a copy, where any is fatal.
fn over(trouble: Trouble) -> Stop {
    let (Trouble::File(cause) | Trouble::Over(cause)) = trouble;
    Stop::Over(cause)
}

impl Report {
    /// Prints the results; returns the exit code.
    pub(crate) fn emit(&self, json: bool) -> ExitCode {
        match json {
            true => out_line!("{}", crate::output::json(self)),
            false => self.print(),
        }
        match (self.interrupted, self.errors.is_empty()) {
            (true, _) => ExitCode::from(INTERRUPTED),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::from(1),
        }
    }

    fn print(&self) {
        for Failed { path, cause } in self.errors.iter().take(ERRORS_SHOWN) {
            err_line!("{path}: {cause}");
        }
        if self.errors.len() > ERRORS_SHOWN {
            err_line!("… and {} more; --json shows all", self.errors.len() - ERRORS_SHOWN);
        }
        let elapsed = std::time::Duration::from_secs_f64(self.seconds);
        let mut line = format!(
            "copied {}, {}, {} in {:.1} s ({})",
            counted(self.files, "file", "files"),
            counted(self.directories, "directory", "directories"),
            show(self.bytes),
            self.seconds,
            progress::rate(self.bytes, elapsed)
        );
        for (number, one, many) in [
            (self.others, "link or special file", "links and special files"),
            (self.links, "further name", "further names"),
            (self.skipped, "there already", "there already"),
            (self.errors.len() as u64, "failed", "failed"),
        ] {
            if number > 0 {
                line += &format!("; {}", counted(number, one, many));
            }
        }
        out_line!("{line}");
        if self.interrupted {
            out_line!(
                "interrupted: files copied so far are durable; run the same command to resume"
            );
        }
    }
}
