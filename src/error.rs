//! The one error type of the library: a kind, a sentence, and the place it happened.
//!
//! It is not a log: whoever returns an `Error` stays silent, whoever handles it reports it once.

use std::fmt;
use std::sync::Arc;

/// The result of every fallible function of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for programs that must decide how to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A pattern, file or folder that does not exist.
    NotFound,
    /// The operating system refused or failed a read or write.
    Io,
    /// An option, pattern or argument outside its legal range.
    InvalidOption,
    /// The bytes are no tar archive at all.
    NotTar,
    /// A damaged header inside an archive.
    BadHeader,
    /// Bytes are missing: a cut archive, a cut image.
    Truncated,
    /// A legal file that this build or this library does not read.
    Unsupported,
    /// A size or count in the input is over a limit.
    Limit,
    /// Members that cannot form a sample: a field given twice in one sample.
    Grouping,
    /// A sample lacks a field that was asked for.
    MissingField,
    /// An image that cannot be decoded.
    Decode,
    /// A field whose value cannot be read as its type (`cls`, `json`, `npy`).
    FieldValue,
    /// A shard was truncated or rewritten while it was in use.
    ShardChanged,
    /// More bad samples than the error budget allows.
    TooManyErrors,
    /// A saved state that does not belong to this data set.
    StateMismatch,
    /// Work that was ended before its result arrived.
    Cancelled,
    /// A GPU, its driver or one of its libraries is missing or failed.
    Device,
}

impl ErrorKind {
    /// The kind as one `snake_case` word, as JSON documents spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Io => "io",
            Self::InvalidOption => "invalid_option",
            Self::NotTar => "not_tar",
            Self::BadHeader => "bad_header",
            Self::Truncated => "truncated",
            Self::Unsupported => "unsupported",
            Self::Limit => "limit",
            Self::Grouping => "grouping",
            Self::MissingField => "missing_field",
            Self::Decode => "decode",
            Self::FieldValue => "field_value",
            Self::ShardChanged => "shard_changed",
            Self::TooManyErrors => "too_many_errors",
            Self::StateMismatch => "state_mismatch",
            Self::Cancelled => "cancelled",
            Self::Device => "device",
        }
    }
}

/// Where it went wrong: as much of shard, key, field and byte offset as is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// Path of the shard, as the user gave it.
    pub shard: Option<Arc<str>>,
    /// Key of the sample, undecodable bytes escaped.
    pub key: Option<String>,
    /// Field of the sample: its extension.
    pub field: Option<String>,
    /// Byte offset inside the shard.
    pub offset: Option<u64>,
}

/// An error with its kind, its place, its cause and, where there is one, advice.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    place: Place,
    hint: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` with one sentence, lower case and without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), place: Place::default(), hint: None, source: None }))
    }

    /// An I/O error; a missing file becomes [`ErrorKind::NotFound`].
    pub fn io(message: impl Into<String>, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Self::new(kind, message).with_source(source)
    }

    /// Names the shard, unless one is named already.
    #[must_use]
    pub fn in_shard(mut self, shard: impl Into<Arc<str>>) -> Self {
        self.0.place.shard.get_or_insert_with(|| shard.into());
        self
    }

    /// Names the sample's key, unless one is named already.
    #[must_use]
    pub fn at_key(mut self, key: impl fmt::Display) -> Self {
        self.0.place.key.get_or_insert_with(|| key.to_string());
        self
    }

    /// Names the field, unless one is named already.
    #[must_use]
    pub fn in_field(mut self, field: impl Into<String>) -> Self {
        self.0.place.field.get_or_insert_with(|| field.into());
        self
    }

    /// Names the byte offset inside the shard, unless one is named already.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.place.offset.get_or_insert(offset);
        self
    }

    /// Adds advice: what the reader can do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Where it went wrong.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// The sentence without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Advice, where there is some.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { shard, key, field, offset } = &self.0.place;
        if let Some(shard) = shard {
            write!(f, "{shard}: ")?;
        }
        match (key, field) {
            (Some(key), Some(field)) => write!(f, "sample '{key}', field '{field}': ")?,
            (Some(key), None) => write!(f, "sample '{key}': ")?,
            (None, Some(field)) => write!(f, "field '{field}': ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)?;
        if let Some(offset) = offset {
            write!(f, " (at byte {offset})")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_set_once_and_printed_in_reading_order() {
        let error = Error::new(ErrorKind::Truncated, "the image ends early")
            .in_field("jpg")
            .at_key("n01/17")
            .at_offset(512)
            .in_shard("a.tar")
            .in_shard("outer.tar");
        assert_eq!(error.to_string(), "a.tar: sample 'n01/17', field 'jpg': the image ends early (at byte 512)");
        assert_eq!(error.kind().as_str(), "truncated");
    }

    #[test]
    fn a_missing_file_has_its_own_kind() {
        let error = Error::io("cannot open the shard", std::io::ErrorKind::NotFound.into());
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(std::error::Error::source(&error).is_some());
    }
}
