//! Numbers with units, as people write them.

const TIMES: [(&str, f64); 6] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// Units of a size, from bytes on, each 1024 or 1000 times the one before.
const SIZES: [&str; 5] = ["", "k", "m", "g", "t"];

const COUNTS: [(&str, u64); 5] =
    [("", 1), ("k", 1000), ("K", 1000), ("M", 1_000_000), ("G", 1_000_000_000)];

/// A count, with decimal units: `1k`, `2M`.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let (digits, unit) = parts(text);
    let factor = COUNTS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let count = digits.parse::<u64>().ok();
    let count = factor.zip(count).and_then(|(factor, count)| count.checked_mul(factor));
    count.ok_or_else(|| "write a number such as 250, 1k or 2M".to_string())
}

/// A time, ns.
pub(super) fn duration(text: &str) -> Result<u64, String> {
    let (digits, unit) = parts(text);
    let unit = TIMES.iter().find(|(name, _)| *name == unit).map(|(_, ns)| ns);
    let count = digits.parse::<f64>().ok().filter(|count| count.is_finite());
    let ns = unit.zip(count).map(|(unit, count)| unit * count).filter(|ns| *ns >= 1.0);
    ns.map(|ns| ns as u64).ok_or_else(|| "write a time such as 500ms, 10s or 2m".to_string())
}

/// A size, bytes: in powers of 1024, or with a `B` alone behind the unit in powers of 1000.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = parts(text);
    let unit = unit.to_ascii_lowercase();
    let (unit, step) = match (unit.strip_suffix("ib"), unit.strip_suffix('b')) {
        (Some(unit), _) => (unit, 1024u64),
        (None, Some(unit)) => (unit, 1000),
        (None, None) => (&*unit, 1024),
    };
    let power = SIZES.iter().position(|name| *name == unit);
    let factor = power.and_then(|power| step.checked_pow(power as u32));
    let count = digits.parse::<u64>().ok();
    let bytes = factor.zip(count).and_then(|(factor, count)| count.checked_mul(factor));
    bytes.ok_or_else(|| "write a size such as 65536, 64K, 256M, 1G or 1GB".to_string())
}

/// A share of one processor's time, ns of each second.
pub(super) fn share(text: &str) -> Result<u64, String> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100_000.0).contains(percent));
    percent
        .map(|percent| (percent * 1e7) as u64)
        .ok_or_else(|| "write a share of a processor, such as 50%".to_string())
}

/// Digits, and the unit behind them.
fn parts(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::{number, size};

    #[test]
    fn counts_are_decimal_and_sizes_binary_unless_a_byte_is_named() {
        assert_eq!((number("250"), number("1k"), number("2M")), (Ok(250), Ok(1000), Ok(2_000_000)));
        assert!(number("").is_err() && number("1.5k").is_err() && number("1m").is_err());
        for (text, bytes) in
            [("65536", 65_536), ("64K", 65_536), ("64KiB", 65_536), ("64kB", 64_000)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        assert_eq!((size("1G"), size("1GB")), (Ok(1 << 30), Ok(1_000_000_000)));
        assert!(size("1X").is_err() && size("B").is_err());
    }
}
