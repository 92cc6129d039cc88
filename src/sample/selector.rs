//! How a user names a field: `jpg;jpeg;png`, `json:meta.label`, `__key__`.
//!
//! It picks among extensions that exist; what the bytes of the field mean is [`Value`](super::Value)'s business.

use std::fmt;

use super::value::FieldKind;
use crate::error::{Error, ErrorKind, Result};

/// A field by its possible extensions, in order of preference: the first that a sample has is meant.
///
/// - `jpg;jpeg;png`: alternatives, compared without regard to case as extensions are;
/// - `json:meta.label`: a value inside a JSON field, by a [`JsonPath`] (only where the extension is a JSON one, so that
///   a colon in other extensions stays a colon);
/// - `__key__`, `__url__`: see [`PseudoField`]; these stand alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    text: String,
    /// Not empty.
    alternatives: Vec<Alternative>,
    pseudo: Option<PseudoField>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Alternative {
    ext: String,
    path: Option<JsonPath>,
}

/// What a sample has besides its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PseudoField {
    /// `__key__`: the sample's key.
    Key,
    /// `__url__`: the shard as the user named it.
    Url,
}

impl FieldSelector {
    /// Reads one selector.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] when it names nothing, has an empty alternative or path, or mixes pseudo fields with
    /// others.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |message: &str| {
            Error::new(ErrorKind::InvalidOption, format!("field selector '{text}': {message}")).with_hint(
                "write extensions with semicolons between them, such as 'jpg;jpeg;png', or 'json:meta.label'",
            )
        };
        let mut alternatives = Vec::new();
        let mut pseudo = None;
        for part in text.split(';') {
            let (ext, path) = match part.split_once(':') {
                Some((ext, path)) if FieldKind::of(&ext.to_lowercase()) == FieldKind::Json => (ext, Some(path)),
                _ => (part, None),
            };
            if ext.is_empty() {
                return Err(invalid("an extension is empty"));
            }
            pseudo = pseudo.or(match ext {
                "__key__" => Some(PseudoField::Key),
                "__url__" => Some(PseudoField::Url),
                _ => None,
            });
            let path = path.map(|path| JsonPath::parse(path).ok_or_else(|| invalid("a part of the path is empty")));
            alternatives.push(Alternative { ext: ext.to_lowercase(), path: path.transpose()? });
        }
        if pseudo.is_some() && alternatives.len() > 1 {
            return Err(invalid("'__key__' and '__url__' have no alternatives, every sample has them"));
        }
        Ok(Self { text: text.to_owned(), alternatives, pseudo })
    }

    /// Reads several selectors with blanks between them, as in `jpg;png cls`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); also when there is none.
    pub fn parse_list(text: &str) -> Result<Vec<Self>> {
        if text.trim().is_empty() {
            return Err(Error::new(ErrorKind::InvalidOption, "no field is selected"));
        }
        text.split_whitespace().map(Self::parse).collect()
    }

    /// The selector as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Which pseudo field is meant, if one is.
    #[must_use]
    pub fn pseudo(&self) -> Option<PseudoField> {
        self.pseudo
    }

    /// The extensions in lower case, in order of preference.
    pub fn extensions(&self) -> impl Iterator<Item = &str> {
        self.alternatives.iter().map(|alternative| alternative.ext.as_str())
    }

    /// What the first alternative that `find` knows leads to.
    pub fn pick<T>(&self, find: impl FnMut(&str) -> Option<T>) -> Option<T> {
        self.extensions().find_map(find)
    }

    /// The path into a field with this extension, if the selector has one.
    #[must_use]
    pub fn path(&self, ext: &str) -> Option<&JsonPath> {
        self.alternatives.iter().find(|alternative| alternative.ext == ext)?.path.as_ref()
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A way into a JSON document: `meta.label`, `boxes.0.x`, or a JSON pointer (RFC 6901) such as `/meta/a.b` for names
/// that contain dots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JsonPath {
    text: String,
    /// The same way as a JSON pointer.
    pointer: String,
}

impl JsonPath {
    /// Reads a path; `None` if it or a part of it is empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return Some(Self { text: text.to_owned(), pointer: text.to_owned() });
        }
        if text.split('.').any(str::is_empty) {
            return None;
        }
        let escaped = text.replace('~', "~0").replace('/', "~1");
        Some(Self { text: text.to_owned(), pointer: format!("/{}", escaped.replace('.', "/")) })
    }

    /// The path as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What lies there in a document; numbers step into arrays.
    #[must_use]
    pub fn find<'a>(&self, document: &'a serde_json::Value) -> Option<&'a serde_json::Value> {
        document.pointer(&self.pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_list_alternatives_in_order() {
        let selector = FieldSelector::parse("JPG;left.png;json:meta.label").unwrap();
        assert_eq!(selector.extensions().collect::<Vec<_>>(), ["jpg", "left.png", "json"]);
        assert_eq!(selector.path("json").map(JsonPath::as_str), Some("meta.label"));
        assert_eq!((selector.path("jpg"), selector.pseudo()), (None, None));
        assert_eq!(selector.to_string(), "JPG;left.png;json:meta.label");
        assert_eq!(FieldSelector::parse("a:b").unwrap().extensions().collect::<Vec<_>>(), ["a:b"]);
        assert_eq!(FieldSelector::parse("__key__").unwrap().pseudo(), Some(PseudoField::Key));
        assert_eq!(FieldSelector::parse_list(" jpg;png  cls ").unwrap().len(), 2);
    }

    #[test]
    fn selectors_that_mean_nothing_are_refused() {
        for text in ["", "jpg;", ";jpg", "json:", "json:a..b", "json:.a", "jpg;__key__", ":a"] {
            match FieldSelector::parse(text) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidOption, "{text:?}"),
                Ok(selector) => assert_eq!(text, ":a", "{selector:?}"),
            }
        }
        assert!(FieldSelector::parse_list("  ").is_err());
    }

    #[test]
    fn paths_lead_into_documents() {
        let document = json!({"meta": {"label": 7, "a.b": 8, "x/y": 9}, "boxes": [[1, 2], {"x": 3}], "0": 4});
        let check = |path: &str, expected: Option<serde_json::Value>| {
            assert_eq!(JsonPath::parse(path).unwrap().find(&document).cloned(), expected, "{path}");
        };
        check("meta.label", Some(json!(7)));
        check("/meta/a.b", Some(json!(8)));
        check("meta.x/y", Some(json!(9)));
        check("boxes.1.x", Some(json!(3)));
        check("boxes.0.1", Some(json!(2)));
        check("0", Some(json!(4)));
        check("meta.none", None);
        check("boxes.5", None);
        check("meta.label.deeper", None);
    }
}
