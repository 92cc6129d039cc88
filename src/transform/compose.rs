//! A list of transforms, validated and split into geometry and values.
//!
//! It holds no state of a run: the same `Compose` serves all threads.

use std::fmt;

use super::geometry::{Canvas, Geometry};
use super::step::Step;
use super::value::{Dtype, Normalize, ValueOps};
use super::{SampleRng, Transform};
use crate::{Error, ErrorKind, Result};

/// Most entries of a list.
const ENTRIES_MAX: usize = 64;

/// A validated list of transforms.
///
/// The default is the empty list, which leaves images as they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Compose {
    transforms: Vec<Transform>,
    steps: Vec<Step>,
    value: ValueOps,
}

impl Compose {
    /// Validates `transforms`; an empty list leaves images as they are.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for arguments out of range and for an order that torchvision refuses too,
    /// [`ErrorKind::Unsupported`] for what torchvision can do and this list cannot. Both name the entry.
    pub fn new(transforms: Vec<Transform>) -> Result<Self> {
        if transforms.len() > ENTRIES_MAX {
            let message = format!("{} transforms are over the limit of {ENTRIES_MAX}", transforms.len());
            return Err(Error::new(ErrorKind::Limit, message));
        }
        let mut value = ValueOps::default();
        let mut steps = Vec::new();
        for (number, transform) in transforms.iter().enumerate() {
            let entry = Entry { number, name: transform.name() };
            match Step::new(transform, &value).map_err(|error| entry.blame(error))? {
                Some(step) => steps.push(step),
                None => value.push(transform).map_err(|error| entry.blame(error))?,
            }
        }
        Ok(Self { transforms, steps, value })
    }

    /// Reads the JSON form that the [module](super) describes.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); [`ErrorKind::InvalidOption`] also for what is no such JSON, and
    /// [`ErrorKind::Unsupported`] for a transform of another name.
    pub fn from_json(json: &str) -> Result<Self> {
        let no_list =
            |error| Error::new(ErrorKind::InvalidOption, "the transforms are no JSON list").with_source(error);
        let objects: Vec<serde_json::Value> = serde_json::from_str(json).map_err(no_list)?;
        let entries = objects.into_iter().enumerate();
        let transforms = entries.map(|(number, object)| {
            let name = object.get("name").and_then(|name| name.as_str()).unwrap_or_default();
            let Some(&name) = Transform::NAMES.iter().find(|&&known| known == name) else {
                let message = format!("transform {number}: there is no transform of the name '{name}'");
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .with_hint(format!("the names are {}", Transform::NAMES.join(", "))));
            };
            serde_json::from_value(object)
                .map_err(|error| Entry { number, name }.blame(Error::new(ErrorKind::InvalidOption, error.to_string())))
        });
        Self::new(transforms.collect::<Result<_>>()?)
    }

    /// Writes the JSON form, every argument spelled out; [`from_json`](Self::from_json) makes an equal list of it.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Plain structs with string keys: serialising them into memory has no way to fail.
        serde_json::to_string(&self.transforms).unwrap_or_default()
    }

    /// The list as it was given.
    #[must_use]
    pub fn transforms(&self) -> &[Transform] {
        &self.transforms
    }

    /// Resolves the list for an image of `width` x `height`.
    ///
    /// Draws happen in the order of the list. Each entry takes a number of draws that depends on the entry
    /// alone: 40 for `RandomResizedCrop`, 2 for `RandomCrop`, 1 for a flip.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] if the image is too small for a crop or would vanish in a resize,
    /// [`ErrorKind::Decode`] if it has no pixels, [`ErrorKind::Limit`] if it would become too large.
    pub fn geometry(&self, width: u32, height: u32, rng: &mut SampleRng) -> Result<Geometry> {
        let mut canvas = Canvas::new(width, height)?;
        for step in &self.steps {
            step.apply(&mut canvas, rng)?;
        }
        canvas.finish()
    }

    /// (height, width) of every output, or nothing if that depends on the image.
    #[must_use]
    pub fn output_size(&self) -> Option<(u32, u32)> {
        let size = self.steps.iter().fold(None, |before, step| step.output_size(before))?;
        Some((size.height, size.width))
    }

    /// What happens to the numbers after the geometry.
    #[must_use]
    pub fn value(&self) -> &ValueOps {
        &self.value
    }
}

impl fmt::Display for Compose {
    /// The names in order: `RandomResizedCrop, ToTensor`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, transform) in self.transforms.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{}", transform.name())?;
        }
        Ok(())
    }
}

/// An entry of the list, for error messages.
struct Entry {
    number: usize,
    name: &'static str,
}

impl Entry {
    fn blame(&self, error: Error) -> Error {
        let message = format!("transform {} ({}): {}", self.number, self.name, error.message());
        let blamed = Error::new(error.kind(), message);
        match error.hint() {
            Some(hint) => blamed.with_hint(hint),
            None => blamed,
        }
    }
}

