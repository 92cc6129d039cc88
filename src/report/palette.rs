//! The colours of a page, in light and dark. They are chosen to be told apart by people who see fewer colours, and
//! series differ in the shape of their points as well.

/// A colour for light and for dark ground.
pub(super) struct Color {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

/// Colours of series, in the order in which they are given out.
pub(super) const COLORS: [Color; 8] = [
    Color { light: "#0b62b8", dark: "#6cb2f7" },
    Color { light: "#c2410c", dark: "#fb9a5b" },
    Color { light: "#0f7b5c", dark: "#4fd1a5" },
    Color { light: "#8b2fa8", dark: "#d59af0" },
    Color { light: "#8a6100", dark: "#e8c35a" },
    Color { light: "#b3184f", dark: "#f78fb0" },
    Color { light: "#3d5a66", dark: "#a4bfca" },
    Color { light: "#4d6b00", dark: "#b3d456" },
];

/// The style of everything that is drawn or written, as custom properties for both grounds.
pub(super) fn properties() -> String {
    let series = |pick: fn(&Color) -> &'static str| {
        let parts = COLORS.iter().enumerate().map(|(number, color)| format!("--s{number}:{};", pick(color)));
        parts.collect::<String>()
    };
    let light = series(|color| color.light);
    let dark = series(|color| color.dark);
    format!(
        ":root{{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--ink:#17202a;--quiet:#56606d;--line:#d7dce2;\
         --grid:#e8ebef;--good:#0f7b5c;--warn:#9a4b00;--warn-ground:#fff4e2;--good-ground:#e9f7f1;\
         --info-ground:#eaf2fb;--info:#0b62b8;{light}}}\
         @media(prefers-color-scheme:dark){{:root{{--ground:#12161b;--card:#1a2027;--ink:#e6eaef;--quiet:#9fabb8;\
         --line:#38424d;--grid:#28313a;--good:#4fd1a5;--warn:#f5b04c;--warn-ground:#33270f;--good-ground:#12302a;\
         --info-ground:#152a40;--info:#6cb2f7;{dark}}}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as WCAG 2 defines it.
    fn luminance(color: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn every_series_stands_out_from_its_ground() {
        let contrast = |a: f64, b: f64| (a.max(b) + 0.05) / (a.min(b) + 0.05);
        for color in &COLORS {
            assert!(contrast(luminance(color.light), luminance("#ffffff")) >= 4.5, "{}", color.light);
            assert!(contrast(luminance(color.dark), luminance("#1a2027")) >= 4.5, "{}", color.dark);
        }
    }
}
