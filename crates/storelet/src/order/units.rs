//! Numbers with units, as people write them.

const TIMES: [(&str, f64); 6] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

const SIZES: [(&str, u64); 5] =
    [("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)];

/// A plain number.
pub(super) fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a number".to_string())
}

/// A time, ns.
pub(super) fn duration(text: &str) -> Result<u64, String> {
    let (digits, unit) = parts(text);
    let unit = TIMES.iter().find(|(name, _)| *name == unit).map(|(_, ns)| ns);
    let count = digits.parse::<f64>().ok().filter(|count| count.is_finite());
    let ns = unit.zip(count).map(|(unit, count)| unit * count).filter(|ns| *ns >= 1.0);
    ns.map(|ns| ns as u64).ok_or_else(|| "write a time such as 500ms, 10s or 2m".to_string())
}

/// A size, bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = parts(text);
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").unwrap_or(&unit);
    let factor = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let count = digits.parse::<u64>().ok();
    let bytes = factor.zip(count).and_then(|(factor, count)| count.checked_mul(factor));
    bytes.ok_or_else(|| "write a size such as 65536, 64K, 256M or 1G".to_string())
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
