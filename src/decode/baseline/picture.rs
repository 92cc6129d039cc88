//! One picture from its bytes to the pixels of a region: the order of the stages, and the restart intervals.

use super::Refusal;
use super::header::Header;
use super::instructions::Instructions;
use super::lanes::Lane;
use super::output::{Form, Output};
use super::strip::{Geometry, Strip};
use crate::decode::Region;

/// Buffers that outlive a picture.
const KEPT_BYTES: usize = 64 << 20;

/// A picture on the way; keeps the memory of the one before.
#[derive(Debug, Default)]
pub(super) struct Picture {
    header: Option<Header>,
    pub(super) lane: Lane,
    strip: Strip,
    pub(super) output: Output,
    /// The next MCU, counted through the picture, and the segment of the data that it is in.
    mcu: usize,
    segment: usize,
    /// The MCU where the lane stops.
    stop: usize,
}

impl Picture {
    /// Reads the header and the whole scan, and makes the lane ready to decode `region`, which is inside the picture.
    pub(super) fn begin(
        &mut self,
        bytes: &[u8],
        region: Region,
        form: Form,
        instructions: Instructions,
    ) -> Result<(), Refusal> {
        self.header = None;
        self.trim();
        let header = Header::read(bytes)?;
        if region.right() > header.width as u64 || region.bottom() > header.height as u64 {
            return Err(Refusal::Markers);
        }
        self.lane.data.fill(bytes.get(header.scan..).unwrap_or(&[]), instructions)?;
        let mcus = header.mcus_across() * header.mcus_down();
        let segments = match header.restart_interval {
            0 => 1,
            interval => mcus.div_ceil(interval),
        };
        if self.lane.data.segments.len() != segments {
            return Err(Refusal::Restarts);
        }
        self.lane.begin(&header)?;
        let is_grey = header.components.len() == 1;
        let geometry = Geometry::new(&header, region);
        // The last restart marker before the region is where decoding can begin.
        let first = geometry.mcu_rows.start * header.mcus_across();
        self.segment = first.checked_div(header.restart_interval).unwrap_or(0);
        self.mcu = self.segment * header.restart_interval;
        self.lane.next_row();
        self.lane.enter(self.segment, self.mcu % header.mcus_across())?;
        self.output.begin(region, form, is_grey);
        self.strip.begin(&header, geometry);
        self.set_stop(&header);
        self.header = Some(header);
        Ok(())
    }

    /// Gives back the memory of an unusually large picture.
    fn trim(&mut self) {
        for buffer in [&mut self.output.data, &mut self.lane.data.bytes] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }

    /// Has the lane stop at the end of the row or of the segment, whichever comes first.
    fn set_stop(&mut self, header: &Header) {
        let across = header.mcus_across();
        let row_end = (self.mcu / across + 1) * across;
        let segment_end = match header.restart_interval {
            0 => row_end,
            interval => (self.segment + 1) * interval,
        };
        self.stop = row_end.min(segment_end);
        let column = self.stop - self.mcu / across * across;
        self.lane.stop_at(column);
    }

    /// Takes what the lane, which has stopped, has decoded; whether the region is complete.
    pub(super) fn take(&mut self, instructions: Instructions) -> Result<bool, Refusal> {
        let Some(header) = self.header.take() else { return Err(Refusal::Data) };
        let across = header.mcus_across();
        let row = self.mcu / across;
        self.lane.settle(self.mcu % across)?;
        self.mcu = self.stop;
        let last = across * header.mcus_down();
        let at_segment_end = self.mcu == last
            || self.mcu.checked_div(header.restart_interval).is_some_and(|number| number > self.segment);
        if at_segment_end && !self.lane.is_at_end_of(self.segment) || self.lane.is_behind(self.segment) {
            return Err(Refusal::Data);
        }
        if self.mcu == (row + 1) * across {
            let needed = self.strip.geometry().mcu_rows.clone();
            if needed.contains(&row) {
                self.strip.take(self.lane.row(), row, &header, &mut self.output, instructions)?;
            }
            if row + 1 == needed.end {
                return Ok(true);
            }
            self.lane.next_row();
        }
        if at_segment_end {
            self.segment += 1;
            self.lane.enter(self.segment, self.mcu % across)?;
        }
        self.set_stop(&header);
        self.header = Some(header);
        Ok(false)
    }
}
