//! Arguments, environment, clocks, random numbers; and unsupported calls.

use super::Call;
use super::intrinsics::SCANNED;
use crate::abi::{self, Errno};
use crate::budget::Reason;
use crate::host::Stop;
use crate::host_channel::{Times, Want};
use rand_chacha::rand_core::RngCore as _;

/// Resolution of a guest's clocks, ns: finer ones would be a side channel.
const RESOLUTION_NS: u64 = 1_000_000;

/// Maximum number of random bytes generated between two yields.
const RANDOM_MAX: u32 = 64 << 10;

/// Maximum number of subscriptions of a poll.
const POLL_MAX: u32 = 256;

/// Sizes of a `subscription` and an `event`, bytes.
const SUBSCRIPTION: u32 = 48;
const EVENT: u32 = 32;

// `eventtype`.
const CLOCK: u8 = 0;

impl Call<'_> {
    fn put_list(&mut self, texts: &[Vec<u8>], list: u32, bytes: u32) -> Result<(), Stop> {
        let mut at = bytes;
        for (index, text) in (0..).zip(texts) {
            self.put_u32(list.checked_add(4 * index).ok_or(Errno::Fault)?, at)?;
            self.put(at, text)?;
            let end = at.checked_add(text.len() as u32).ok_or(Errno::Fault)?;
            self.put(end, &[0])?;
            at = end.checked_add(1).ok_or(Errno::Fault)?;
        }
        Ok(())
    }

    fn put_sizes(&mut self, texts: &[Vec<u8>], count: u32, size: u32) -> Result<(), Stop> {
        self.put_u32(count, texts.len() as u32)?;
        self.put_u32(size, texts.iter().map(|text| text.len() as u32 + 1).sum())?;
        Ok(())
    }

    pub(super) fn args_get(&mut self, list: u32, bytes: u32) -> Result<(), Stop> {
        let args = self.host().args.clone();
        self.put_list(&args, list, bytes)
    }

    pub(super) fn args_sizes_get(&mut self, count: u32, size: u32) -> Result<(), Stop> {
        let args = self.host().args.clone();
        self.put_sizes(&args, count, size)
    }

    pub(super) fn environ_get(&mut self, list: u32, bytes: u32) -> Result<(), Stop> {
        let env = self.host().env.clone();
        self.put_list(&env, list, bytes)
    }

    pub(super) fn environ_sizes_get(&mut self, count: u32, size: u32) -> Result<(), Stop> {
        let env = self.host().env.clone();
        self.put_sizes(&env, count, size)
    }

    pub(super) fn clock_res_get(&mut self, clock: u32, out: u32) -> Result<(), Stop> {
        if clock > abi::CPU_TIME {
            return Err(Errno::Inval.into());
        }
        Ok(self.put_u64(out, RESOLUTION_NS)?)
    }

    pub(super) fn clock_time_get(&mut self, clock: u32, _: u64, out: u32) -> Result<(), Stop> {
        let state = self.host().channel.state();
        let (Times { wall, monotonic }, cpu) = (state.times, state.used.cpu_ns);
        drop(state);
        let now = match clock {
            abi::REALTIME => wall,
            abi::CPU_TIME => cpu,
            clock if clock < abi::CPU_TIME => monotonic,
            _ => return Err(Errno::Inval.into()),
        };
        // Go takes zero for a clock that does not run.
        let coarse = (now / RESOLUTION_NS).max(1) * RESOLUTION_NS;
        Ok(self.put_u64(out, coarse)?)
    }

    pub(super) async fn random_get(&mut self, at: u32, len: u32) -> Result<(), Stop> {
        self.bytes(at, len)?;
        self.burn(&SCANNED, len).map_err(|_| Stop::Ended(Reason::Fuel))?;
        let mut bytes = vec![0; len.min(RANDOM_MAX) as usize];
        let mut done = 0;
        while done < len {
            let now = (len - done).min(RANDOM_MAX);
            self.host().random.fill_bytes(&mut bytes[..now as usize]);
            self.put(at + done, &bytes[..now as usize])?;
            done += now;
            if now == RANDOM_MAX {
                self.client().want(Want::Sleep(0)).await?;
            }
        }
        Ok(())
    }

    /// Waits until the earliest of the times; files and streams are always ready.
    pub(super) async fn poll_oneoff(
        &mut self,
        subscriptions: u32,
        events: u32,
        count: u32,
        out: u32,
    ) -> Result<(), Stop> {
        if count == 0 || count > POLL_MAX {
            return Err(Errno::Inval.into());
        }
        let times = self.host().channel.state().times;
        let mut waits = Vec::new();
        for index in 0..count {
            let at = subscriptions.checked_add(SUBSCRIPTION * index).ok_or(Errno::Fault)?;
            self.bytes(at, SUBSCRIPTION)?;
            let user = self.get_u64(at)?;
            let kind = self.bytes(at, 9)?[8];
            let wait = if kind == CLOCK {
                let (clock, time) = (self.get_u32(at + 16)?, self.get_u64(at + 24)?);
                let absolute = self.bytes(at, SUBSCRIPTION)?[40] & 1 != 0;
                let now = if clock == abi::REALTIME { times.wall } else { times.monotonic };
                if absolute { time.saturating_sub(now) } else { time }
            } else {
                0
            };
            waits.push((user, kind, wait));
        }
        let first = waits.iter().map(|(_, _, wait)| *wait).min().unwrap_or(0);
        if first > 0 {
            self.client().want(Want::Sleep(first)).await?;
            self.host().hear();
        }
        let mut reported = 0;
        for (user, kind, _) in waits.iter().filter(|(_, _, wait)| *wait <= first) {
            let mut event = [0; EVENT as usize];
            event[..8].copy_from_slice(&user.to_le_bytes());
            event[10] = *kind;
            if *kind != CLOCK {
                // The number of available bytes is unknown: at least one.
                event[16] = 1;
            }
            self.put(events.checked_add(EVENT * reported).ok_or(Errno::Fault)?, &event)?;
            reported += 1;
        }
        Ok(self.put_u32(out, reported)?)
    }

    pub(super) async fn sched_yield(&mut self) -> Result<(), Stop> {
        self.client().want(Want::Sleep(0)).await.map(drop)
    }

    pub(super) fn proc_raise(&mut self, _: u32) -> Result<(), Stop> {
        Err(Errno::Nosys.into())
    }

    pub(super) fn sock_accept(&mut self, _: u32, _: u32, _: u32) -> Result<(), Stop> {
        Err(Errno::Nosys.into())
    }

    pub(super) fn sock_recv(
        &mut self,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
    ) -> Result<(), Stop> {
        Err(Errno::Nosys.into())
    }

    pub(super) fn sock_send(&mut self, _: u32, _: u32, _: u32, _: u32, _: u32) -> Result<(), Stop> {
        Err(Errno::Nosys.into())
    }

    pub(super) fn sock_shutdown(&mut self, _: u32, _: u32) -> Result<(), Stop> {
        Err(Errno::Nosys.into())
    }
}
