//! The 46 functions of WASI preview 1, on top of file requests.
//!
//! Each is a method of [`Call`] that returns an errno or ends the guest. Blocking ones are `async`;
//! a waiting guest occupies no thread. Sockets, signals and other processes are unsupported.

mod directories;
mod files;
mod intrinsics;
mod path;
mod process;
mod streams;
mod way;

pub use directories::handed_out;
pub(crate) use streams::open_input;

use crate::abi::Errno;
use crate::client::Client;
use crate::host::{Exit, Host, Stop};
use std::mem;
use wasmtime::{AsContextMut as _, Caller, Extern, Linker};

/// Name of the import module.
const MODULE: &str = "wasi_snapshot_preview1";

/// Maximum number of pieces and bytes of one read or write.
const PIECES_MAX: u32 = 1024;
const BYTES_MAX: u32 = 256 << 10;

/// A host call of a guest.
pub(crate) struct Call<'a>(Caller<'a, Host>);

/// A range of guest memory.
#[derive(Clone, Copy, Debug)]
struct Piece {
    at: u32,
    len: u32,
}

impl Call<'_> {
    fn host(&mut self) -> &mut Host {
        self.0.data_mut()
    }

    fn client(&mut self) -> Client {
        Client::of(self.0.data())
    }

    /// Grants a guest that had to wait a whole slice.
    fn renew_slice(&mut self) {
        let host = self.0.data();
        if host.pace.is_by_time() && mem::take(&mut host.channel.state().has_waited) {
            self.0.as_context_mut().set_epoch_deadline(1);
        }
    }

    /// Returns the guest's memory.
    fn memory(&mut self) -> Result<&mut [u8], Errno> {
        let memory = match self.0.data().memory {
            Some(memory) => memory,
            // Calls during instantiation.
            None => {
                self.0.get_export("memory").and_then(Extern::into_memory).ok_or(Errno::Fault)?
            }
        };
        Ok(memory.data_mut(&mut self.0))
    }

    /// Returns a range of the guest's memory.
    fn bytes(&mut self, at: u32, len: u32) -> Result<&mut [u8], Errno> {
        let end = (at as usize).checked_add(len as usize).ok_or(Errno::Fault)?;
        self.memory()?.get_mut(at as usize..end).ok_or(Errno::Fault)
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.bytes(at, bytes.len() as u32)?.copy_from_slice(bytes);
        Ok(())
    }

    fn put_u32(&mut self, at: u32, value: u32) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    fn put_u64(&mut self, at: u32, value: u64) -> Result<(), Errno> {
        self.put(at, &value.to_le_bytes())
    }

    fn get_u32(&mut self, at: u32) -> Result<u32, Errno> {
        let bytes = self.bytes(at, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("it has four")))
    }

    fn get_u64(&mut self, at: u32) -> Result<u64, Errno> {
        let bytes = self.bytes(at, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("it has eight")))
    }

    fn path(&mut self, at: u32, len: u32) -> Result<Vec<u8>, Errno> {
        if len > path::PATH_MAX {
            return Err(Errno::Nametoolong);
        }
        self.bytes(at, len).map(|bytes| bytes.to_vec())
    }

    /// Returns the pieces of a read or write, up to the maximum size.
    fn pieces(&mut self, at: u32, count: u32) -> Result<Vec<Piece>, Errno> {
        if count > PIECES_MAX {
            return Err(Errno::Inval);
        }
        let (mut pieces, mut room) = (Vec::new(), BYTES_MAX);
        for index in 0..count {
            let place = at.checked_add(8 * index).ok_or(Errno::Fault)?;
            // One read of eight bytes: an address behind the last one is not computed.
            let piece = self.get_u64(place)?;
            let (at, len) = (piece as u32, (piece >> 32) as u32);
            let len = len.min(room);
            self.bytes(at, len)?;
            if len > 0 {
                pieces.push(Piece { at, len });
            }
            room -= len;
        }
        Ok(pieces)
    }

    /// Copies at most `most` bytes into consecutive pieces. Returns their number.
    fn scatter_all<'a>(
        &mut self,
        pieces: &[Piece],
        most: u32,
        all: impl Iterator<Item = &'a [u8]>,
    ) -> Result<u32, Errno> {
        let (mut places, mut moved) = (pieces.iter().copied(), 0);
        let Some(mut place) = places.next() else { return Ok(0) };
        for mut bytes in all {
            while !bytes.is_empty() && moved < most {
                let room = place.len.min(most - moved);
                let count = bytes.len().min(room as usize);
                self.put(place.at, &bytes[..count])?;
                bytes = &bytes[count..];
                let count = count as u32;
                moved += count;
                place = Piece { at: place.at + count, len: place.len - count };
                if place.len == 0 {
                    let Some(next) = places.next() else { return Ok(moved) };
                    place = next;
                }
            }
        }
        Ok(moved)
    }

    fn gather(&mut self, pieces: &[Piece]) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::with_capacity(len_of(pieces) as usize);
        for piece in pieces {
            bytes.extend_from_slice(self.bytes(piece.at, piece.len)?);
        }
        Ok(bytes)
    }

    /// Fails unless the guest may change files. Invalidates cached data.
    fn must_write(&mut self) -> Result<(), Errno> {
        let host = self.host();
        if !host.writes {
            return Err(Errno::Rofs);
        }
        host.changes += 1;
        Ok(())
    }
}

