//! Requests that list directories.

use crate::answer::Answer;
use crate::attr::Attr;
use crate::errno;
use crate::handles::Handle;
use crate::link::{Connection, Failure, Fid};
use crate::listing::{AFTER_DOT, AFTER_DOTS, Found, Item, Listing};
use crate::session::{Caller, Session};
use crate::{linux, lock};
use client::Dialect;
use std::sync::Arc;
use wire::fuse::{Entry, put_dirent, put_dirent_plus};
use wire::ninep::{Names, Tmessage};

/// Bytes of entries requested from the server at a time.
const BATCH: u32 = 128 << 10;

/// Bytes of an entry with attributes, beside its name.
const PLUS_SIZE: usize = 128 + 24;

const DT_DIR: u8 = 4;

/// Attributes of an entry, and its fid if the server was asked.
struct Looked {
    fid: Option<Arc<Fid>>,
    attr: Attr,
}

fn looked((fid, attr): (Option<Arc<Fid>>, Option<Attr>)) -> Option<Looked> {
    fid.zip(attr).map(|(fid, attr)| Looked { fid: Some(fid), attr })
}

impl Session {
    /// Lists entries of a directory, with attributes if `plus`.
    pub(crate) fn read_dir(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        (offset, size): (u64, u32),
        plus: bool,
    ) -> Result<Answer, Failure> {
        let (mut out, size) = (Vec::new(), size as usize);
        let mut put = |next, name: &[u8]| {
            let item = (handle.node, next, DT_DIR, name);
            match plus {
                true => put_dirent_plus(&Entry::default(), item, size, &mut out),
                false => put_dirent(item, size, &mut out),
            }
        };
        let from = match offset {
            0 if put(AFTER_DOT, b".") && put(AFTER_DOTS, b"..") => 0,
            AFTER_DOT if put(AFTER_DOTS, b"..") => 0,
            AFTER_DOTS => 0,
            0 | AFTER_DOT => return Ok(Answer::bytes(out)),
            other => other,
        };
        let mut listing = lock(&handle.listing);
        if offset == 0 {
            // A directory is read anew after a rewind.
            listing.restart(0);
            if let Some(items) = self.list_ahead(handle.node) {
                listing.fill(items);
            }
        }
        let Some(index) = self.find(caller, handle, &mut listing, from)? else {
            return Ok(Answer::bytes(out));
        };
        let items = listing.from(index);
        match plus {
            true => self.put_with_attributes(caller, handle, items, (out, size)),
            false => {
                for item in items.iter().filter(|item| !item.name.is_empty()) {
                    let entry = (item.qid.path, item.cookie, item.kind, &item.name[..]);
                    if !put_dirent(entry, size, &mut out) {
                        break;
                    }
                }
                Ok(Answer::bytes(out))
            }
        }
    }

    /// Returns the index of the first entry at or behind an offset; reads from the server what is
    /// missing. `None` at the end.
    fn find(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        listing: &mut Listing,
        mut offset: u64,
    ) -> Result<Option<usize>, Failure> {
        let mut passed = false;
        loop {
            match listing.find(offset) {
                Found::At(index) => match listing.shown_from(index) {
                    Some(shown) => return Ok(Some(shown)),
                    None => offset = listing.next,
                },
                Found::Next if listing.is_over => return Ok(None),
                Found::Next => self.read_batch(caller, handle, listing)?,
                Found::End => return Ok(None),
                Found::Elsewhere => {
                    let fid = self.open_fid(caller, handle)?;
                    let is_linux = fid.connection.dialect == Dialect::Linux;
                    match (is_linux, passed || listing.is_over) {
                        (true, _) => listing.restart(offset),
                        // Directories of 9P2000 are read from the start only (read(5)).
                        (false, false) if listing.next < offset && listing.next > 0 => {
                            self.read_batch(caller, handle, listing)?;
                        }
                        (false, false) => {
                            passed = listing.next > 0;
                            listing.restart(0);
                            self.read_batch(caller, handle, listing)?;
                        }
                        (false, true) => return Ok(None),
                    }
                }
            }
        }
    }

    fn read_batch(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        listing: &mut Listing,
    ) -> Result<(), Failure> {
        let fid = self.open_fid(caller, handle)?;
        let connection = &fid.connection;
        let count = BATCH.min(connection.io_max());
        let (fid, offset) = (fid.number, listing.next);
        let message = match connection.dialect {
            Dialect::Linux => Tmessage::Readdir { fid, offset, count },
            Dialect::Plan9 => Tmessage::Read { fid, offset, count },
        };
        let reply = connection.request(caller.interrupt, &message, None)?;
        let data = reply.data(count).map_err(|error| connection.failure(&error))?;
        let added = match connection.dialect {
            Dialect::Linux => listing.add_linux(data),
            Dialect::Plan9 => listing.add_plan9(data, self.settings.owner),
        };
        added.map_err(|()| Failure::Errno(errno::EPROTO))
    }