impl ValueOps {
    /// Adds a value entry after those so far.
    fn push(&mut self, transform: &Transform) -> Result<()> {
        match transform {
            Transform::ToTensor {} if !self.picture => Err(Error::new(
                ErrorKind::InvalidOption,
                "ToTensor takes a picture, and an entry before it made a tensor",
            )
            .with_hint("drop it, or take ConvertImageDtype or ToDtype instead")),
            Transform::ToTensor {} => self.convert(Dtype::F32, true, false),
            Transform::PilToTensor {} | Transform::ToImage {} => {
                self.picture = false;
                Ok(())
            }
            Transform::ConvertImageDtype { dtype } => self.convert(*dtype, true, false),
            Transform::ToDtype { dtype, scale } => self.convert(*dtype, *scale, true),
            Transform::Normalize { mean, std } => self.normalize(mean, std),
            _ => Ok(()),
        }
    }

    fn convert(&mut self, dtype: Dtype, scale: bool, reciprocal: bool) -> Result<()> {
        self.picture = false;
        match (self.dtype, dtype) {
            (Dtype::U8, Dtype::F32) => {
                (self.dtype, self.scale, self.reciprocal) = (dtype, scale, scale && reciprocal);
                Ok(())
            }
            (Dtype::F32, Dtype::U8) => {
                Err(Error::new(ErrorKind::Unsupported, "floating point is not converted back to uint8")
                    .with_hint("drop the conversion to floating point before it"))
            }
            _ => Ok(()),
        }
    }

