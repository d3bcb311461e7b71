//! File requests on behalf of a guest, charged to its budget.

use crate::budget::Budget;
use crate::host::{Host, Stop};
use crate::host_channel::{Given, Got, HostChannel, Stream, Want};
use base::op::{Detail, Entry, Listing};
use base::{Access, Buf, Kind, Name, Stat};
use tree::{Ask, NodeId, OpenId, Reply};

/// Device number of these files, which no host uses.
pub const DEVICE: u64 = u64::MAX - 2;

/// Sends requests on behalf of a guest.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) channel: HostChannel,
    budget: Budget,
}

impl Client {
    pub(crate) fn of(host: &Host) -> Client {
        Client { channel: host.channel.clone(), budget: host.budget }
    }

    /// Fails if the guest is over its budget.
    fn must_go_on(&self) -> Result<(), Stop> {
        let over = self.budget.exceeded(&self.channel.state().used);
        over.map_or(Ok(()), |reason| Err(Stop::Ended(reason)))
    }

    /// Waits for this event.
    pub(crate) async fn want(&self, want: Want) -> Result<Got, Stop> {
        self.must_go_on()?;
        Ok(self.channel.want(want).await)
    }

    /// Writes output; waits only if there is no room for it.
    pub(crate) async fn write_stream(&self, stream: Stream, bytes: Vec<u8>) -> Result<(), Stop> {
        self.must_go_on()?;
        let roomy = {
            let state = &mut *self.channel.state();
            state.used.output += bytes.len() as u64;
            state.room >= bytes.len()
        };
        if !roomy {
            return self.want(Want::Output(stream, bytes)).await.map(drop);
        }
        self.must_go_on()?;
        let state = &mut *self.channel.state();
        state.room -= bytes.len();
        match state.output.last_mut() {
            Some((last, printed)) if *last == stream => printed.extend_from_slice(&bytes),
            Some(_) | None => state.output.push((stream, bytes)),
        }
        Ok(())
    }

