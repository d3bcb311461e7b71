//! Times, counts, rates and sizes in MiB on the command line; other sizes are in [`crate::size`].

pub(crate) use base::units::{count, time};

use base::size;
use base::units::number as decimal;
use std::time::Duration;

/// Parses a nonzero time.
///
/// # Errors
/// A message with the format of a time.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    let long = time(text)?;
    if long.is_zero() { Err("write a time longer than zero".to_string()) } else { Ok(long) }
}

/// Parses a number of whole seconds: seconds, or a time with a unit.
///
/// # Errors
/// A message with the format.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let long = time(text).ok().filter(|long| long.subsec_nanos() == 0);
    long.map(|long| long.as_secs())
        .ok_or_else(|| "write a time of whole seconds, like 90, 90s, 10m or 1h".to_string())
}

/// Parses a number of MiB: MiB, or a size with a unit, rounded down.
///
/// # Errors
/// A message with the format.
pub(crate) fn mebibytes<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let bare = text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let number = bare.or_else(|| Some(size::parse(text).ok()? >> 20));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| "write a size in MiB, or one with a unit, like 512, 512M or 2G".to_string())
}

/// Parses a number of bytes: bytes, or a size with a unit.
///
/// # Errors
/// A message with the format.
pub(crate) fn bytes<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let bytes = size::parse(text).ok().and_then(|bytes| T::try_from(bytes).ok());
    bytes.ok_or_else(|| "write a size in bytes, or one with a unit, like 65536 or 64K".to_string())
}

/// Parses a number of whole microseconds: microseconds, or a time with a unit.
///
/// # Errors
/// A message with the format.
pub(crate) fn microseconds(text: &str) -> Result<u64, String> {
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    let long = || time(text).ok().filter(|long| has_unit && long.subsec_nanos() % 1000 == 0);
    let micros = text.parse().ok().or_else(|| u64::try_from(long()?.as_micros()).ok());
    micros.ok_or_else(|| "write a time of whole microseconds, like 200, 200us or 1ms".to_string())
}

/// Parses the number of a user, which is not the one that means nobody.
///
/// # Errors
/// A message with the format.
pub(crate) fn uid(text: &str) -> Result<u32, String> {
    let uid = text.parse().ok().filter(|uid| *uid != u32::MAX);
    uid.ok_or_else(|| "write the number of a user, like 1000; names are for --user".to_string())
}

/// Parses a count that fits the type.
///
/// # Errors
/// A message with the format.
pub(crate) fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let wrong = || "write a number like 250, 1k or 2M".to_string();
    count(text).ok().and_then(|number| T::try_from(number).ok()).ok_or_else(wrong)
}

/// Parses the seed of random numbers.
///
/// # Errors
/// A message with the format.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a whole number without a unit, like 42".to_string())
}

/// Returns a parser of counts from `first` to `last`.
pub(crate) fn counts<T: TryFrom<u64>>(
    first: u64,
    last: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let wrong = || format!("write a number from {first} to {last}, like 250, 1k or 2M");
        let number = Some(count(text)?).filter(|number| (first..=last).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(wrong)
    }
}

/// Parses a rate per second: `0.5`, `10k`.
///
/// # Errors
/// A message with the format of a rate.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().or_else(|| decimal(text));
    rate.filter(|rate| (0.001..=1e9).contains(rate))
        .ok_or_else(|| "write a number of I/Os a second, like 500, 10k or 2M".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_values_are_refused() {
        assert!(some_time("0").is_err() && some_time("1ms").is_ok());
        let few = counts::<u32>(1, 10_000);
        assert_eq!((few("1k"), few("10k")), (Ok(1000), Ok(10_000)));
        assert!(few("0").is_err() && few("1M").unwrap_err().contains("from 1 to 10000"));
        assert_eq!((rate("0.5"), rate("10k")), (Ok(0.5), Ok(10_000.0)));
        assert!(rate("0").is_err() && rate("10x").is_err() && rate("NaN").is_err());
        assert_eq!((seconds("90"), seconds("1h")), (Ok(90), Ok(3600)));
        assert!(seconds("1.5").unwrap_err().contains("90s") && seconds("x").is_err());
        assert_eq!(
            (mebibytes("512"), mebibytes("2G"), mebibytes("1k")),
            (Ok(512), Ok(2048_u64), Ok(0))
        );
        assert_eq!((bytes("64K"), bytes("4096")), (Ok(65536_u32), Ok(4096_u32)));
        assert!(bytes::<u32>("4G").unwrap_err().contains("64K"));
        assert_eq!((microseconds("1ms"), microseconds("200")), (Ok(1000), Ok(200)));
        for text in ["", "1.5", "1.5us", "-1"] {
            assert!(microseconds(text).unwrap_err().contains("200us"), "{text}");
        }
        assert_eq!((number("1k"), number::<u8>("256").is_err()), (Ok(1000_u32), true));
        assert_eq!(uid("1000"), Ok(1000));
        for text in ["alice", "", "-1", "4294967295"] {
            assert!(uid(text).unwrap_err().contains("--user"), "{text}");
        }
        assert!(seed("7").is_ok() && seed("1k").unwrap_err().contains("without a unit"));
        let wrong = mebibytes::<u64>;
        assert!(
            wrong("").unwrap_err().contains("2G") && wrong("-1").is_err() && wrong("2X").is_err()
        );
    }
}
