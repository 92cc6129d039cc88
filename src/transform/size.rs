//! The size that torchvision's `Resize` gives an image.
//!
//! Numbers only; the pixels are [`Resampler`](super::Resampler)'s.

use super::arguments::{ResizeSize, Size};
use crate::{Error, ErrorKind, Result};

/// The size that `Resize` gives an image, by torchvision's rule: the side that follows is cut, not rounded.
///
/// # Errors
///
/// [`ErrorKind::InvalidOption`] if a side becomes 0, [`ErrorKind::Limit`] if one cannot be counted.
pub(super) fn resized(width: u32, height: u32, size: ResizeSize, max_size: Option<u32>) -> Result<Size> {
    let (short, long) = (width.min(height), width.max(height));
    let scaled = |side: u32, by: u32, over: u32| -> Result<u32> {
        let exact = (u64::from(side) * u64::from(by)) as f64 / f64::from(over);
        if exact > f64::from(u32::MAX) {
            let message = format!("an image of {width}x{height} is resized to {exact} pixels on a side");
            return Err(Error::new(ErrorKind::Limit, message));
        }
        Ok(exact as u32)
    };
    let (new_short, new_long) = match (size, max_size) {
        (ResizeSize::Exact(size), _) => return Ok(size),
        (ResizeSize::Longer, max_size) => {
            let max_size = max_size.unwrap_or(long);
            (scaled(max_size, short, long)?, max_size)
        }
        (ResizeSize::Shorter(side), max_size) => {
            let new_long = scaled(side, long, short)?;
            match max_size {
                Some(max_size) if new_long > max_size => (scaled(max_size, side, new_long)?, max_size),
                _ => (side, new_long),
            }
        }
    };
    if new_short == 0 {
        let message = format!("an image of {width}x{height} is so narrow that its resize has no pixels");
        return Err(Error::new(ErrorKind::InvalidOption, message).with_hint("resize to [height, width]"));
    }
    let (width, height) = if width <= height { (new_short, new_long) } else { (new_long, new_short) };
    Ok(Size { height, width })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_cut_as_in_torchvision() {
        let check = |(width, height): (u32, u32), size, max_size, (w, h): (u32, u32)| {
            let resized = resized(width, height, size, max_size).unwrap();
            assert_eq!((resized.width, resized.height), (w, h), "{width}x{height} {size:?} {max_size:?}");
        };
        check((500, 375), ResizeSize::Shorter(256), None, (341, 256));
        check((375, 500), ResizeSize::Shorter(256), None, (256, 341));
        check((500, 333), ResizeSize::Shorter(256), None, (384, 256));
        check((500, 333), ResizeSize::Shorter(256), Some(300), (300, 200));
        check((500, 333), ResizeSize::Longer, Some(100), (100, 66));
        check((7, 7), ResizeSize::Exact((3, 9).into()), None, (9, 3));
        check((1, 100), ResizeSize::Shorter(2), None, (2, 200));
    }

    #[test]
    fn sizes_out_of_reach_are_errors() {
        let kind = |width, height, size, max_size| resized(width, height, size, max_size).unwrap_err().kind();
        assert_eq!(kind(1, 3000, ResizeSize::Longer, Some(10)), ErrorKind::InvalidOption);
        assert_eq!(kind(1, u32::MAX, ResizeSize::Shorter(2), None), ErrorKind::Limit);
    }
}
