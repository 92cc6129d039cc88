//! Why a picture is left to another decoder.
//!
//! A refusal is no error: nothing has been handed out yet, and the decoder that gets the file next says whether it is
//! sound.

/// What the baseline decoder found in a JPEG that it does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Another process than sequential Huffman coding of 8 bits: progressive, arithmetic, lossless, hierarchical.
    Process,
    /// Neither one component nor three.
    Components,
    /// Three components that are not YCbCr.
    Color,
    /// Sampling factors that are not those of 4:4:4, 4:2:2, 4:2:0 or 4:4:0.
    Sampling,
    /// More than one scan, or a scan of some components only.
    Scans,
    /// A table that is missing, defined twice, longer than its segment, or has a code of ones only.
    Tables,
    /// Markers that a plain file does not have, or has in another order.
    Markers,
    /// Restart markers that are missing, too many or out of order.
    Restarts,
    /// Entropy-coded data that no encoder writes.
    Data,
    /// Coefficients so large that decoders differ about them.
    Range,
    /// The file is cut, and what there is of it is wanted.
    Cut,
}

impl Refusal {
    /// Every reason, in the order of the counts in `stats()`.
    pub const ALL: [Self; 11] = [
        Self::Process,
        Self::Components,
        Self::Color,
        Self::Sampling,
        Self::Scans,
        Self::Tables,
        Self::Markers,
        Self::Restarts,
        Self::Data,
        Self::Range,
        Self::Cut,
    ];

    /// The reason's name in `stats()`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Components => "components",
            Self::Color => "color",
            Self::Sampling => "sampling",
            Self::Scans => "scans",
            Self::Tables => "tables",
            Self::Markers => "markers",
            Self::Restarts => "restarts",
            Self::Data => "data",
            Self::Range => "range",
            Self::Cut => "cut",
        }
    }
}

/// How often each [`Refusal`] has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fallbacks([u64; Refusal::ALL.len()]);

/// Counts in the order of [`Refusal::ALL`].
impl From<[u64; Refusal::ALL.len()]> for Fallbacks {
    fn from(counts: [u64; Refusal::ALL.len()]) -> Self {
        Self(counts)
    }
}

impl Fallbacks {
    pub(in crate::decode) fn count(&mut self, refusal: Refusal) {
        self.0[refusal as usize] += 1;
    }

    /// Every reason with its count, in the order of [`Refusal::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> {
        Refusal::ALL.into_iter().zip(self.0)
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
