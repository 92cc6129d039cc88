//! Where torchvision's crops lie: random-resized, plain and centre.
//!
//! Only the choice of rectangles; cutting is [`Geometry`](super::Geometry)'s.

use super::SampleRng;
use super::arguments::{Padding, Size};
use crate::decode::Region;

/// Crops that `RandomResizedCrop` tries before it takes the middle.
const ATTEMPTS: u64 = 10;
/// Draws of one attempt: area, aspect ratio, row, column.
const DRAWS_AN_ATTEMPT: u64 = 4;

/// The crop of `RandomResizedCrop`: random area and aspect ratio at a random place; the largest central
/// crop of legal aspect ratio if none of ten fits.
///
/// Takes 40 draws whatever happens.
pub(super) fn random_resized_crop(
    width: u32,
    height: u32,
    scale: [f64; 2],
    ratio: [f64; 2],
    rng: &mut SampleRng,
) -> Region {
    let mut draws = rng.take(ATTEMPTS * DRAWS_AN_ATTEMPT);
    let area = f64::from(width) * f64::from(height);
    let log_ratio = ratio.map(f64::ln);
    for _ in 0..ATTEMPTS {
        let mut attempt = draws.take(DRAWS_AN_ATTEMPT);
        let target_area = area * attempt.uniform_in(scale[0], scale[1]);
        let aspect_ratio = attempt.uniform_in(log_ratio[0], log_ratio[1]).exp();
        let crop_width = (target_area * aspect_ratio).sqrt().round_ties_even();
        let crop_height = (target_area / aspect_ratio).sqrt().round_ties_even();
        let fits = |side: f64, limit: u32| side >= 1.0 && side <= f64::from(limit);
        if fits(crop_width, width) && fits(crop_height, height) {
            let (crop_width, crop_height) = (crop_width as u32, crop_height as u32);
            let y = below_or_equal(height - crop_height, &mut attempt);
            let x = below_or_equal(width - crop_width, &mut attempt);
            return Region { x, y, width: crop_width, height: crop_height };
        }
    }
    central_crop(width, height, ratio)
}

/// The largest crop in the middle whose aspect ratio lies in `ratio`.
fn central_crop(width: u32, height: u32, ratio: [f64; 2]) -> Region {
    let (w, h) = (f64::from(width), f64::from(height));
    let bounded = |side: f64, limit: u32| (side.round_ties_even() as u32).clamp(1, limit);
    let (crop_width, crop_height) = if w / h < ratio[0] {
        (width, bounded(w / ratio[0], height))
    } else if w / h > ratio[1] {
        (bounded(h * ratio[1], width), height)
    } else {
        (width, height)
    };
    Region { x: (width - crop_width) / 2, y: (height - crop_height) / 2, width: crop_width, height: crop_height }
}

/// The padding that `RandomCrop(pad_if_needed=True)` adds: all that lacks, on both sides.
pub(super) fn padding_if_needed(width: u32, height: u32, size: Size) -> Padding {
    let (x, y) = (size.width.saturating_sub(width), size.height.saturating_sub(height));
    Padding { left: x, top: y, right: x, bottom: y }
}

/// The crop of `RandomCrop`; nothing if the image is too small. Takes 2 draws whatever happens.
pub(super) fn random_crop(width: u32, height: u32, size: Size, rng: &mut SampleRng) -> Option<Region> {
    let mut draws = rng.take(2);
    let (spare_height, spare_width) = (height.checked_sub(size.height)?, width.checked_sub(size.width)?);
    let y = below_or_equal(spare_height, &mut draws);
    let x = below_or_equal(spare_width, &mut draws);
    Some(Region { x, y, width: size.width, height: size.height })
}

/// The padding that `CenterCrop` adds to an image that is too small: half of what lacks, the odd pixel after.
pub(super) fn center_padding(width: u32, height: u32, size: Size) -> Padding {
    let (x, y) = (size.width.saturating_sub(width), size.height.saturating_sub(height));
    Padding { left: x / 2, top: y / 2, right: x.div_ceil(2), bottom: y.div_ceil(2) }
}