    fn normalize(&mut self, mean: &[f64], std: &[f64]) -> Result<()> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidOption, message);
        if self.picture {
            self.convert(Dtype::F32, true, false)?;
        }
        if self.dtype == Dtype::U8 {
            return Err(invalid("Normalize takes floating point, and the tensor is uint8".into())
                .with_hint("put ToDtype(float32, scale=True), or ConvertImageDtype(float32), before it"));
        }
        if self.normalize.is_some() {
            return Err(Error::new(ErrorKind::Unsupported, "a second Normalize")
                .with_hint("fold both into one: mean1 + mean2 * std1 and std1 * std2"));
        }
        let floats = |name, values: &[f64]| {
            let floats: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            let legal = matches!(floats.len(), 1 | 3) && floats.iter().all(|value| value.is_finite());
            legal.then_some(floats).ok_or_else(|| invalid(format!("{name} {values:?} is not 1 or 3 finite numbers")))
        };
        let (mean, std) = (floats("mean", mean)?, floats("std", std)?);
        if std.contains(&0.0) {
            return Err(invalid(format!("std {std:?} has a 0, by which nothing can be divided")));
        }
        self.normalize = Some(Normalize { mean, std });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_follow_torchvisions_order() {
        let value = |json: &str| Compose::from_json(json).unwrap().value().clone();
        let plain = ValueOps::default();
        let tensor = ValueOps { picture: false, ..plain.clone() };
        let scaled = ValueOps { dtype: Dtype::F32, scale: true, ..tensor.clone() };
        let check = |json: &str, expected: &ValueOps| assert_eq!(&value(json), expected, "{json}");
        check("[]", &plain);
        check(r#"[{"name": "RandomHorizontalFlip"}]"#, &plain);
        check(r#"[{"name": "PILToTensor"}]"#, &tensor);
        check(r#"[{"name": "ToImage"}, {"name": "ToDtype", "dtype": "uint8", "scale": true}]"#, &tensor);
        check(r#"[{"name": "ToTensor"}]"#, &scaled);
        check(r#"[{"name": "PILToTensor"}, {"name": "ConvertImageDtype"}]"#, &scaled);
        check(
            r#"[{"name": "ToImage"}, {"name": "ToDtype", "dtype": "float32", "scale": true}]"#,
            &ValueOps { reciprocal: true, ..scaled.clone() },
        );
        check(
            r#"[{"name": "ToImage"}, {"name": "ToDtype", "dtype": "float32"}]"#,
            &ValueOps { scale: false, ..scaled.clone() },
        );
        let normalize = Some(Normalize { mean: vec![0.5], std: vec![0.25] });
        check(r#"[{"name": "Normalize", "mean": 0.5, "std": [0.25]}]"#, &ValueOps { normalize, ..scaled });
    }

    #[test]
    fn what_cannot_be_compiled_is_told_with_its_place() {
        let check = |json: &str, kind: ErrorKind, part: &str| {
            let error = Compose::from_json(json).unwrap_err();
            assert_eq!(error.kind(), kind, "{json}: {error}");
            let text = format!("{error}; {}", error.hint().unwrap_or_default());
            assert!(text.contains(part), "{json}: {text}");
        };
        let (invalid, unsupported) = (ErrorKind::InvalidOption, ErrorKind::Unsupported);
        check("{", invalid, "no JSON list");
        check(r#"{"name": "ToTensor"}"#, invalid, "no JSON list");
        check(r#"[{"name": "ToImage"}, {"name": "ColorJitter"}]"#, unsupported, "transform 1: ");
        check("[7]", unsupported, "transform 0: ");
        check(r#"[{"name": "CenterCrop"}]"#, invalid, "transform 0 (CenterCrop): missing field `size`");
        check(r#"[{"name": "CenterCrop", "size": 5, "fill": 3}]"#, invalid, "unknown field `fill`");
        check(r#"[{"name": "ToTensor", "p": 3}]"#, invalid, "unknown field `p`");
        check(r#"[{"name": "CenterCrop", "size": 0}]"#, invalid, "size (0, 0)");
        check(r#"[{"name": "CenterCrop", "size": -1}]"#, invalid, "not negative");
        check(r#"[{"name": "Resize", "size": [3, 4], "max_size": 9}]"#, invalid, "max_size");
        check(r#"[{"name": "Resize", "size": 9, "max_size": 9}]"#, invalid, "max_size 9");
        check(r#"[{"name": "Resize", "size": null}]"#, invalid, "needs max_size");
        check(r#"[{"name": "Resize", "size": 9, "interpolation": "lanczos"}]"#, unsupported, "interpolation");
        check(r#"[{"name": "RandomResizedCrop", "size": 9, "scale": [0.5, 0.1]}]"#, invalid, "scale");
        check(r#"[{"name": "RandomResizedCrop", "size": 9, "ratio": [0, 1]}]"#, invalid, "ratio");
        check(r#"[{"name": "RandomHorizontalFlip", "p": 1.5}]"#, invalid, "p = 1.5");
        check(r#"[{"name": "Pad", "padding": 2, "padding_mode": "reflect"}]"#, unsupported, "padding_mode");
        check(r#"[{"name": "Pad", "padding": 2, "fill": 256}]"#, invalid, "fill 256");
        check(r#"[{"name": "Pad", "padding": 2, "fill": 0.5}]"#, invalid, "fill 0.5");
        check(r#"[{"name": "ToTensor"}, {"name": "ToTensor"}]"#, invalid, "transform 1 (ToTensor)");
        check(r#"[{"name": "ToTensor"}, {"name": "ToDtype", "dtype": "uint8"}]"#, unsupported, "uint8");
        check(r#"[{"name": "ToImage"}, {"name": "Normalize", "mean": 0, "std": 1}]"#, invalid, "scale=True");
        check(r#"[{"name": "Normalize", "mean": 0, "std": 0}]"#, invalid, "divided");
        check(r#"[{"name": "Normalize", "mean": [1, 2], "std": 1}]"#, invalid, "mean [1.0, 2.0]");
        let normalize = r#"{"name": "Normalize", "mean": 0.5, "std": 0.5}"#;
        check(&format!("[{normalize}, {normalize}]"), unsupported, "fold both");
        check(&format!(r#"[{normalize}, {{"name": "CenterCrop", "size": 5}}]"#), unsupported, "after the geometry");
        let bicubic = r#"{"name": "Resize", "size": 5, "interpolation": "bicubic", "antialias": false}"#;
        check(&format!(r#"[{{"name": "ToTensor"}}, {bicubic}]"#), unsupported, "overshoots");
        check(&format!(r#"[{{"name": "ToImage"}}, {bicubic}]"#), unsupported, "antialias=True");
        assert!(Compose::from_json(&format!("[{bicubic}]")).is_ok(), "PIL images are always antialiased");
    }

    #[test]
    fn a_fill_has_the_unit_of_the_values_where_it_stands() {
        let compose =
            Compose::from_json(r#"[{"name": "ToTensor"}, {"name": "Pad", "padding": 1, "fill": 1.0}]"#).unwrap();
        let geometry = compose.geometry(2, 2, &mut SampleRng::new(0, 0, 0)).unwrap();
        assert!(geometry.stages().all(|stage| stage.fill() == [255; 3]));
    }

    #[test]
    fn output_sizes_are_known_where_they_are_fixed() {
        let check = |list: Vec<Transform>, expected| assert_eq!(Compose::new(list).unwrap().output_size(), expected);
        check(vec![], None);
        check(vec![Transform::resize(256)], None);
        check(vec![Transform::resize(256), Transform::center_crop((224, 200))], Some((224, 200)));
        check(vec![Transform::resize((30, 40)), Transform::resize(60)], Some((60, 80)));
        check(vec![Transform::random_resized_crop(8), Transform::random_horizontal_flip(1.0)], Some((8, 8)));
    }

    #[test]
    fn images_that_do_not_fit_are_errors() {
        let kind = |list: Vec<Transform>, width, height| {
            let compose = Compose::new(list).unwrap();
            compose.geometry(width, height, &mut SampleRng::new(0, 0, 0)).unwrap_err().kind()
        };
        assert_eq!(kind(vec![Transform::random_crop(9)], 8, 20), ErrorKind::InvalidOption);
        assert_eq!(kind(vec![], 0, 20), ErrorKind::Decode);
        assert_eq!(kind(vec![Transform::resize(60_000)], 100, 100), ErrorKind::Limit);
        assert_eq!(kind(vec![Transform::resize(60_000)], 1, 100_000), ErrorKind::Limit);
    }
}
