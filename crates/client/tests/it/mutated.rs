//! A server whose replies are randomly corrupted from a seed: every call returns, with a value or
//! an error.

use crate::server::{connect_within, honest, serve};
use base::rng::{Rng, seeded};
use std::time::{Duration, Instant};

const SEEDS: u64 = 400;

/// Changes some bytes, truncates, or appends.
fn mutate(rng: &mut Rng, reply: &mut Vec<u8>) {
    match rng.u32(0..12) {
        0 => reply.truncate(rng.usize(0..=reply.len())),
        1 => reply.extend_from_slice(&[rng.u8(..), 0, 0, 0, rng.u8(..)]),
        2..6 => {
            for _ in 0..rng.u32(1..4) {
                // Mostly near the start, in the fields.
                let at = rng.usize(0..reply.len().clamp(1, 64));
                if let Some(byte) = reply.get_mut(at) {
                    *byte = rng.u8(..);
                }
            }
        }
        _as_it_is => {}
    }
}

#[test]
fn whatever_a_server_says_every_call_ends() {
    for seed in 0..SEEDS {
        let started = Instant::now();
        let address = serve(move || {
            let (mut truth, mut rng) = (honest(), seeded(seed));
            Box::new(move |tag, message| {
                let mut reply = truth(tag, message);
                mutate(&mut rng, &mut reply);
                reply
            })
        });
        // The outcome does not matter.
        if let Ok(client) = connect_within(&address, Duration::from_millis(30)) {
            let _ = client.read_file("file");
            let _ = client.metadata("/file/../file");
            let _ = client.read_dir("/").map(|entries| entries.take(1000).count());
            let _ = client.write_file("file", &[1; 100_000]);
            let _ = client.remove_all("/");
        }
        assert!(started.elapsed() < Duration::from_secs(10), "seed {seed}");
    }
}