    /// Sends a request to the file system and waits for the reply.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Reply, Stop> {
        {
            let used = &mut self.channel.state().used;
            used.operations += 1;
            used.walks += u64::from(matches!(ask, Ask::Walk { .. }));
        }
        match self.want(Want::File(ask)).await? {
            Got::File(reply) => Ok(reply?),
            Got::Input(_) | Got::Done => unreachable!("a file request is answered by a reply"),
        }
    }

    /// Starts a prefetch; its reply is taken up when it has arrived. Ends the slice, so that the
    /// request is sent immediately and not at the regular end of the slice.
    pub(crate) async fn foresee(&self, ask: Ask) -> Result<(), Stop> {
        {
            let state = &mut *self.channel.state();
            state.used.operations += 1;
            state.foreseen = Some(ask);
        }
        self.want(Want::Sleep(0)).await.map(drop)
    }

    pub(crate) async fn walk(
        &self,
        from: NodeId,
        names: &[Name],
    ) -> Result<(Option<Held>, Vec<Stat>), Stop> {
        let ask = Ask::Walk { from, names: names.to_vec() };
        let Reply::Walked(stats, node) = self.ask(ask).await? else { strange() };
        let held = node.map(|node| Held { channel: self.channel.clone(), node: Some(node) });
        Ok((held, stats))
    }

    /// Looks up a plain file beneath a directory and reads its first bytes; returns the open file
    /// if there is more. `None`: the path has to be resolved step by step.
    pub(crate) async fn fetch(
        &self,
        from: NodeId,
        path: &[u8],
        read_max: u32,
    ) -> Result<Option<(Stat, Buf, Option<OpenId>)>, Stop> {
        let names = path.split(|byte| *byte == b'/').map(Name::new);
        let Ok(path) = names.collect::<Result<Vec<Name>, _>>() else { return Ok(None) };
        let ask = Ask::Fetch { root: Some(from), path, read_max, headroom: 0 };
        match self.ask(ask).await {
            Ok(Reply::Fetched(stat, data, open)) => {
                if stat.kind == Kind::File && stat.device != DEVICE {
                    self.channel.state().used.read += data.len() as u64;
                    return Ok(Some((stat, data, open)));
                }
                self.channel.state().given.extend(open.map(Given::Open));
                Ok(None)
            }
            Ok(_) => strange(),
            Err(Stop::Errno(_)) => Ok(None),
            Err(ended) => Err(ended),
        }
    }

    /// Lists directories and their descendants. `None`: not supported by their tree.
    pub(crate) async fn list_all(
        &self,
        from: NodeId,
        paths: Vec<Vec<u8>>,
        bytes_max: u32,
    ) -> Result<Option<Vec<Listing>>, Stop> {
        match self.ask(Ask::ListAll { from, paths, bytes_max }).await {
            Ok(Reply::Listings(listings, _)) => Ok(Some(listings)),
            Ok(_) => strange(),
            Err(Stop::Errno(_)) => Ok(None),
            Err(ended) => Err(ended),
        }
    }

    pub(crate) async fn stat(&self, node: NodeId) -> Result<Stat, Stop> {
        let Reply::Stat(stat) = self.ask(Ask::Stat { node }).await? else { strange() };
        Ok(stat)
    }

    pub(crate) async fn read_link(&self, node: NodeId) -> Result<Vec<u8>, Stop> {
        let Reply::Bytes(target) = self.ask(Ask::ReadLink { node }).await? else { strange() };
        Ok(target)
    }

    pub(crate) async fn open(&self, node: NodeId, access: Access) -> Result<OpenId, Stop> {
        let Reply::Opened(open, _) = self.ask(Ask::Open { node, access }).await? else { strange() };
        Ok(open)
    }

    pub(crate) async fn create(
        &self,
        dir: NodeId,
        name: Name,
        access: Access,
        exclusive: bool,
    ) -> Result<(NodeId, OpenId), Stop> {
        let ask = Ask::Create { dir, name, access, exclusive, mode: 0o666, gid: None };
        let Reply::Created(node, open, _) = self.ask(ask).await? else { strange() };
        Ok((node, open))
    }

    /// Reads once: returns the available data in pieces, none at the end of the file.
    pub(crate) async fn read(
        &self,
        open: OpenId,
        offset: u64,
        count: u32,
    ) -> Result<Vec<Buf>, Stop> {
        let reply = self.ask(Ask::Read { open, offset, count, headroom: 0 }).await?;
        let pieces = if let Reply::Data(data) = reply {
            vec![data]
        } else {
            let Reply::Pieces(pieces) = reply else { strange() };
            pieces
        };
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.channel.state().used.read += bytes as u64;
        Ok(pieces)
    }

    /// Writes once; returns the number of bytes written.
    pub(crate) async fn write(&self, open: OpenId, offset: u64, data: Buf) -> Result<u32, Stop> {
        let ask = Ask::Write { open, offset, data };
        let Reply::Written(count) = self.ask(ask).await? else { strange() };
        self.channel.state().used.written += u64::from(count);
        Ok(count)
    }

    /// Returns about `bytes_max` bytes of entries after a cookie; none at the end.
    pub(crate) async fn list(
        &self,
        open: OpenId,
        cookie: u64,
        bytes_max: u32,
    ) -> Result<Vec<Entry>, Stop> {
        let ask = Ask::List { open, cookie, bytes_max, detail: Detail::Name };
        let Reply::Entries(entries) = self.ask(ask).await? else { strange() };
        Ok(entries)
    }
}

/// Panics on a reply of the wrong kind, which is a programming error.
fn strange() -> ! {
    unreachable!("an answer to another question")
}

/// A reference to a node that is released on drop.
#[derive(Debug)]
pub(crate) struct Held {
    channel: HostChannel,
    node: Option<NodeId>,
}

impl Held {
    pub(crate) fn node(&self) -> NodeId {
        self.node.expect("it is there until it is kept")
    }

    /// Returns the node, which the caller releases from now on.
    pub(crate) fn keep(mut self) -> NodeId {
        self.node.take().expect("it is there until it is kept")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.channel.state().given.extend(self.node.map(Given::Node));
    }
}
