//! Transforms against a plain twin: every entry done on its own, on whole pictures, in floating point.
//!
//! The twin follows PIL's rules (support widened by the shrinking, weights that add up to 1, across before down,
//! `u8` after each) and knows nothing of stages, regions or folding.

use brimful::decode::{Pixels, Region};
use brimful::transform::{
    Compose, Fill, Geometry, Interpolation, Padding, PaddingMode, Resampler, ResizeSize, SampleRng, Size, Transform,
};
use proptest::prelude::*;

#[test]
fn a_resize_is_the_twins_within_one_step() {
    for (from, to) in
        [((40, 30), (20, 15)), ((41, 33), (7, 64)), ((9, 9), (31, 5)), ((64, 48), (63, 47)), ((5, 1), (8, 3))]
    {
        for channels in [1, 3] {
            let picture = Picture::noise(from.0, from.1, channels, 7);
            check(&picture, &[resize(to, Interpolation::Bilinear)]);
            check(&picture, &[resize(to, Interpolation::Bicubic)]);
            check(&picture, &[resize(to, Interpolation::Nearest)]);
        }
    }
}

#[test]
fn tensors_are_resized_without_antialiasing_on_demand() {
    for antialias in [Some(true), Some(false), None] {
        for side in [3, 20, 31, 90] {
            let resize = Transform::Resize {
                size: ResizeSize::Shorter(side),
                interpolation: Interpolation::Bilinear,
                max_size: None,
                antialias,
            };
            let picture = Picture::noise(61, 47, 3, 2);
            check(&picture, &[Transform::ToImage {}, resize.clone()]);
            check(&picture, &[Transform::ToImage {}, resize.clone(), Transform::center_crop(side / 2)]);
            check(&picture, &[resize, Transform::ToImage {}]);
        }
    }
}

#[test]
fn a_resize_and_its_centre_crop_are_one_stage() {
    let picture = Picture::noise(131, 97, 3, 3);
    let list = [Transform::resize(64), Transform::center_crop(56)];
    let geometry = check(&picture, &list);
    assert_eq!(geometry.stages().count(), 1);
    let source = geometry.source;
    assert!(source.width < 131 && source.height < 97, "only what the filter reads is decoded: {source}");
    let [left, top, width, height] = geometry.stages().next().unwrap().source_box();
    assert!(left > 0.0 && top > 0.0 && width < f64::from(source.width) && height < f64::from(source.height));
}

#[test]
fn a_crop_before_a_resize_hides_what_is_around_it() {
    let picture = Picture::noise(60, 50, 3, 5);
    let geometry = check(&picture, &[Transform::center_crop(30), resize((12, 12), Interpolation::Bilinear)]);
    assert_eq!(geometry.source, Region { x: 15, y: 10, width: 30, height: 30 });
}

#[test]
fn padding_before_a_resize_makes_two_stages_and_after_it_one() {
    let picture = Picture::noise(30, 20, 3, 5);
    let pad = |all| Transform::Pad {
        padding: Padding::from(all),
        fill: Fill([10.0, 200.0, 30.0]),
        padding_mode: PaddingMode::Constant,
    };
    let scale = resize((40, 25), Interpolation::Bilinear);
    assert_eq!(check(&picture, &[pad(4), scale.clone()]).stages().count(), 2);
    assert_eq!(check(&picture, &[scale, pad(4)]).stages().count(), 1);
    // A crop after the resize leaves only the corner of the padded picture to be made.
    let corner = check(&picture, &[pad(4), resize((60, 40), Interpolation::Bilinear), Transform::center_crop(8)]);
    assert!(corner.source.width < 16 && corner.source.height < 16, "{}", corner.source);
}

