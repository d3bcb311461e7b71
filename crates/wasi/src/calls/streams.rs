//! Standard input, output and error.

use super::path::find;
use super::way::OpenParameters;
use super::{Call, Piece, len_of};
use crate::abi::{self, Errno};
use crate::client::Client;
use crate::host::{Host, Stop};
use crate::host_channel::{Got, Stream, Want};
use base::{Access, Kind};
use tree::NodeId;

/// Opens a file as the guest's standard input before it starts. A `straight` path must have no
/// links: replacing a file that was found by a link does not redirect a run to a file that its
/// author cannot read.
pub(crate) async fn open_input(
    host: &mut Host,
    base: NodeId,
    path: &[u8],
    straight: bool,
) -> Result<(), Stop> {
    let client = Client::of(host);
    let found = find(&client, base, path, !straight).await?;
    if straight && !found.straight {
        return Err(Errno::Loop.into());
    }
    match found.stat.kind {
        Kind::File => {}
        Kind::Directory => return Err(Errno::Isdir.into()),
        // Those may block forever, or behave unlike files.
        Kind::Symlink | Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {
            return Err(Errno::Notsup.into());
        }
    }
    let open = client.open(found.held.node(), Access::READ).await?;
    let way = OpenParameters::new(abi::SYMLINK_FOLLOW, 0, abi::RIGHT_READ, 0)?;
    host.files.set_input(way.opened(found.held.keep(), open));
    Ok(())
}

impl Call<'_> {
    pub(super) async fn read_input(&mut self, pieces: &[Piece]) -> Result<u32, Stop> {
        let client = self.client();
        let count = len_of(pieces);
        if count == 0 {
            return Ok(0);
        }
        let bytes = match client.want(Want::Input(count)).await? {
            Got::Input(bytes) => bytes,
            Got::File(_) | Got::Done => unreachable!("input was wanted"),
        };
        let count = bytes.len().min(count as usize);
        client.channel.state().used.input += count as u64;
        self.host().hear();
        Ok(self.scatter_all(pieces, count as u32, [&bytes[..count]].into_iter())?)
    }

    pub(super) async fn write_output(
        &mut self,
        stream: Stream,
        pieces: &[Piece],
    ) -> Result<u32, Stop> {
        let client = self.client();
        let bytes = self.gather(pieces)?;
        let count = bytes.len() as u32;
        if count > 0 {
            client.write_stream(stream, bytes).await?;
        }
        Ok(count)
    }
}