    /// Appends as many entries as fit. Their files are walked to and looked at all at once.
    fn put_with_attributes(
        &self,
        caller: &Caller<'_>,
        handle: &Handle,
        items: &[Item],
        (mut out, size): (Vec<u8>, usize),
    ) -> Result<Answer, Failure> {
        let mut room = size.saturating_sub(out.len());
        let fit = items.iter().filter(|item| !item.name.is_empty()).take_while(|item| {
            let needs = (PLUS_SIZE + item.name.len()).next_multiple_of(8);
            let fits = needs <= room;
            room = room.saturating_sub(needs);
            fits
        });
        let fit: Vec<&Item> = fit.collect();
        let found = self.look_ahead(caller, handle.node, &fit)?;
        let (mut nodes, mut entered) = (lock(&self.nodes), Vec::new());
        for (item, found) in fit.iter().zip(found) {
            let dirent = (item.qid.path, item.cookie, item.kind, &item.name[..]);
            // A file that is gone meanwhile, or must not be looked at, has no attributes.
            let Some(Looked { fid, attr }) = found else {
                put_dirent_plus(&Entry::default(), dirent, size, &mut out);
                continue;
            };
            let place = (handle.node, &item.name[..]);
            let fid = fid.map(|fid| (caller.user, fid));
            let node = nodes.enter_with(&attr, place, fid);
            if put_dirent_plus(&self.entry(node, &attr), dirent, size, &mut out) {
                entered.push(node);
            } else {
                nodes.forget(node, 1);
            }
        }
        drop(nodes);
        Ok(Answer { entered, ..Answer::bytes(out) })
    }

    /// Returns the attributes of each entry: those that were sent ahead, and those of the others
    /// from the server, with fids.
    fn look_ahead(
        &self,
        caller: &Caller<'_>,
        node: u64,
        items: &[&Item],
    ) -> Result<Vec<Option<Looked>>, Failure> {
        let mut found: Vec<Option<Looked>> = Vec::new();
        let mut missing = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let attr = self.entry_ahead(node, &item.name);
            if attr.is_none() {
                missing.push(index);
            }
            found.push(attr.map(|attr| Looked { fid: None, attr }));
        }
        if !missing.is_empty() {
            let dir = self.fid(caller, node)?;
            let wanted: Vec<&Item> = missing.iter().map(|index| items[*index]).collect();
            for (index, looked) in missing.into_iter().zip(self.look(caller, &dir, &wanted)?) {
                found[index] = looked;
            }
        }
        Ok(found)
    }

    /// Returns fid and attributes of each entry, in two round trips.
    fn look(
        &self,
        caller: &Caller<'_>,
        dir: &Fid,
        items: &[&Item],
    ) -> Result<Vec<Option<Looked>>, Failure> {
        let connection = &dir.connection;
        let walked = walk_all(caller, connection, dir.number, items)?;
        if connection.dialect == Dialect::Plan9 {
            let known = items.iter().map(|item| item.attr);
            return Ok(walked.into_iter().zip(known).map(looked).collect());
        }
        let failed = |error| connection.failure(&error);
        let mut calls = Vec::new();
        for fid in &walked {
            let message = fid.as_ref().map(|fid| linux::getattr_message(fid.number));
            let call = message.map(|message| connection.raw.post(&message, None));
            calls.push(call.transpose().map_err(failed)?);
        }
        connection.raw.push().map_err(failed)?;
        let mut found = Vec::new();
        for (fid, call) in walked.into_iter().zip(calls) {
            let attr = match call.map(|call| call.wait(caller.interrupt)).transpose() {
                Ok(reply) => {
                    reply.map(|it| it.read(linux::attributes)).transpose().map_err(failed)?
                }
                Err(error) => match failed(error) {
                    Failure::Errno(_) => None,
                    failure @ (Failure::Lost(_) | Failure::Interrupted) => return Err(failure),
                },
            };
            found.push(looked((fid, attr)));
        }
        Ok(found)
    }
}

/// Walks to each entry of a directory, all at once.
fn walk_all(
    caller: &Caller<'_>,
    connection: &Arc<Connection>,
    fid: u32,
    items: &[&Item],
) -> Result<Vec<Option<Arc<Fid>>>, Failure> {
    let failed = |error| connection.failure(&error);
    let mut calls = Vec::new();
    for item in items {
        let newfid = connection.raw.new_fid().map_err(failed)?;
        let names = Names::new(&[&item.name[..]]).expect("one name");
        let message = Tmessage::Walk { fid, newfid, names };
        calls.push((newfid, connection.raw.post(&message, Some(newfid)).map_err(failed)?));
    }
    connection.raw.push().map_err(failed)?;
    let mut fids = Vec::new();
    for (newfid, call) in calls {
        let reply = call.wait(caller.interrupt).map_err(failed);
        let walked = connection.made(newfid, reply, |reply| {
            let wire::ninep::Rmessage::Walk { qids } = reply else { return None };
            (qids.as_slice().len() == 1).then_some(())
        });
        match walked {
            Ok((fid, ())) => fids.push(Some(Arc::new(fid))),
            Err(Failure::Errno(_)) => fids.push(None),
            Err(failure) => return Err(failure),
        }
    }
    Ok(fids)
}