fn len_of(pieces: &[Piece]) -> u32 {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Returns the pieces without their first bytes.
fn behind(pieces: &[Piece], mut count: u32) -> Vec<Piece> {
    let mut rest = Vec::with_capacity(pieces.len());
    for Piece { at, len } in pieces.iter().copied() {
        let done = len.min(count);
        count -= done;
        rest.push(Piece { at: at + done, len: len - done });
    }
    rest
}

/// Converts the result of a call for the guest.
fn ended(result: Result<(), Stop>) -> wasmtime::Result<i32> {
    match result {
        Ok(()) => Ok(0),
        Err(Stop::Errno(errno)) => Ok(i32::from(errno as u16)),
        Err(Stop::Ended(reason)) => Err(Exit::Ended(reason).into()),
    }
}

macro_rules! link {
    ($linker:ident, $($name:ident($($arg:ident: $type:ty),*)),* $(,)?) => {$(
        $linker.func_wrap_async(
            MODULE,
            stringify!($name),
            |caller: Caller<'_, Host>, ($($arg,)*): ($($type,)*)| {
                caller.data().channel.state().used.calls += 1;
                Box::new(async move {
                    let mut call = Call(caller);
                    let result = call.$name($($arg),*).await;
                    call.renew_slice();
                    ended(result)
                })
            },
        )?;
    )*};
}

macro_rules! link_at_once {
    ($linker:ident, $($name:ident($($arg:ident: $type:ty),*)),* $(,)?) => {$(
        $linker.func_wrap(
            MODULE,
            stringify!($name),
            |caller: Caller<'_, Host>, $($arg: $type),*| {
                caller.data().channel.state().used.calls += 1;
                ended(Call(caller).$name($($arg),*))
            },
        )?;
    )*};
}

/// Registers all functions with the linker.
pub(crate) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    link_at_once!(
        linker,
        args_get(list: u32, bytes: u32),
        args_sizes_get(count: u32, size: u32),
        environ_get(list: u32, bytes: u32),
        environ_sizes_get(count: u32, size: u32),
        clock_res_get(clock: u32, out: u32),
        clock_time_get(clock: u32, precision: u64, out: u32),
        fd_advise(fd: u32, offset: u64, len: u64, advice: u32),
        fd_fdstat_get(fd: u32, out: u32),
        fd_fdstat_set_flags(fd: u32, flags: u32),
        fd_fdstat_set_rights(fd: u32, base: u64, inheriting: u64),
        fd_prestat_get(fd: u32, out: u32),
        fd_prestat_dir_name(fd: u32, at: u32, len: u32),
        fd_tell(fd: u32, out: u32),
        proc_raise(signal: u32),
        sock_accept(fd: u32, flags: u32, out: u32),
        sock_recv(fd: u32, list: u32, count: u32, flags: u32, len: u32, out: u32),
        sock_send(fd: u32, list: u32, count: u32, flags: u32, out: u32),
        sock_shutdown(fd: u32, how: u32),
    );
    linker.func_wrap(MODULE, "proc_exit", |code: u32| -> wasmtime::Result<()> {
        Err(Exit::Own(code).into())
    })?;
    link!(
        linker,
        fd_allocate(fd: u32, offset: u64, len: u64),
        fd_close(fd: u32),
        fd_datasync(fd: u32),
        fd_filestat_get(fd: u32, out: u32),
        fd_filestat_set_size(fd: u32, size: u64),
        fd_filestat_set_times(fd: u32, atim: u64, mtim: u64, flags: u32),
        fd_pread(fd: u32, list: u32, count: u32, offset: u64, out: u32),
        fd_pwrite(fd: u32, list: u32, count: u32, offset: u64, out: u32),
        fd_read(fd: u32, list: u32, count: u32, out: u32),
        fd_readdir(fd: u32, at: u32, len: u32, cookie: u64, out: u32),
        fd_renumber(from: u32, to: u32),
        fd_seek(fd: u32, offset: i64, whence: u32, out: u32),
        fd_sync(fd: u32),
        fd_write(fd: u32, list: u32, count: u32, out: u32),
        path_create_directory(fd: u32, at: u32, len: u32),
        path_filestat_get(fd: u32, flags: u32, at: u32, len: u32, out: u32),
        path_filestat_set_times(
            fd: u32, flags: u32, at: u32, len: u32, atim: u64, mtim: u64, which: u32
        ),
        path_link(
            old_fd: u32, flags: u32, old_at: u32, old_len: u32, new_fd: u32, new_at: u32,
            new_len: u32
        ),
        path_open(
            fd: u32, flags: u32, at: u32, len: u32, oflags: u32, rights: u64, inheriting: u64,
            fdflags: u32, out: u32
        ),
        path_readlink(fd: u32, at: u32, len: u32, buf: u32, buf_len: u32, out: u32),
        path_remove_directory(fd: u32, at: u32, len: u32),
        path_rename(
            old_fd: u32, old_at: u32, old_len: u32, new_fd: u32, new_at: u32, new_len: u32
        ),
        path_symlink(target: u32, target_len: u32, fd: u32, at: u32, len: u32),
        path_unlink_file(fd: u32, at: u32, len: u32),
        poll_oneoff(subscriptions: u32, events: u32, count: u32, out: u32),
        random_get(at: u32, len: u32),
        sched_yield(),
    );
    intrinsics::link(linker)
}
