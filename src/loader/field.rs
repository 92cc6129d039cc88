//! What the user asks of a sample: which fields, and what each becomes. Parsing only; nothing is read here.

use crate::Result;
use crate::sample::{FieldSelector, PseudoField};

/// Extensions whose fields are decoded as images.
const IMAGE_EXTENSIONS: [&str; 13] =
    ["jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm", "pbm", "pnm", "img"];

/// One column of a batch, as asked for.
#[derive(Debug, Clone)]
pub struct FieldSpec {
    name: String,
    pub(crate) source: Source,
}

/// What a column's values are made of.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A field decoded as an image.
    Image(FieldSelector),
    /// A field read by the rule of its extension.
    Value(FieldSelector),
    /// A field's bytes as they are.
    Bytes(FieldSelector),
    /// The sample's key.
    Key,
    /// The shard's path.
    Url,
}

impl FieldSpec {
    /// Parses one field: `jpg;jpeg;png` (the first present wins), `cls`, `json:meta.label` (a path into JSON),
    /// `jpg:bytes` (undecoded), `__key__`, `__url__`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for what no selector can be.
    pub fn parse(text: &str) -> Result<Self> {
        let source = match text.strip_suffix(":bytes") {
            Some(names) => Source::Bytes(FieldSelector::parse(names)?),
            None => {
                let selector = FieldSelector::parse(text)?;
                match selector.pseudo() {
                    Some(PseudoField::Key) => Source::Key,
                    Some(PseudoField::Url) => Source::Url,
                    None if selector.extensions().all(is_image) => Source::Image(selector),
                    None => Source::Value(selector),
                }
            }
        };
        Ok(Self { name: text.to_owned(), source })
    }

    /// The field as the user wrote it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the column holds decoded images.
    #[must_use]
    pub fn is_image(&self) -> bool {
        matches!(self.source, Source::Image(_))
    }

    pub(crate) fn selector(&self) -> Option<&FieldSelector> {
        match &self.source {
            Source::Image(selector) | Source::Bytes(selector) | Source::Value(selector) => Some(selector),
            Source::Key | Source::Url => None,
        }
    }
}

fn is_image(extension: &str) -> bool {
    extension.rsplit('.').next().is_some_and(|last| IMAGE_EXTENSIONS.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_by_its_extension_unless_told_otherwise() {
        let source = |text: &str| FieldSpec::parse(text).unwrap().source;
        assert!(matches!(source("jpg;jpeg;png"), Source::Image(_)));
        assert!(matches!(source("left.JPG"), Source::Image(_)));
        assert!(matches!(source("jpg:bytes"), Source::Bytes(_)));
        assert!(matches!(source("cls"), Source::Value(_)));
        assert!(matches!(source("json:meta.label"), Source::Value(_)));
        assert!(matches!(source("__key__"), Source::Key));
    }

    #[test]
    fn an_empty_name_is_refused() {
        for text in ["", "jpg;;png", ":bytes"] {
            assert_eq!(FieldSpec::parse(text).unwrap_err().kind(), crate::ErrorKind::InvalidOption, "{text}");
        }
    }
}
