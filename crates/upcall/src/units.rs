//! Times, counts and rates on the command line; sizes are in [`crate::size`].

use std::time::Duration;

/// Units of a count, each with its factor.
const COUNTS: [(&str, u64); 5] =
    [("", 1), ("k", 1000), ("K", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// Reads a time: `10us`, `2.5ms`, `3s`, `1m`, `1h`, or seconds.
///
/// # Errors
/// A sentence that says how a time is written.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time like 10us, 500ms, 2.5s, 2m or 1h".to_string();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let second = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * second).map_err(|_| wrong())
}

/// Reads a time that is not zero.
///
/// # Errors
/// A sentence that says how a time is written.
pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    let long = time(text)?;
    if long.is_zero() { Err("write a time longer than zero".to_string()) } else { Ok(long) }
}

/// Reads a number with a decimal unit: `250`, `1k`, `2M`, `1.5G`.
fn number(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = COUNTS.iter().find(|(unit, _)| *unit == &text[digits.len()..])?.1;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    digits.parse::<f64>().ok().filter(|_| plain).map(|number| number * factor as f64)
}

/// Reads a count: `250`, `1k`, `2M`, `1.5G`.
///
/// # Errors
/// A sentence that says how a count is written.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let whole = number(text).filter(|number| number.fract() == 0.0 && *number < 2f64.powi(53));
    whole.map(|number| number as u64).ok_or_else(|| "write a number like 250, 1k or 2M".to_string())
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

/// Reads a rate per second: `0.5`, `10k`.
///
/// # Errors
/// A sentence that says how a rate is written.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().or_else(|| number(text));
    rate.filter(|rate| (0.001..=1e9).contains(rate))
        .ok_or_else(|| "write a number of I/Os a second, like 500, 10k or 2M".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, micros) in [
            ("10us", 10),
            ("2.5ms", 2500),
            ("500ms", 500_000),
            ("3", 3_000_000),
            ("5s", 5_000_000),
            ("2m", 120_000_000),
            ("1h", 3_600_000_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "us", "3d", "-1s", "1e999s", "5 s"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert!(some_time("0").is_err() && some_time("1ms").is_ok());
    }

    #[test]
    fn counts_and_rates_have_decimal_units() {
        for (text, number) in [("0", 0), ("1k", 1000), ("1K", 1000), ("2M", 2_000_000)] {
            assert_eq!(count(text), Ok(number), "{text}");
        }
        assert_eq!(count("1.5G"), Ok(1_500_000_000));
        assert_eq!(count(&u64::MAX.to_string()), Ok(u64::MAX));
        for text in ["", "k", "1.5", "-1", "1m", "1kB", "1e3", "99999999999999999G"] {
            assert!(count(text).is_err(), "{text}");
        }
        let few = counts::<u32>(1, 10_000);
        assert_eq!((few("1k"), few("10k")), (Ok(1000), Ok(10_000)));
        assert!(few("0").is_err() && few("1M").unwrap_err().contains("from 1 to 10000"));
        assert_eq!((rate("0.5"), rate("10k")), (Ok(0.5), Ok(10_000.0)));
        assert!(rate("0").is_err() && rate("10x").is_err() && rate("NaN").is_err());
    }
}
