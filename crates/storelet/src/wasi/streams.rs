//! Standard input, output and error.

use super::{Call, Piece, len_of};
use crate::door::{Got, Stream, Want};
use crate::host::Stop;

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
        client.door.state().used.input += count as u64;
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
            client.say(stream, bytes).await?;
        }
        Ok(count)
    }
}
