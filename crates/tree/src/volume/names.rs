//! Cookies: positions of names in their directory.
//!
//! A cookie is the upper bits of a hash of the name, seeded for each volume, with a few low bits to
//! distinguish names with the same hash. So an entry is found by its name and by its cookie with
//! one record, directories are listed in the order of cookies, and a cookie is stable whatever
//! other entries are added and removed. Cookies are nonzero and below 2⁶³, a valid directory offset
//! for the protocols' clients. Extended attributes have cookies, too.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Maximum number of names with the same hash in a directory. Without the seed such collisions are
/// infeasible to find.
pub(super) const ALIKE_MAX: u64 = 256;

/// Returns the first of the [`ALIKE_MAX`] cookies possible for a name.
pub(super) fn first_cookie(seed: u64, name: &[u8]) -> u64 {
    let hash = xxh3_64_with_seed(name, seed);
    (hash & i64::MAX.cast_unsigned() & !(ALIKE_MAX - 1)).max(ALIKE_MAX)
}

/// Returns the device number of a volume, or of a snapshot of it.
pub(super) fn device(volume: u64, snapshot: Option<u64>) -> u64 {
    match snapshot {
        None => xxh3_64_with_seed(b"device", volume),
        Some(id) => xxh3_64_with_seed(&id.to_le_bytes(), volume),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_nonzero_and_below_the_sign_bit_and_stay_the_same() {
        for n in 0..10_000u32 {
            let first = first_cookie(7, &n.to_le_bytes());
            assert!(first >= ALIKE_MAX && first.is_multiple_of(ALIKE_MAX));
            assert!(i64::try_from(first + ALIKE_MAX - 1).is_ok());
        }
        // Part of the format.
        assert_eq!(first_cookie(7, b"name"), 7_945_988_303_769_054_720);
        assert_ne!(first_cookie(8, b"name"), first_cookie(7, b"name"));
        assert_ne!(device(7, None), device(7, Some(1)));
    }
}
