//! Content negotiation by `Accept` (RFC 9110 §12.5.1).

use super::{Fields, trim};

/// Returns whether JSON is preferred to HTML: by a larger weight, or by a more specific media range
/// of the same weight.
pub(super) fn prefers_json(fields: &Fields<'_>) -> bool {
    let ranges: Vec<(&str, u16)> = fields.list("accept").filter_map(range).collect();
    if ranges.is_empty() {
        return false;
    }
    let (json, html) = (weight(&ranges, "application/json"), weight(&ranges, "text/html"));
    json.0 > 0 && json > html
}

/// Parses a media range with its weight in thousandths.
fn range(element: &str) -> Option<(&str, u16)> {
    let mut parts = element.split(';').map(trim);
    let range = parts.next().filter(|range| !range.is_empty())?;
    let weights = parts.filter_map(|part| part.split_once('='));
    let mut weights = weights.filter(|(name, _)| trim(name).eq_ignore_ascii_case("q"));
    let weight = weights.next().map_or(1.0, |(_, value)| trim(value).parse().unwrap_or(0.0_f32));
    Some((range, (weight.clamp(0.0, 1.0) * 1000.0) as u16))
}

/// Returns the weight of a media type and the specificity of the matching range; zero if no range
/// matches.
fn weight(ranges: &[(&str, u16)], media: &str) -> (u16, u8) {
    let whole = media.split_once('/').map_or(String::new(), |(kind, _)| format!("{kind}/*"));
    let find = |wanted: &str| ranges.iter().find(|(range, _)| range.eq_ignore_ascii_case(wanted));
    let levels = [(2, media), (1, &*whole), (0, "*/*")];
    let mut found = levels.into_iter().filter_map(|(level, it)| Some((find(it)?.1, level)));
    found.next().unwrap_or((0, 0))
}
