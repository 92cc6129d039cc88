//! What a new file could not hold, and is refused unless it is asked for.
//!
//! It looks at headers and names only.

use super::options::{PictureFormat, PictureOptions};
use crate::convert::extension::is_picture_field;
use crate::convert::sample::Fields;
use crate::decode::{ImageFormat, ImageInfo, Orientation};
use crate::error::{Error, ErrorKind, Result};

/// Refuses to choose between pictures: of a `jpg` and a `png` either may be a mask.
pub(super) fn refuse_choice(fields: &Fields) -> Result<()> {
    let plain = fields.iter().map(|field| field.ext.as_str()).filter(|ext| !ext.contains('.') && is_picture_field(ext));
    let plain: Vec<&str> = plain.collect();
    if plain.len() < 2 {
        return Ok(());
    }
    let message = format!("the sample has several pictures: {}", plain.join(", "));
    Err(Error::new(ErrorKind::Unsupported, message)
        .with_hint(format!("--fields names those that are changed, such as --fields {}", plain[0])))
}

/// Refuses to encode what the new file would lack without a word.
pub(super) fn refuse_losses(info: &ImageInfo, keeps_orientation: bool, options: &PictureOptions) -> Result<()> {
    let is_asked = options.format == PictureFormat::Jpg;
    if info.format != ImageFormat::Jpeg && matches!(info.components, 2 | 4) && !is_asked {
        return Err(loses("an alpha channel, which would be lost", "--format jpg drops it"));
    }
    if info.bits > 8 && !is_asked {
        return Err(loses("more than 8 bits a channel, which would be lost", "--format jpg drops them"));
    }
    if info.orientation != Orientation::Upright && !keeps_orientation {
        return Err(loses("an EXIF orientation, which would be lost", "--apply-orientation turns such pictures"));
    }
    Ok(())
}

pub(super) fn loses(what: &str, hint: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the picture has {what}")).with_hint(hint)
}
