//! Numbers as people read them: thousands apart, as many digits as carry meaning. It rounds; whoever needs the number
//! itself reads the JSON.

/// Digits behind the point at most: an f64 has no more to give.
const DIGITS_MAX: usize = 15;

/// `value` with `digits` digits behind the point and commas between thousands; a dash where it is no number.
#[must_use]
pub fn number_text(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let rounded = format!("{:.*}", digits.min(DIGITS_MAX), value.abs());
    let (whole, rest) = rounded.split_once('.').map_or((rounded.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let is_zero = rounded.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    let mut text = String::with_capacity(rounded.len() + whole.len() / 3 + 1);
    if value < 0.0 && !is_zero {
        text.push('-');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(rest) = rest {
        text.push('.');
        text.push_str(rest);
    }
    text
}

/// `value` with three digits that count, without zeros at its end: for labels and tooltips.
pub(super) fn short_text(value: f64) -> String {
    let size = value.abs();
    if !size.is_finite() || size == 0.0 {
        return number_text(value, 0);
    }
    if !(1e-6..1e15).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = (2 - size.log10().floor() as i32).clamp(0, 9) as usize;
    let text = number_text(value, digits);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let check = |value, digits, expected: &str| assert_eq!(number_text(value, digits), expected);
        check(0.0, 0, "0");
        check(-0.001, 2, "0.00");
        check(999.6, 0, "1,000");
        check(1_234_567.891, 1, "1,234,567.9");
        check(-1_234.5, 2, "-1,234.50");
        check(f64::NAN, 2, "–");
        check(f64::INFINITY, 2, "–");
        check(0.5, 400, "0.500000000000000");
    }

    #[test]
    fn short_numbers_keep_three_digits() {
        let check = |value, expected: &str| assert_eq!(short_text(value), expected);
        check(0.0, "0");
        check(0.001234, "0.00123");
        check(0.5, "0.5");
        check(12.0, "12");
        check(12.345, "12.3");
        check(1234.0, "1,234");
        check(1e18, "1.00e18");
        check(-2.5e-9, "-2.50e-9");
    }
}