#[test]
fn a_crop_of_padding_alone_is_fill() {
    let picture = Picture::noise(3, 3, 3, 1);
    let padding = Padding { left: 100, ..Padding::default() };
    let fill = Fill([1.0, 2.0, 3.0]);
    let list = [
        Transform::Pad { padding, fill, padding_mode: PaddingMode::Constant },
        Transform::center_crop(3),
        resize((5, 5), Interpolation::Bilinear),
    ];
    let output = apply(&picture, &geometry(&list, &picture, 0));
    assert!(output.data.as_chunks::<3>().0.iter().all(|pixel| *pixel == [1, 2, 3]));
}

#[test]
fn a_random_resized_crop_is_the_twins_crop_and_resize() {
    for sample in 0..40 {
        let picture = Picture::noise(90, 70, 3, sample);
        let geometry = geometry(&[Transform::random_resized_crop((24, 32))], &picture, sample);
        let expected = picture.crop(geometry.source).resize(32, 24, Kernel::Bilinear);
        assert!(apply(&picture, &geometry).distance(&expected) <= 1, "{}", geometry.source);
    }
}

#[test]
fn a_random_crop_with_padding_is_a_crop_of_the_padded_picture() {
    let picture = Picture::noise(32, 32, 3, 9);
    let list = [Transform::RandomCrop {
        size: 32.into(),
        padding: Some(4.into()),
        pad_if_needed: false,
        fill: Fill::from(7.0),
        padding_mode: PaddingMode::Constant,
    }];
    let padded = picture.pad(4.into(), [7; 3]);
    let mut places = std::collections::HashSet::new();
    for sample in 0..500 {
        let output = apply(&picture, &geometry(&list, &picture, sample));
        let crops = (0..9).flat_map(|y| (0..9).map(move |x| Region { x, y, width: 32, height: 32 }));
        let place = crops.into_iter().find(|&crop| padded.crop(crop) == output);
        places.insert(place.expect("the output is one of the 81 crops"));
    }
    assert_eq!(places.len(), 81, "every place occurs");
}

#[test]
fn crops_are_the_same_in_every_version() {
    let compose =
        Compose::new(vec![Transform::random_resized_crop(224), Transform::random_horizontal_flip(0.5)]).unwrap();
    let crop = |seed, epoch, sample| {
        let geometry = compose.geometry(500, 375, &mut SampleRng::new(seed, epoch, sample)).unwrap();
        (geometry.source.to_string(), geometry.stages().next().unwrap().flips().0)
    };
    let crops = [crop(0, 0, 0), crop(0, 0, 1), crop(0, 1, 0), crop(1, 0, 0)];
    let expected =
        [("170x220+228+104", true), ("295x329+130+36", false), ("452x358+47+17", false), ("388x308+52+14", true)]
            .map(|(crop, flip)| (crop.to_owned(), flip));
    assert_eq!(crops, expected);
}

#[test]
fn a_list_survives_its_json() {
    let json = r#"[
        {"name": "RandomResizedCrop", "size": 224, "ratio": [0.7500000000000001, 1.3333333333333333], "antialias": null},
        {"name": "RandomCrop", "size": [200, 210], "padding": [1, 2], "fill": [1, 2, 3], "pad_if_needed": true},
        {"name": "Resize", "size": 100, "max_size": 300, "interpolation": "bicubic"},
        {"name": "Resize", "size": null, "max_size": 300},
        {"name": "CenterCrop", "size": [96]},
        {"name": "Pad", "padding": 3},
        {"name": "RandomHorizontalFlip"}, {"name": "RandomVerticalFlip", "p": 0.25},
        {"name": "ToImage"}, {"name": "ToDtype", "dtype": "float32", "scale": true},
        {"name": "Normalize", "mean": 0.485, "std": [0.229, 0.224, 0.225]}]"#;
    let compose = Compose::from_json(json).unwrap();
    assert_eq!(compose.transforms().len(), 11);
    assert_eq!(Compose::from_json(&compose.to_json()).unwrap(), compose);
    assert_eq!(compose.output_size(), Some((102, 102)));
    assert!(compose.value().scale && compose.value().reciprocal && !compose.value().picture);
}

