//! Textual forms of sizes and times.

use base::units;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;
use std::time::Duration;

/// Maximum I/O size, in bytes.
pub(super) const IO_MAX: u64 = 1 << 30;

/// Maximum time in s: about thirty years, so that it fits a number of ns.
const TIME_MAX: f64 = 1e9;

const SIZE_UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("K", 1 << 10),
    ("MiB", 1 << 20),
    ("M", 1 << 20),
    ("GiB", 1 << 30),
    ("G", 1 << 30),
    ("TiB", 1 << 40),
    ("T", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const TIME_UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
];

/// Splits a number from its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim_start()))
}

/// Parses a size such as `4KiB`, `1.5 MiB`, `100MB` or `4096`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size: write 4096, \"4KiB\", \"1.5MiB\" or \"1GB\"");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let known = SIZE_UNITS.iter().find(|(name, _)| *name == unit);
    let bytes = number * known.ok_or_else(wrong)?.1 as f64;
    let whole = bytes.fract() == 0.0 && bytes < 2.0_f64.powi(62);
    if whole { Ok(bytes as u64) } else { Err(wrong()) }
}

/// Parses a time such as `2.5ms`, `10 s` or `3`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time: write 10, \"10s\", \"2.5ms\" or \"100us\"");
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let known = TIME_UNITS.iter().find(|(name, _)| *name == unit);
    seconds(number * known.ok_or_else(wrong)?.1)
}

/// Converts seconds to a duration.
pub(super) fn seconds(seconds: f64) -> Result<Duration, String> {
    if !(0.0..=TIME_MAX).contains(&seconds) {
        return Err(format!("a time is between 0 and {TIME_MAX} seconds"));
    }
    // Rounded to whole ns: 0.1 s is not 99,999,999 ns.
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Checks an I/O size.
pub(super) fn io_size(bytes: u64) -> Result<u32, String> {
    if (1..=IO_MAX).contains(&bytes) {
        return Ok(bytes as u32);
    }
    Err(format!("an I/O has between 1 byte and {IO_MAX} bytes"))
}

/// Size in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bytes(pub(super) u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size like 4096 or \"4KiB\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Bytes, E> {
                let number = u64::try_from(number);
                number.map(Bytes).map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                bytes(text).map(Bytes).map_err(E::custom)
            }
        }
        from.deserialize_any(Reads)
    }
}

/// Duration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like 10 (seconds) or \"2.5ms\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Time, E> {
                self.visit_f64(number as f64)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Time, E> {
                seconds(number).map(Time).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                time(text).map(Time).map_err(E::custom)
            }
        }
        from.deserialize_any(Reads)
    }
}

/// I/Os, transactions or sessions per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate(pub(super) f64);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate per second like 500, \"10k\" or \"2M\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Rate, E> {
                Ok(Rate(number as f64))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Rate, E> {
                Ok(Rate(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
                let wrong = || format!("`{text}` is not a rate: write 500, \"10k\" or \"2M\"");
                units::number(text).map(Rate).ok_or_else(|| E::custom(wrong()))
            }
        }
        from.deserialize_any(Reads)
    }
}

/// Number of I/Os, transactions or sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count(pub(super) u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Count, D::Error> {
        struct Reads;
        impl Visitor<'_> for Reads {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number like 250, \"1k\" or \"2M\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Count, E> {
                let number = u64::try_from(number);
                number.map(Count).map_err(|_| E::custom("a number is not negative"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Count, E> {
                units::count(text).map(Count).map_err(E::custom)
            }
        }
        from.deserialize_any(Reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("4KiB", Some(4096)),
            ("4 KiB", Some(4096)),
            ("4K", Some(4096)),
            ("1.5MiB", Some(1_572_864)),
            ("2TB", Some(2_000_000_000_000)),
            ("1.3KiB", None),
            ("4kib", None),
            ("-4KiB", None),
            ("KiB", None),
            ("", None),
            ("1e9", None),
            ("99999999999999999999TiB", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("2.5ms", Some(2_500_000)),
            ("0.1 s", Some(100_000_000)),
            ("10us", Some(10_000)),
            ("10µs", Some(10_000)),
            ("2min", Some(120_000_000_000)),
            ("1h", Some(3_600_000_000_000)),
            ("5", Some(5_000_000_000)),
            ("5 parsecs", None),
            ("-1s", None),
            ("1e300", None),
            ("999999999999h", None),
        ] {
            let found = time(text).ok().map(|time| time.as_nanos());
            assert_eq!(found, expected, "{text}");
        }
    }
}
