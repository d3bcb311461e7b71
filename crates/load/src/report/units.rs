//! Numbers for people: three digits and a unit.

/// Formats a time in ns: `640 ns`, `12.3 µs`, `1.50 s`.
pub fn time(ns: f64) -> String {
    if ns < 0.0 {
        return format!("−{}", time(-ns));
    }
    let (value, unit) = match ns {
        ns if ns < 999.5 => return format!("{} ns", ns.round()),
        ns if ns < 999.5e3 => (ns / 1e3, "µs"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns if ns < 600e9 => (ns / 1e9, "s"),
        _ => return format!("{} min", digits(ns / 60e9)),
    };
    format!("{} {unit}", digits(value))
}

/// Formats a number of bytes: `4 KiB`.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = if bytes < 1024.0 { 0 } else { (bytes.log2() / 10.0) as usize };
    let power = power.min(UNITS.len() - 1);
    if power == 0 {
        return format!("{} B", bytes.round());
    }
    format!("{} {}", digits(bytes / 1024f64.powi(power as i32)), UNITS[power])
}

/// Formats a fraction of one as a percentage. Values below one are never shown as 100 %, nor values
/// above zero as 0 %.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        percent if percent > 99.99 && percent < 100.0 => "> 99.99 %".to_owned(),
        percent if percent > 0.0 && percent < 0.01 => "< 0.01 %".to_owned(),
        percent if percent >= 100.0 || percent == 0.0 => format!("{percent:.0} %"),
        percent if percent < 10.0 => format!("{} %", short(percent, 2)),
        percent => format!("{} %", short((percent * 100.0).floor() / 100.0, 2)),
    }
}

/// Formats an integer with thousands separators: `1,234,567`.
pub fn count(number: u64) -> String {
    let plain = number.to_string();
    let mut apart = String::with_capacity(plain.len() + plain.len() / 3);
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// Formats a rate per second: `12,345/s`, `0.50/s`.
pub fn rate(rate: f64) -> String {
    if rate < 100.0 { format!("{}/s", digits(rate)) } else { format!("{}/s", count(rate as u64)) }
}

/// Formats a number with three digits, or fewer if it is an integer.
pub fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => short(value, 1),
        _ => short(value, 2),
    }
}

/// Formats a number with this many decimals, or none if all are zero.
fn short(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').expect("there is at least one decimal");
    if fraction.bytes().all(|digit| digit == b'0') { whole.to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_never_flatter() {
        let times = [0.0, 999.0, 1_000.0, 12_345.0, 999_600.0, 1.5e9, 1.2e12].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1 µs", "12.3 µs", "1 ms", "1.50 s", "20 min"]);
        assert_eq!(time(-2e6), "−2 ms");
        assert_eq!([512.0, 4096.0, 1e9].map(bytes), ["512 B", "4 KiB", "954 MiB"]);
        let shares = [0.0, 1e-6, 0.0123, 0.99996, 0.999_999_9, 1.0].map(percent);
        assert_eq!(shares, ["0 %", "< 0.01 %", "1.23 %", "> 99.99 %", "> 99.99 %", "100 %"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.5, 12_345.6].map(rate), ["0.50/s", "12,345/s"]);
    }
}