#[test]
fn wrong_pixels_and_outputs_are_errors() {
    let picture = Picture::noise(8, 8, 3, 0);
    let geometry = geometry(&[Transform::resize((4, 4))], &picture, 0);
    let mut resampler = Resampler::new();
    let small = picture.crop(Region::full(7, 8));
    assert!(resampler.apply(&small.pixels(), &geometry, &mut [0; 48]).is_err());
    assert!(resampler.apply(&picture.pixels(), &geometry, &mut [0; 47]).is_err());
    let four = vec![0; 8 * 8 * 4];
    let four = Pixels::packed(&four, Region::full(8, 8), 4).unwrap();
    assert!(resampler.apply(&four, &geometry, &mut [0; 64]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_list_is_the_twins(
        (width, height, channels) in (1_u32..48, 1_u32..48, prop_oneof![Just(1), Just(3)]),
        list in proptest::collection::vec(entry(), 0..6),
        seed: u64,
    ) {
        let picture = Picture::noise(width, height, channels, seed);
        match vanishes(&list, width, height) {
            false => drop(check(&picture, &list)),
            true => {
                let compose = Compose::new(list).unwrap();
                prop_assert!(compose.geometry(width, height, &mut SampleRng::new(0, 0, 0)).is_err());
            }
        }
    }

    #[test]
    fn random_geometry_stays_inside_and_keeps_the_output_size(
        (width, height) in (1_u32..5000, 1_u32..5000),
        list in proptest::collection::vec(random_entry(), 0..5),
        seed: u64,
    ) {
        let compose = Compose::new(list).unwrap();
        let mut rng = SampleRng::new(seed, 0, 0);
        let geometry = compose.geometry(width, height, &mut rng).unwrap();
        prop_assert!(geometry.source.inside(width, height).is_ok());
        if let Some(size) = compose.output_size() {
            prop_assert_eq!(geometry.output_size(), size);
        }
        let mut other = SampleRng::new(seed, 0, 0);
        let mut another_image = other.clone();
        prop_assert_eq!(&compose.geometry(width, height, &mut other).unwrap(), &geometry);
        compose.geometry(77, 33, &mut another_image).unwrap();
        prop_assert_eq!(rng, another_image, "draws do not depend on the image");
    }
}

/// An entry without chance in it.
fn entry() -> impl Strategy<Value = Transform> {
    let side = 1_u32..40;
    let filter = prop_oneof![Just(Interpolation::Bilinear), Just(Interpolation::Bicubic), Just(Interpolation::Nearest)];
    let flip = prop_oneof![Just(0.0), Just(1.0)];
    prop_oneof![
        (side.clone(), side.clone(), filter.clone()).prop_map(|(w, h, filter)| resize((w, h), filter)),
        (side.clone(), filter).prop_map(|(side, interpolation)| Transform::Resize {
            size: ResizeSize::Shorter(side),
            interpolation,
            max_size: Some(side + 60),
            antialias: None,
        }),
        (side.clone(), side).prop_map(|(height, width)| Transform::center_crop((height, width))),
        ([0_u32..9, 0..9, 0..9, 0..9], any::<u8>()).prop_map(|([left, top, right, bottom], fill)| Transform::Pad {
            padding: Padding { left, top, right, bottom },
            fill: Fill::from(f64::from(fill)),
            padding_mode: PaddingMode::Constant,
        }),
        flip.clone().prop_map(|p| Transform::RandomHorizontalFlip { p }),
        flip.prop_map(|p| Transform::RandomVerticalFlip { p }),
    ]
}

/// An entry whose result chance decides.
fn random_entry() -> impl Strategy<Value = Transform> {
    let side = 1_u32..300;
    prop_oneof![
        (side.clone(), side.clone()).prop_map(|(height, width)| Transform::random_resized_crop((height, width))),
        (side, 0_u32..20).prop_map(|(side, padding)| Transform::RandomCrop {
            size: side.into(),
            padding: Some(padding.into()),
            pad_if_needed: true,
            fill: Fill::default(),
            padding_mode: PaddingMode::Constant,
        }),
        Just(Transform::RandomHorizontalFlip { p: 0.5 }),
        Just(Transform::RandomVerticalFlip { p: 0.5 }),
    ]
}

fn resize((width, height): (u32, u32), interpolation: Interpolation) -> Transform {
    let size = ResizeSize::Exact(Size { height, width });
    Transform::Resize { size, interpolation, max_size: None, antialias: Some(true) }
}

fn geometry(list: &[Transform], picture: &Picture, sample: u64) -> Geometry {
    let compose = Compose::new(list.to_vec()).unwrap();
    compose.geometry(picture.width, picture.height, &mut SampleRng::new(0, 0, sample)).unwrap()
}

fn apply(picture: &Picture, geometry: &Geometry) -> Picture {
    apply_pixels(&mut Resampler::new(), &picture.pixels(), geometry)
}

fn apply_pixels(resampler: &mut Resampler, pixels: &Pixels<'_>, geometry: &Geometry) -> Picture {
    let (height, width) = geometry.output_size();
    let channels = usize::from(pixels.channels);
    let mut data = vec![0xaa; width as usize * height as usize * channels];
    resampler.apply(pixels, geometry, &mut data).unwrap();
    Picture { data, width, height, channels }
}

/// Compares `list` with its twin, and the result from the needed region alone with that from the whole image.
fn check(picture: &Picture, list: &[Transform]) -> Geometry {
    let geometry = geometry(list, picture, 0);
    let source = geometry.source.inside(picture.width, picture.height).unwrap();
    let mut resampler = Resampler::new();
    let output = apply_pixels(&mut resampler, &picture.pixels(), &geometry);

    let region = picture.crop(source);
    let packed = Pixels::packed(&region.data, source, picture.channels as u8).unwrap();
    assert_eq!(apply_pixels(&mut resampler, &packed, &geometry), output, "packed: {list:?}");
    for gap in [1, 3] {
        let (data, stride) = region.with_gaps(gap);
        let strided = Pixels::strided(&data, source, picture.channels as u8, stride).unwrap();
        assert_eq!(apply_pixels(&mut resampler, &strided, &geometry), output, "stride {stride}: {list:?}");
    }

    let (expected, tolerance) = twin(picture, list);
    assert_eq!((output.width, output.height), (expected.width, expected.height));
    let distance = output.distance(&expected);
    assert!(distance <= tolerance, "{distance} > {tolerance}: {list:?} on {}x{}", picture.width, picture.height);
    geometry
}

/// What `list` makes of `picture`, and how far off the fast way may be: 1 a bilinear and 2 a bicubic resize,
/// which in turn magnifies what was off before it.
fn twin(picture: &Picture, list: &[Transform]) -> (Picture, u8) {
    let mut picture = picture.clone();
    let (mut tolerance, mut tensor) = (0, false);
    for transform in list {
        let before = (picture.width, picture.height);
        tensor |= *transform == Transform::ToImage {};
        picture = match *transform {
            Transform::Resize { size, interpolation, max_size, antialias } => {
                let (width, height) = resized(before, size, max_size);
                let kernel = match interpolation {
                    Interpolation::Nearest => Kernel::Nearest,
                    Interpolation::Bicubic => Kernel::Bicubic,
                    _ if tensor && antialias != Some(true) => Kernel::Linear,
                    _ => Kernel::Bilinear,
                };
                tolerance = match kernel {
                    _ if (width, height) == before => tolerance,
                    Kernel::Nearest => tolerance,
                    Kernel::Bilinear | Kernel::Linear => tolerance + 1,
                    Kernel::Bicubic => tolerance + tolerance / 2 + 2,
                };
                picture.resize(width, height, kernel)
            }
            Transform::CenterCrop { size: Size { height, width } } => {
                let (lack_x, lack_y) = (width.saturating_sub(before.0), height.saturating_sub(before.1));
                let padding = Padding {
                    left: lack_x / 2,
                    top: lack_y / 2,
                    right: lack_x - lack_x / 2,
                    bottom: lack_y - lack_y / 2,
                };
                let padded = picture.pad(padding, [0; 3]);
                let half = |all: u32, kept: u32| (f64::from(all - kept) / 2.0).round_ties_even() as u32;
                padded.crop(Region { x: half(padded.width, width), y: half(padded.height, height), width, height })
            }
            Transform::Pad { padding, fill, .. } => picture.pad(padding, fill.0.map(|level| level as u8)),
            Transform::RandomHorizontalFlip { p: 1.0 } => picture.mirror(true, false),
            Transform::RandomVerticalFlip { p: 1.0 } => picture.mirror(false, true),
            _ => picture,
        };
    }
    (picture, tolerance)
}

/// Whether a `max_size` leaves nothing of a narrow picture's shorter side.
fn vanishes(list: &[Transform], width: u32, height: u32) -> bool {
    let mut size = (width, height);
    for transform in list {
        size = match *transform {
            Transform::Resize { size: to, max_size, .. } => resized(size, to, max_size),
            Transform::CenterCrop { size: Size { height, width } } => (width, height),
            Transform::Pad { padding: Padding { left, top, right, bottom }, .. } => {
                (size.0 + left + right, size.1 + top + bottom)
            }
            _ => size,
        };
        if size.0 == 0 || size.1 == 0 {
            return true;
        }
    }
    false
}

fn resized((width, height): (u32, u32), size: ResizeSize, max_size: Option<u32>) -> (u32, u32) {
    let ResizeSize::Shorter(side) = size else {
        let ResizeSize::Exact(Size { height, width }) = size else { panic!("not in these tests") };
        return (width, height);
    };
    let (short, long) = (f64::from(width.min(height)), f64::from(width.max(height)));
    let (mut new_short, mut new_long) = (side, (f64::from(side) * long / short) as u32);
    if let Some(max_size) = max_size.filter(|&max_size| new_long > max_size) {
        new_short = (f64::from(max_size) * f64::from(new_short) / f64::from(new_long)) as u32;
        new_long = max_size;
    }
    if width <= height { (new_short, new_long) } else { (new_long, new_short) }
}

#[derive(Clone, Copy, PartialEq)]
enum Kernel {
    Nearest,
    Bilinear,
    /// Bilinear without antialiasing.
    Linear,
    Bicubic,
}

impl Kernel {
    fn support(self) -> f64 {
        match self {
            Self::Nearest => 0.0,
            Self::Bilinear | Self::Linear => 1.0,
            Self::Bicubic => 2.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            Self::Nearest => 0.0,
            Self::Bilinear | Self::Linear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
            Self::Bicubic if x < 2.0 => -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0,
            Self::Bicubic => 0.0,
        }
    }

    /// For each output the first input and the weights from there on.
    fn table(self, from: u32, to: u32) -> Vec<(usize, Vec<f64>)> {
        let scale = f64::from(from) / f64::from(to);
        if self == Self::Nearest {
            let mut centre = scale / 2.0;
            return (0..to)
                .map(|_| {
                    let input = (centre as usize).min(from as usize - 1);
                    centre += scale;
                    (input, vec![1.0])
                })
                .collect();
        }
        let widening = if self == Self::Linear { 1.0 } else { scale.max(1.0) };
        let table = (0..to).map(|output| {
            let centre = (f64::from(output) + 0.5) * scale;
            let reach = self.support() * widening;
            let first = (centre - reach).floor().max(0.0) as usize;
            let last = ((centre + reach).ceil() as usize).min(from as usize);
            let weights: Vec<f64> =
                (first..last).map(|input| self.weight((input as f64 + 0.5 - centre) / widening)).collect();
            let sum: f64 = weights.iter().sum();
            (first, weights.iter().map(|weight| weight / sum).collect())
        });
        table.collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Picture {
    data: Vec<u8>,
    width: u32,
    height: u32,
    channels: usize,
}

impl Picture {
    /// Smooth waves with noise and some hard edges, so that overshoots and clipping occur.
    fn noise(width: u32, height: u32, channels: usize, seed: u64) -> Self {
        let mut rng = SampleRng::new(seed, 0, 0);
        Self::of(width, height, channels, |x, y, channel| {
            let wave = 128.0 + 90.0 * ((f64::from(x) * 0.37).sin() + (f64::from(y) * 0.23 + channel as f64).cos());
            match rng.below(8) {
                0 => 255,
                1 => 0,
                _ => (wave + 30.0 * rng.uniform()) as u8,
            }
        })
    }

    fn of(width: u32, height: u32, channels: usize, mut pixel: impl FnMut(u32, u32, usize) -> u8) -> Self {
        let mut data = Vec::with_capacity(width as usize * height as usize * channels);
        for y in 0..height {
            for x in 0..width {
                data.extend((0..channels).map(|channel| pixel(x, y, channel)));
            }
        }
        Self { data, width, height, channels }
    }

    fn at(&self, x: u32, y: u32, channel: usize) -> u8 {
        self.data[(y as usize * self.width as usize + x as usize) * self.channels + channel]
    }

    fn pixels(&self) -> Pixels<'_> {
        Pixels::packed(&self.data, Region::full(self.width, self.height), self.channels as u8).unwrap()
    }

    /// The data with `gap` bytes after each row but the last, and the stride.
    fn with_gaps(&self, gap: usize) -> (Vec<u8>, usize) {
        let row_bytes = self.width as usize * self.channels;
        let mut data: Vec<u8> = self
            .data
            .chunks(row_bytes)
            .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(0x55, gap)))
            .collect();
        data.truncate(data.len() - gap);
        (data, row_bytes + gap)
    }

    fn crop(&self, region: Region) -> Self {
        Self::of(region.width, region.height, self.channels, |x, y, channel| {
            self.at(region.x + x, region.y + y, channel)
        })
    }

    fn pad(&self, Padding { left, top, right, bottom }: Padding, fill: [u8; 3]) -> Self {
        let (width, height) = (self.width + left + right, self.height + top + bottom);
        Self::of(width, height, self.channels, |x, y, channel| {
            let inside = x >= left && y >= top && x < left + self.width && y < top + self.height;
            if inside { self.at(x - left, y - top, channel) } else { fill[channel] }
        })
    }

    fn mirror(&self, x_axis: bool, y_axis: bool) -> Self {
        Self::of(self.width, self.height, self.channels, |x, y, channel| {
            let x = if x_axis { self.width - 1 - x } else { x };
            let y = if y_axis { self.height - 1 - y } else { y };
            self.at(x, y, channel)
        })
    }

    fn resize(&self, width: u32, height: u32, kernel: Kernel) -> Self {
        if (width, height) == (self.width, self.height) {
            return self.clone();
        }
        let columns = kernel.table(self.width, width);
        let wide = Self::of(width, self.height, self.channels, |x, y, channel| {
            let (first, weights) = &columns[x as usize];
            weigh(weights, |tap| self.at((first + tap) as u32, y, channel))
        });
        let rows = kernel.table(self.height, height);
        Self::of(width, height, self.channels, |x, y, channel| {
            let (first, weights) = &rows[y as usize];
            weigh(weights, |tap| wide.at(x, (first + tap) as u32, channel))
        })
    }

    fn distance(&self, other: &Self) -> u8 {
        self.data.iter().zip(&other.data).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
    }
}

fn weigh(weights: &[f64], pixel: impl Fn(usize) -> u8) -> u8 {
    let sum: f64 = weights.iter().enumerate().map(|(tap, weight)| weight * f64::from(pixel(tap))).sum();
    sum.round().clamp(0.0, 255.0) as u8
}
