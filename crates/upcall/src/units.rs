//! Times, counts, rates and sizes in MiB on the command line; other sizes are in [`crate::size`].

pub(crate) use base::units::{count, time};

use base::size;
use base::units::number;
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
    let rate = text.parse().ok().or_else(|| number(text));
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
        let wrong = mebibytes::<u64>;
        assert!(
            wrong("").unwrap_err().contains("2G") && wrong("-1").is_err() && wrong("2X").is_err()
        );
    }
}
