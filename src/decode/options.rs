//! What a user chooses about decoding: the backend, the colours, and what is refused.
//!
//! Nothing is checked here; `ImageDecoder::new` refuses what the build cannot serve.

/// What serves JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// The baseline decoder; for what it does not take, libjpeg-turbo where it is built in, zune-jpeg otherwise.
    #[default]
    Auto,
    /// The same, and no engine of a GPU.
    Baseline,
    /// libjpeg-turbo: bit-exact with Pillow, decodes a region alone. Needs the feature `turbo`.
    Turbo,
    /// zune-jpeg: pure Rust, decodes in full; colours within 4 of libjpeg-turbo.
    Zune,
}

/// The channels of decoded pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ColorMode {
    /// Three channels: red, green, blue. Grey files are spread over three channels, alpha is dropped.
    #[default]
    Rgb,
    /// One channel: luma by ITU-R 601-2 of the decoded colours, as Pillow's `convert("L")`.
    Grey,
}

impl ColorMode {
    /// Bytes of a pixel: 3 or 1.
    #[must_use]
    pub fn channels(self) -> u8 {
        match self {
            Self::Rgb => 3,
            Self::Grey => 1,
        }
    }
}

/// What happens to a JPEG that ends before its image does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Truncated {
    /// It is an error, wherever the region lies.
    #[default]
    Refuse,
    /// What there is gets decoded; the missing rest is whatever the backend leaves there, mostly grey.
    Allow,
}

/// How images are decoded; the default is Pillow's `convert("RGB")` with its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeOptions {
    /// What serves JPEG. Default [`Backend::Auto`].
    pub backend: Backend,
    /// Channels of the pixels. Default [`ColorMode::Rgb`].
    pub mode: ColorMode,
    /// Whether the EXIF orientation is applied: sizes, regions and pixels are then those of the upright
    /// picture. Default `false`, as Pillow and torchvision load.
    pub exif: bool,
    /// What happens to a JPEG that is cut. Default [`Truncated::Refuse`].
    pub truncated: Truncated,
    /// Most pixels of an image, from its header, 1 or more. Default 178,956,970, where Pillow refuses too.
    pub pixels_max: u64,
    /// Most scans of a JPEG, 1 or more: a small file with thousands of scans takes minutes. Default 100.
    pub scans_max: u32,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            mode: ColorMode::Rgb,
            exif: false,
            truncated: Truncated::Refuse,
            pixels_max: 178_956_970,
            scans_max: 100,
        }
    }
}