/// The crop of `CenterCrop` in an image that is large enough; a half pixel goes to the even side.
pub(super) fn center_crop(width: u32, height: u32, size: Size) -> Region {
    let half = |side: u32, kept: u32| (f64::from(side.saturating_sub(kept)) / 2.0).round_ties_even() as u32;
    Region { x: half(width, size.width), y: half(height, size.height), width: size.width, height: size.height }
}

/// Uniform in 0..=`limit`.
fn below_or_equal(limit: u32, rng: &mut SampleRng) -> u32 {
    rng.below(limit.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_centre_crop_lies_where_torchvisions_does() {
        let check = |width, height, size: u32, x, y| {
            let region = center_crop(width, height, size.into());
            assert_eq!((region.x, region.y), (x, y), "{width}x{height} -> {size}");
        };
        check(256, 341, 224, 16, 58); // 58.5 goes down
        check(256, 343, 224, 16, 60); // 59.5 goes up
        check(225, 227, 224, 0, 2);
        let padding = center_padding(5, 10, (8, 8).into());
        assert_eq!(padding, Padding { left: 1, top: 0, right: 2, bottom: 0 });
    }

    #[test]
    fn a_hopeless_ratio_takes_the_middle() {
        let mut rng = SampleRng::new(0, 0, 0);
        let check = |width, height, expected: (u32, u32, u32, u32), rng: &mut SampleRng| {
            let Region { x, y, width, height } = random_resized_crop(width, height, [9.0, 9.0], [0.75, 4.0 / 3.0], rng);
            assert_eq!((x, y, width, height), expected);
        };
        check(400, 100, (133, 0, 133, 100), &mut rng);
        check(100, 400, (0, 133, 100, 133), &mut rng);
        check(100, 101, (0, 0, 100, 101), &mut rng);
        check(1, 1000, (0, 499, 1, 1), &mut rng);
    }

    #[test]
    fn areas_and_ratios_spread_over_their_ranges() {
        let mut areas = Vec::new();
        for sample in 0..4000 {
            let mut rng = SampleRng::new(3, 0, sample);
            let crop = random_resized_crop(1000, 1000, [0.08, 1.0], [0.75, 4.0 / 3.0], &mut rng);
            let ratio = f64::from(crop.width) / f64::from(crop.height);
            assert!((0.745..1.343).contains(&ratio), "{ratio}");
            areas.push(f64::from(crop.width) * f64::from(crop.height) / 1e6);
        }
        let mean = areas.iter().sum::<f64>() / areas.len() as f64;
        assert!((0.45..0.55).contains(&mean), "{mean}");
        assert!(areas.iter().copied().fold(1.0, f64::min) < 0.1);
    }

    proptest! {
        #[test]
        fn crops_stay_inside_and_take_a_fixed_number_of_draws(
            (width, height) in (1_u32..3000, 1_u32..3000),
            (low, span) in (0.01_f64..1.5, 0.0_f64..1.0),
            (ratio_low, ratio_span) in (0.05_f64..3.0, 0.0_f64..2.0),
            seed: u64,
        ) {
            let mut rng = SampleRng::new(seed, 0, 0);
            let mut expected = rng.clone();
            let _ = expected.take(40);
            let crop = random_resized_crop(width, height, [low, low + span], [ratio_low, ratio_low + ratio_span], &mut rng);
            prop_assert!(crop.width > 0 && crop.height > 0 && Region::full(width, height).contains(&crop));
            prop_assert_eq!(&rng, &expected);

            let size = Size { height: height.div_ceil(2), width: width.div_ceil(3) };
            let crop = random_crop(width, height, size, &mut rng);
            prop_assert!(crop.is_some_and(|crop| Region::full(width, height).contains(&crop)));
            let _ = expected.take(2);
            prop_assert_eq!(rng, expected);
        }
    }
}
