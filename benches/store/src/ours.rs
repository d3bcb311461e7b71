//! Ours: a `Local` for one thread, a `Volume` for many.

use crate::engine::{Engine, Entry, MEMORY, Session, Shared, Users};
use anyhow::{Context, Result};
use embed::{Local, Options, Tree, Volume};
use std::path::Path;

/// Size of the volume, bytes. A 128th of it is the journal's.
const VOLUME: u64 = 4 << 30;

struct One(Local, Tree);

struct Many(Volume, Tree);

pub(crate) fn open(directory: &Path, users: Users) -> Result<Box<dyn Engine>> {
    use embed::Session as _;
    let path = directory.join("volume");
    let options = Options { memory: MEMORY, ..Options::default() };
    if !path.exists() {
        Local::create(&path, VOLUME, &options)?.close()?;
    }
    Ok(match users {
        Users::One => {
            let local = Local::open(&path, &options)?;
            let tree = local.tree("bench")?;
            Box::new(One(local, tree))
        }
        Users::Many => {
            let volume = Volume::open_with(&path, &options)?;
            let tree = volume.tree("bench")?;
            Box::new(Many(volume, tree))
        }
    })
}

impl Engine for One {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(OneSession(&self.0, self.0.soon(), self.1)))
    }

    fn shared(&self) -> Option<&dyn Shared> {
        None
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(embed::Session::close(&self.0)?)
    }
}

struct OneSession<'a>(&'a Local, Local, Tree);

impl Session for OneSession<'_> {
    fn put(&self, entries: Vec<Entry>, durable: bool) -> Result<()> {
        Ok(self.2.put_all(if durable { self.0 } else { &self.1 }, entries)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(embed::Session::sync(self.0)?)
    }

    fn get(
        &self,
        keys: &mut dyn Iterator<Item = [u8; 24]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        for key in keys {
            let found = self.0.get_with(self.2, &key, |value| value.map(&mut *show))?;
            found.context("a key is missing")?;
        }
        Ok(())
    }

    fn scan(&self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut entries = self.2.iter(self.0);
        while let Some((key, value)) = entries.advance()? {
            show(key, value);
        }
        Ok(())
    }

    fn space(&self) -> Result<Option<u64>> {
        space(self.0).map(Some)
    }
}

impl Engine for Many {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Shared::session(self)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(embed::Session::close(&self.0)?)
    }
}

impl Shared for Many {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(ManySession(self.0.clone(), self.0.soon(), self.1)))
    }
}

struct ManySession(Volume, Volume, Tree);

impl Session for ManySession {
    fn put(&self, entries: Vec<Entry>, durable: bool) -> Result<()> {
        Ok(self.2.put_all(if durable { &self.0 } else { &self.1 }, entries)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(embed::Session::sync(&self.0)?)
    }

    fn get(
        &self,
        keys: &mut dyn Iterator<Item = [u8; 24]>,
        show: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        for key in keys {
            show(&self.2.get(&self.0, &key)?.context("a key is missing")?);
        }
        Ok(())
    }

    fn scan(&self, show: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut entries = self.2.iter(&self.0);
        while let Some((key, value)) = entries.advance()? {
            show(key, value);
        }
        Ok(())
    }
}

/// All blocks that are not free, the journal's and the maps' included.
fn space(session: &impl embed::Session) -> Result<u64> {
    let space = session.space()?;
    Ok(VOLUME - space.blocks_free * space.block as u64)
}
