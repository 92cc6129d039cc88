//! The decoder that users make: it sends each image to the library that serves it.
//!
//! It holds no pixels but the last image's, and it decides nothing about geometry.

use super::{
    Backend, ColorMode, DecodeOptions, Decoder, ImageFormat, ImageInfo, Jobs, Orientation, Pixels, Region, other, zune,
};
use crate::{Error, ErrorKind, Result};

/// Decodes images of every format that this library knows, one at a time, reusing its memory.
///
/// One per thread: it is `Send`, and all methods take `&mut self`.
#[derive(Debug)]
pub struct ImageDecoder {
    options: DecodeOptions,
    pixels: Vec<u8>,
}

impl ImageDecoder {
    /// A decoder with `options`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for [`Backend::Turbo`] in a build without libjpeg-turbo.
    pub fn new(options: DecodeOptions) -> Result<Self> {
        if options.backend == Backend::Turbo && !cfg!(feature = "turbo") {
            return Err(Error::new(ErrorKind::Unsupported, "this build has no libjpeg-turbo")
                .with_hint("build with --features turbo, which needs cmake and nasm, or choose the backend zune"));
        }
        Ok(Self { options, pixels: Vec::new() })
    }

    /// What serves JPEG here: `"turbo"` or `"zune"`.
    #[must_use]
    pub fn jpeg_backend(&self) -> &'static str {
        "zune"
    }

    /// Reads the header of an image; decodes no pixel.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`] if the bytes are no image or its header is damaged, [`ErrorKind::Truncated`] if the
    /// header is cut, [`ErrorKind::Limit`] if it has more pixels or scans than the options allow,
    /// [`ErrorKind::Unsupported`] for a format or coding that nothing here reads.
    pub fn info(&mut self, bytes: &[u8]) -> Result<ImageInfo> {
        let format = other::format(bytes)
            .ok_or_else(|| Error::new(ErrorKind::Decode, "the bytes are no image of a known format"))?;
        let (width, height) = match format {
            ImageFormat::Jpeg => zune::size(bytes)?,
            _ => other::size(bytes)?,
        };
        if u64::from(width) * u64::from(height) > self.options.pixels_max {
            return Err(Error::new(ErrorKind::Limit, format!("the image has {width}x{height} pixels, too many")));
        }
        Ok(ImageInfo { format, width, height, components: 3, bits: 8, orientation: Orientation::Upright, jpeg: None })
    }

    /// Decodes `region` of an image, or all of it.
    ///
    /// The pixels are exactly those of a full decode, and stay good until the next call.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Self::info); [`ErrorKind::InvalidOption`] for a region outside the image;
    /// [`ErrorKind::Truncated`] for an image that ends early, wherever the region lies; [`ErrorKind::Decode`] for
    /// a damaged one.
    pub fn decode(&mut self, bytes: &[u8], region: Option<Region>) -> Result<Pixels<'_>> {
        let info = self.info(bytes)?;
        self.decode_known(bytes, &info, region.unwrap_or(Region::from(&info)))
    }

    fn decode_known(&mut self, bytes: &[u8], info: &ImageInfo, region: Region) -> Result<Pixels<'_>> {
        let region = region.inside(info.width, info.height)?;
        match info.format {
            ImageFormat::Jpeg => zune::decode(bytes, &mut self.pixels)?,
            _ => other::decode(bytes, &mut self.pixels)?,
        }
        if self.options.mode == ColorMode::Grey {
            return Err(Error::new(ErrorKind::Unsupported, "grey is not written yet"));
        }
        Pixels::packed(&self.pixels, Region::from(info), 3)?.view(region)
    }
}

impl Decoder for ImageDecoder {
    fn run(&mut self, jobs: &mut dyn Jobs) {
        while let Some((ticket, bytes)) = jobs.next() {
            let region = self.info(&bytes).and_then(|info| Ok((jobs.region(ticket, &info)?, info)));
            let result = region.and_then(|(region, info)| self.decode_known(&bytes, &info, region));
            jobs.done(ticket, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_and_a_jpeg_decode_through_the_same_door() {
        let pixels = [200_u8; 4 * 4 * 3];
        let mut jpeg = Vec::new();
        let encoder = jpeg_encoder::Encoder::new(&mut jpeg, 95);
        encoder.encode(&pixels, 4, 4, jpeg_encoder::ColorType::Rgb).unwrap();
        let mut png = std::io::Cursor::new(Vec::new());
        image::write_buffer_with_format(
            &mut png,
            &pixels,
            4,
            4,
            image::ExtendedColorType::Rgb8,
            image::ImageFormat::Png,
        )
        .unwrap();
        let mut decoder = ImageDecoder::new(DecodeOptions::default()).unwrap();
        for (bytes, format) in [(jpeg, ImageFormat::Jpeg), (png.into_inner(), ImageFormat::Png)] {
            assert_eq!(decoder.info(&bytes).unwrap().format, format);
            let region = Region { x: 1, y: 2, width: 2, height: 1 };
            let decoded = decoder.decode(&bytes, Some(region)).unwrap();
            assert_eq!(decoded.to_vec(), [200; 6]);
            assert_eq!(decoded.region, region);
        }
    }
}
